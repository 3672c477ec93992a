"""Runs attacks on a sandbox, to measure what a level blocks on this machine.

    for outcome in attack_level("namespace"):
        print(outcome.attack, outcome.verdict, outcome.evidence)

Each attack is a program that a model could write. Where possible, success is observed from outside: a file
that appeared, a connection that arrived, a secret in the output. Harmless attacks run at every level, to show
that they succeed at a level that blocks nothing. Harmful ones run only at levels that contain them.
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

from gem_envs.sandbox._levels import LEVELS, open_sandbox
from gem_envs.sandbox._limits import ISOLATED, ProgramLimits
from gem_envs.sandbox._program import Sandbox
from gem_envs.sandbox._result import RunResult
from gem_envs.sandbox._selftest.attacks import ATTACKS, Attack

AttackVerdict: TypeAlias = Literal["blocked", "gets through", "not run"]

LATE_SECONDS = 1.0
"""Seconds between the end of a program and the write of a process that it left behind."""
_LIMITS = ProgramLimits(
    wall_seconds=2.0, cpu_seconds=2.0, memory_bytes=128 * 2**20, file_bytes=2**20, output_bytes=2**16,
    processes=ISOLATED.processes,
)  # fmt: skip


class AttackOutcome(NamedTuple):
    """Outcome of one attack at one level."""

    attack: str
    level: str
    verdict: AttackVerdict
    evidence: str
    """What was observed, in one line."""

    @property
    def unexpected(self) -> bool:
        """Whether an isolating level let the attack through, or level ``none`` blocked it."""
        if self.level == "none":
            return self.verdict == "blocked"
        return LEVELS[self.level].isolates and self.verdict == "gets through"


@dataclass
class Target:
    """The targets that the attacks try to reach, created for one run of the suite.

    Attributes:
        folder: Folder outside every sandbox, with a secret file; markers of a successful write appear here.
        token: Secret in that file, in the environment of this process, and behind an inherited descriptor.
        port: Local port that the suite listens on.
        descriptor: Inheritable descriptor of the secret file.
        listener: Socket of `port`.
    """

    folder: Path
    token: str
    port: int
    descriptor: int
    listener: socket.socket

    def fill(self, code: str) -> str:
        """Return the program of an attack with this target filled in."""
        values = {
            "SECRET": str(self.folder / "secret.txt"), "MARKER": str(self.folder / "marker.txt"),
            "FOLDER": str(self.folder), "PORT": str(self.port), "PID": str(os.getpid()),
            "DESCRIPTOR": str(self.descriptor), "STDIN": repr(_identity(0)), "LATE": str(LATE_SECONDS),
        }  # fmt: skip
        for name, value in values.items():
            code = code.replace(f"@{name}@", value)
        return code

    def marked(self) -> bool:
        """Return whether a program wrote the marker, and remove it."""
        marker = self.folder / "marker.txt"
        exists = marker.exists()
        marker.unlink(missing_ok=True)
        return exists

    def visited(self) -> bool:
        """Return whether a program connected to the port."""
        self.listener.settimeout(0.2)
        with contextlib.suppress(OSError):
            self.listener.accept()[0].close()
            return True
        return False


def attack_level(level: str, *, sandbox: Sandbox | None = None) -> list[AttackOutcome]:
    """Run every attack that may run at a level.

    Args:
        level: Name of the level.
        sandbox: Sandbox to attack. None uses the shared sandbox of that level.

    Raises:
        SandboxError: The level is not available on this machine.
    """
    where = sandbox or open_sandbox(level)
    with _target() as target:
        return [_run(attack, level, where, target) for attack in ATTACKS]


def _run(attack: Attack, level: str, sandbox: Sandbox, target: Target) -> AttackOutcome:
    if LEVELS[level].strength < LEVELS[attack.min_level].strength:
        return AttackOutcome(attack.name, level, "not run", f"needs level {attack.min_level} or stronger")
    result: RunResult | None = None
    start = time.perf_counter()
    for code in attack.programs:
        result = sandbox.run(target.fill(code), fetch=attack.fetch, limits=_LIMITS)
    seconds = time.perf_counter() - start
    assert result is not None
    succeeded, evidence = EVIDENCE[attack.evidence](result, target, seconds)
    verdict: AttackVerdict = "gets through" if succeeded else "blocked"
    return AttackOutcome(attack.name, level, verdict, " ".join(evidence.split())[:160])


Evidence: TypeAlias = Callable[[RunResult, Target, float], tuple[bool, str]]


def _secret(result: RunResult, target: Target, seconds: float) -> tuple[bool, str]:
    fetched = (data.decode("utf-8", "replace") for data in result.files.values())
    if any(target.token in text for text in (result.stdout, result.stderr, *fetched)):
        return True, "the secret is in the output or in a fetched file"
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


def _report(result: RunResult, target: Target, seconds: float) -> tuple[bool, str]:
    if "GOT THROUGH" in result.stdout:
        return True, "the program reports success"
    return False, _last_line(result)


def _survival(result: RunResult, target: Target, seconds: float) -> tuple[bool, str]:
    """Judge a program that should be stopped, and that writes a line only if it was not stopped."""
    if "GOT THROUGH" in result.stdout:
        return True, "the program reports success"
    return False, f"{result.ending} after {seconds:.1f} s"


def _in_time(result: RunResult, target: Target, seconds: float) -> tuple[bool, str]:
    stopped = result.ending in ("timeout", "killed") and seconds < _LIMITS.wall_seconds + 10
    return not stopped, f"{result.ending} after {seconds:.1f} s"


def _short_output(result: RunResult, target: Target, seconds: float) -> tuple[bool, str]:
    size = len(result.stdout) + len(result.stderr)
    return size > 2 * _LIMITS.output_bytes, f"{size:,} characters of output, {result.ending}"


EVIDENCE: dict[str, Evidence] = {
    "secret": _secret,
    "marker": _marker,
    "late marker": _late_marker,
    "connection": _connection,
    "report": _report,
    "survival": _survival,
    "time": _in_time,
    "output": _short_output,
}


def _last_line(result: RunResult) -> str:
    text = (result.stderr.strip() or result.stdout.strip()).rpartition("\n")[2]
    return text or f"{result.ending}, no output"


def _identity(descriptor: int) -> tuple[int, int]:
    with contextlib.suppress(OSError):
        status = os.fstat(descriptor)
        return status.st_dev, status.st_ino
    return -1, -1


@contextlib.contextmanager
def _target() -> Iterator[Target]:
    token = f"gem-core-secret-{secrets.token_hex(16)}"
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gem-outside-")))
        folder.chmod(0o777)  # so that file modes do not block the attacks
        (folder / "secret.txt").write_text(token)
        (folder / "secret.txt").chmod(0o666)
        descriptor = os.open(folder / "secret.txt", os.O_RDONLY)
        stack.callback(os.close, descriptor)
        os.set_inheritable(descriptor, True)
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        os.environ["GEM_CORE_ESCAPE_TOKEN"] = token
        stack.callback(os.environ.pop, "GEM_CORE_ESCAPE_TOKEN", None)
        yield Target(folder, token, listener.getsockname()[1], descriptor, listener)
