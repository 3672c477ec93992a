"""Run the program of an agent, and leave none of its processes behind."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from gem_core._util.threads import in_thread
from gem_core._util.waiting import Overdue, within
from gem_core.errors import ConfigError, GemError

GRACE = 5.0
"""Number of seconds between the request to end and the kill."""
_SHOWN = 2000
"""Number of bytes of the output that an error shows."""


_ROUNDS = 20
"""Maximum number of searches for processes that are left."""


class HarnessFailed(GemError, RuntimeError):
    """Raised when the program of an agent ends with another exit code than 0."""


async def run_command(
    command: Sequence[str],
    variables: Mapping[str, str],
    files: Mapping[str, str] | None = None,
    stdin: str = "",
) -> None:
    """Run a program in a new folder, and remove the folder and all its processes when it ends.

    Args:
        command: The program and its arguments.
        variables: Its environment variables; HOME is the folder.
        files: Texts of files in the folder by path.
        stdin: Text of its standard input.

    Raises:
        HarnessFailed: The program failed, or its arguments are longer than the system allows.
        ConfigError: It cannot be started.
    """
    folder = Path(tempfile.mkdtemp(prefix="gem-agent-"))
    try:
        for name, text in (files or {}).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        output, given = folder / ".output", folder / ".input"
        given.write_text(stdin, encoding="utf-8")
        with output.open("wb") as file, given.open("rb") as read:
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    cwd=folder,
                    env={**variables, "HOME": str(folder)},
                    stdin=read,
                    stdout=file,
                    stderr=asyncio.subprocess.STDOUT,
                    start_new_session=True,
                )
            except ValueError as error:  # a prompt with a NUL
                raise HarnessFailed(f"the arguments of {command[0]} cannot be passed: {error}") from error
            except OSError as error:
                if error.errno == errno.E2BIG:  # a long prompt, not a wrong program
                    raise HarnessFailed(
                        f"the arguments of {command[0]} are longer than the system allows, as a prompt of "
                        "more than 128 KiB is; give the prompt as stdin"
                    ) from error
                raise ConfigError(f"the harness {command[0]!r} cannot be started: {error}") from error
            try:
                code = await process.wait()
            finally:
                await _end(process)
                await in_thread(_kill_in, folder)
        check_status(command[0], code, output.read_bytes()[-_SHOWN:].decode("utf-8", "replace").strip())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_status(program: str, status: int, output: str) -> None:
    """Raise an error if a program failed.

    Raises:
        HarnessFailed: Its exit status is not 0.
    """
    if status:
        raise HarnessFailed(f"{program} ended with exit code {status}: {output or 'no output'}")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ask the process group to end, and kill it after `GRACE`."""
    if process.returncode is None:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(Overdue):
            await within(GRACE, process.wait())
    _signal(process.pid, signal.SIGKILL)  # also what the program has left behind
    await process.wait()


def _kill_in(folder: Path) -> None:
    """Kill the processes that have left the group of a program: those with its folder in their environment.

    A process that forks meanwhile is found in the next round.
    """
    proc, mark = Path("/proc"), os.fsencode(folder)
    if not proc.is_dir():  # only Linux has it
        return
    for _ in range(_ROUNDS):
        found = [
            int(entry.name) for entry in proc.iterdir() if entry.name.isdigit() and _belongs(entry, mark)
        ]
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return


def _belongs(process: Path, mark: bytes) -> bool:
    if process.name == str(os.getpid()):
        return False
    try:
        return mark in (process / "environ").read_bytes()  # empty for one that has ended
    except OSError:  # it has ended, or belongs to another user
        return False


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
