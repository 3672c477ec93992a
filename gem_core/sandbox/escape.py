"""Attacks on a sandbox, to see what a level stops on this machine.

    for outcome in attack_level("namespace"):
        print(outcome.attack, outcome.verdict, outcome.seen)

Each attack is a program that a model could write. Whether it got through is seen from outside where that is
possible: a file that appeared, a connection that arrived, a secret in the output. Attacks that do no harm run
at every level, so that a level that stops nothing shows it; the others run only where something holds them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from gem_core.sandbox.attacks import ATTACKS, Attack
from gem_core.sandbox.levels import LEVELS, Sandbox, open_sandbox
from gem_core.sandbox.process import ISOLATED, Limits, RunResult

Verdict: TypeAlias = Literal["blocked", "gets through", "not run"]

LATE_SECONDS = 1.0
"""How long after the end of a program something that it left behind writes."""
_LIMITS = Limits(
    wall_seconds=2.0, cpu_seconds=2.0, memory_bytes=256 * 2**20, file_bytes=2**20, output_bytes=2**16,
    processes=ISOLATED.processes,
)  # fmt: skip


class Outcome(NamedTuple):
    """What came of one attack at one level."""

    attack: str
    level: str
    verdict: Verdict
    seen: str
    """Evidence, in one line."""


@dataclass
class Target:
    """What the attacks are after, made for one run of the suite.

    Attributes:
        folder: Outside of every sandbox; has a secret file, and is where markers would appear.
        token: In the secret file, in the environment of this process, behind an inherited descriptor.
        port: Of this machine, where the suite listens.
        descriptor: Open on the secret file, inheritable.
    """

    folder: Path
    token: str
    port: int
    descriptor: int
    listener: socket.socket

    def fill(self, code: str) -> str:
        """The program of an attack with the places that it is after."""
        values = {
            "SECRET": str(self.folder / "secret.txt"), "MARKER": str(self.folder / "marker.txt"),
            "FOLDER": str(self.folder), "PORT": str(self.port), "PID": str(os.getpid()),
            "DESCRIPTOR": str(self.descriptor), "STDIN": repr(_identity(0)), "LATE": str(LATE_SECONDS),
        }  # fmt: skip
        for name, value in values.items():
            code = code.replace(f"@{name}@", value)
        return code

    def marked(self) -> bool:
        """Whether a program has written outside; forgets it."""
        marker = self.folder / "marker.txt"
        there = marker.exists()
        marker.unlink(missing_ok=True)
        return there

    def visited(self) -> bool:
        """Whether somebody has connected."""
        self.listener.settimeout(0.2)
        with contextlib.suppress(OSError):
            self.listener.accept()[0].close()
            return True
        return False


def attack_level(level: str, *, sandbox: Sandbox | None = None) -> list[Outcome]:
    """Run every attack that this level may be given.

    Args:
        level: Name of a level.
        sandbox: Attack this one instead of the shared one of that level.

    Raises:
        SandboxError: The level is not available here.
    """
    where = sandbox or open_sandbox(level)
    with _target() as target:
        return [_run(attack, level, where, target) for attack in ATTACKS]


def _run(attack: Attack, level: str, sandbox: Sandbox, target: Target) -> Outcome:
    if LEVELS[level].strength < LEVELS[attack.least_level].strength:
        return Outcome(attack.name, level, "not run", f"only from level {attack.least_level} on")
    result: RunResult | None = None
    start = time.perf_counter()
    for code in attack.programs:
        result = sandbox.run(target.fill(code), fetch=attack.fetch, limits=_LIMITS)
    seconds = time.perf_counter() - start
    assert result is not None
    through, seen = _EVIDENCE[attack.evidence](result, target, seconds)
    return Outcome(attack.name, level, "gets through" if through else "blocked", " ".join(seen.split())[:160])


Evidence: TypeAlias = Callable[[RunResult, Target, float], tuple[bool, str]]


def _secret(result: RunResult, target: Target, seconds: float) -> tuple[bool, str]:
    found = [
        result.stdout,
        result.stderr,
        *(data.decode("utf-8", "replace") for data in result.files.values()),
    ]
    if any(target.token in text for text in found):
        return True, "the secret is in what the program gave back"
    return False, _last_line(result)


def _marker(result: RunResult, target: Target, seconds: float) -> tuple[bool, str]:
    return (True, "a file appeared outside") if target.marked() else (False, _last_line(result))


def _late_marker(result: RunResult, target: Target, seconds: float) -> tuple[bool, str]:
    time.sleep(LATE_SECONDS + 0.5)
    if target.marked():
        return True, "a file appeared outside after the program had ended"
    return False, "nothing was written after the end"


def _connection(result: RunResult, target: Target, seconds: float) -> tuple[bool, str]:
    return (True, "a connection arrived") if target.visited() else (False, _last_line(result))


def _says_through(result: RunResult, target: Target, seconds: float) -> tuple[bool, str]:
    if "GOT THROUGH" in result.stdout:
        return True, "the program reports success"
    return False, _last_line(result)


def _says_nothing(result: RunResult, target: Target, seconds: float) -> tuple[bool, str]:
    """For a program that is to be stopped, and writes a line only when it was not."""
    if "GOT THROUGH" in result.stdout:
        return True, "the program reports success"
    return False, f"{result.ending} after {seconds:.1f} s"


def _in_time(result: RunResult, target: Target, seconds: float) -> tuple[bool, str]:
    stopped = result.ending in ("timeout", "killed") and seconds < _LIMITS.wall_seconds + 10
    return not stopped, f"{result.ending} after {seconds:.1f} s"


def _short_output(result: RunResult, target: Target, seconds: float) -> tuple[bool, str]:
    size = len(result.stdout) + len(result.stderr)
    return size > 2 * _LIMITS.output_bytes, f"{size:,} characters came back, {result.ending}"


_EVIDENCE: dict[str, Evidence] = {
    "secret": _secret,
    "marker": _marker,
    "late marker": _late_marker,
    "connection": _connection,
    "report": _says_through,
    "survival": _says_nothing,
    "time": _in_time,
    "output": _short_output,
}


def _last_line(result: RunResult) -> str:
    text = (result.stderr.strip() or result.stdout.strip()).rpartition("\n")[2]
    return text or f"{result.ending}, no output"


def _identity(descriptor: int) -> tuple[int, int]:
    with contextlib.suppress(OSError):
        found = os.fstat(descriptor)
        return found.st_dev, found.st_ino
    return -1, -1


@contextlib.contextmanager
def _target() -> Iterator[Target]:
    token = f"gem-core-secret-{secrets.token_hex(16)}"
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gem-outside-")))
        folder.chmod(0o777)  # so that it is not file modes that stop a program
        (folder / "secret.txt").write_text(token)
        (folder / "secret.txt").chmod(0o666)
        descriptor = os.open(folder / "secret.txt", os.O_RDONLY)
        stack.callback(os.close, descriptor)
        os.set_inheritable(descriptor, True)
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        os.environ["GEM_CORE_ESCAPE_TOKEN"] = token
        stack.callback(os.environ.pop, "GEM_CORE_ESCAPE_TOKEN", None)
        yield Target(folder, token, listener.getsockname()[1], descriptor, listener)
