"""Runs a trainer as its user would, from the command line, and leaves nothing of it behind."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SPIES = Path(__file__).resolve().parent / "spies"

SPY_ENTRY_POINTS = (
    "[gem_core.envs]\ngem_spy = gem_spy:register\ngem_trouble = gem_trouble:register\n"
    "gem_script = gem_script:register\n"
)
"""Makes what is in `SPIES` known to gem_core in every process of a trainer; for `metadata_folder`."""


@dataclass
class Run:
    """A finished run.

    Attributes:
        folder: Working folder; what the spies wrote is in ``spy``.
        output: Everything that was printed.
        code: Exit code, -1 after a timeout.
    """

    folder: Path
    output: str
    code: int

    @property
    def spy(self) -> Path:
        return self.folder / "spy"

    def check(self) -> Run:
        assert self.code == 0, self.output[-20000:]
        return self


def run_to_the_end(command: Sequence[str], *, folder: Path, env: Mapping[str, str], timeout: float) -> Run:
    """Run `command` in `folder` in a process session of its own, and end all that is left of it.

    Output goes to ``log.txt`` in `folder`, so that it can be watched.

    Args:
        command: Program and arguments.
        folder: Working folder; it exists.
        env: The whole environment.
        timeout: Seconds after which the run is ended.
    """
    log = folder / "log.txt"
    with open(log, "wb") as file:
        process = subprocess.Popen(
            command, cwd=folder, env=dict(env), stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            _end(process)
    return Run(folder, log.read_text(errors="replace"), code)


def short_folder() -> tempfile.TemporaryDirectory[str]:
    """For sockets, Ray's for example, whose paths must be short."""
    return tempfile.TemporaryDirectory(prefix="gem", dir="/tmp", ignore_cleanup_errors=True)


def metadata_folder(folder: Path, distributions: Mapping[str, str]) -> Path:
    """A folder that, on the import path, announces distributions which are not installed.

    Args:
        folder: Made where it is missing.
        distributions: ``<name>-<version>`` to the text of its ``entry_points.txt``.
    """
    for name, entry_points in distributions.items():
        info = folder / f"{name}.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        distribution, version = name.split("-")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(entry_points)
        (info / "RECORD").write_text(f"{info.name}/METADATA,,\n{info.name}/RECORD,,\n")
    return folder


def _end(process: subprocess.Popen[bytes]) -> None:
    """All processes of the run share its session; Ray gives them process groups of their own."""
    for pid in _session(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def _session(leader: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == leader:
                    yield int(entry.name)
            except ProcessLookupError:
                continue
