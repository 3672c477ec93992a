"""Runs a trainer from the command line, like a user, and cleans up all of its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SPIES = Path(__file__).resolve().parent / "spies"

SPY_ENTRY_POINTS = (
    "[gem_core.envs]\ngem_spy = gem_spy:register\ngem_trouble = gem_trouble:register\n"
    "gem_script = gem_script:register\n"
)
"""Metadata that registers the modules in `SPIES` in every process of a trainer; for `metadata_folder`."""


QUIET = {
    "HF_HUB_OFFLINE": "1",
    "HYDRA_FULL_ERROR": "1",
    "OMP_NUM_THREADS": "1",
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_worker_niceness": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Variables of every run: one thread per process, no network, complete logs, and a fair share of the cores.

By default, Ray starts its workers with niceness 15, so the trainers would wait for every other test on the
machine, and starts one worker per core before it needs any.
"""


@dataclass
class Run:
    """A finished run.

    Attributes:
        folder: Working folder; the files of the spies are in ``spy``.
        output: All printed output.
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


@dataclass
class Kill:
    """A process of a run to kill with SIGKILL, once.

    Attributes:
        process: Text in the command line of the process; the first process with it is killed.
        when: Whether the time has come; called about five times per second.
    """

    process: str
    when: Callable[[], bool]


def run_to_the_end(
    command: Sequence[str],
    *,
    folder: Path,
    env: Mapping[str, str],
    timeout: float,
    kill: Kill | None = None,
) -> Run:
    """Run `command` in a new process session, and end all processes that it leaves behind.

    The output is written to ``log.txt`` in `folder`, so that it can be watched.

    Args:
        command: Program and arguments.
        folder: Working folder, which must exist.
        env: All environment variables.
        timeout: Time limit in seconds.
        kill: Process of the run to kill before it ends; None for none.
    """
    log = folder / "log.txt"
    with open(log, "wb") as file:
        process = subprocess.Popen(
            command, cwd=folder, env=dict(env), stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            if kill is not None:
                _kill_one(process, kill, timeout)
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            end_session(process.pid)
            process.wait(60)
    return Run(folder, log.read_text(errors="replace"), code)


def short_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder with a short path, as required for sockets such as Ray's."""
    return tempfile.TemporaryDirectory(prefix="gem", dir="/tmp", ignore_cleanup_errors=True)


def metadata_folder(folder: Path, distributions: Mapping[str, str]) -> Path:
    """Return a folder for the import path that declares distributions which are not installed.

    Args:
        folder: Folder, created if it is missing.
        distributions: Maps ``<name>-<version>`` to the text of its ``entry_points.txt``.
    """
    for name, entry_points in distributions.items():
        info = folder / f"{name}.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        distribution, version = name.split("-")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(entry_points)
        (info / "RECORD").write_text(f"{info.name}/METADATA,,\n{info.name}/RECORD,,\n")
    return folder


def run_environment(
    folder: Path,
    *places: Path,
    variables: Mapping[str, str],
    distributions: Mapping[str, str] | None = None,
    last: str = "",
) -> dict[str, str]:
    """Return the environment variables of a run whose spies write into ``spy`` in its folder.

    Args:
        folder: Working folder of the run, created if it is missing.
        places: Folders for the import path, before those of this repository.
        variables: Variables of the trainer, which take precedence.
        distributions: As in `metadata_folder`, in addition to the one that registers the spies.
        last: Folder for the end of the import path.
    """
    spy = folder / "spy"
    spy.mkdir(parents=True, exist_ok=True)
    declared = {"gem_tests-0": SPY_ENTRY_POINTS, **(distributions or {})}
    path = [*places, metadata_folder(folder / "metadata", declared), SPIES, ROOT]
    own = {
        key: value for key, value in os.environ.items() if key not in ("CUDA_VISIBLE_DEVICES", "RAY_ADDRESS")
    }
    programs = str(Path(sys.executable).parent)  # DeepSpeed looks for ninja there
    return {
        **own,
        **QUIET,
        "GEM_SPY": str(spy),
        "GEM_CHAOS": str(spy),
        "PATH": os.pathsep.join([programs, own.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join([*map(str, path), *filter(None, [last, own.get("PYTHONPATH")])]),
        **variables,
    }


def _kill_one(process: subprocess.Popen[bytes], kill: Kill, timeout: float) -> None:
    """Kill the process that `kill` names when its time has come.

    Raises:
        AssertionError: The run ended earlier.
    """
    end = time.monotonic() + timeout
    while not kill.when():
        assert process.poll() is None, "the run ended before a process could be killed"
        if time.monotonic() > end:
            raise subprocess.TimeoutExpired(process.args, timeout)
        time.sleep(0.2)
    commands = {pid: _command(pid) for pid in _session(process.pid)}
    matching = [pid for pid, command in commands.items() if kill.process in command]
    assert matching, f"no process {kill.process!r} among {sorted(commands.values())}"
    os.kill(matching[0], signal.SIGKILL)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):  # it has ended since
        return ""


def end_session(leader: int) -> None:
    """End all processes of a session; Ray gives them separate process groups."""
    for pid in _session(leader):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _session(leader: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == leader:
                    yield int(entry.name)
            except ProcessLookupError:
                continue
