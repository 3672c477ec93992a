"""Every text for an interpreter works in a real one, and texts that never return are stopped."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gem_core import EnvSpec
from gem_core.errors import CheckFailed
from gem_lab import check_env
from gem_lab._checker.attacks import _COMMANDS, _ENDLESS, _SQL, payloads
from gem_lab._checker.host import ProcessSnapshot
from gem_lab._checker.runaway import portable_spec, send
from gem_lab._checker.subject import RuleBroken
from tests.checker.broken_envs import Backtracks, Interprets, Sound

LANGUAGES = {
    "SQL": "SQL script", "SQL in quotes": "", "redirection": "shell", "and": "shell", "or": "shell",
    "new line": "shell", "background": "shell", "group": "shell", "process": "shell",
    "regex letters": "letters", "regex digits": "digits", "regex blanks": "blanks",
}  # fmt: skip
PROGRAMS = {"shell": "bash", "JavaScript": "node"}

pytestmark = pytest.mark.once


def language_of(name: str) -> str:
    """Return the interpreter of a payload; empty for a fragment that only works inside another text."""
    return LANGUAGES.get(name, name.split()[0])


def interpreted(names) -> list[tuple[str, str]]:
    return [(name, language_of(name)) for name in names if language_of(name)]


def require(language: str) -> None:
    program = PROGRAMS.get(language, language)
    if program in ("bash", "node", "awk", "sed", "perl", "jq", "bc", "find") and not shutil.which(program):
        pytest.skip(f"{program} is not installed")


@pytest.mark.parametrize(("name", "language"), interpreted(_SQL | _COMMANDS))
def test_a_text_that_is_run_leaves_a_trace(name: str, language: str) -> None:
    require(language)
    if (
        name == "sed program"
        and b"GNU" not in subprocess.run(["sed", "--version"], capture_output=True).stdout
    ):
        pytest.skip("only GNU sed runs programs")
    host = ProcessSnapshot()
    try:
        (payload,) = [one for one in payloads(host.folder, host.token) if one.name == name]
        env = Interprets(language)
        env.reset(seed=0)
        env.step(payload.text)
        assert any(change.startswith("it wrote the file") for change in host.changes())
    finally:
        host.restore()


@pytest.mark.parametrize(("name", "language"), interpreted(_ENDLESS))
def test_a_text_that_runs_forever_is_stopped(name: str, language: str) -> None:
    require(language)
    (payload,) = [one for one in payloads(Path("x"), "y") if one.name == name]
    assert payload.endless
    spec = EnvSpec("test:Interprets", "tests.checker.broken_envs:Interprets", {"language": language})
    with pytest.raises(RuleBroken, match=r"did not return within 0\.4 s|was answered with 1000000"):
        send(spec, 0, [("a digit", "bare", "1"), (name, "bare", payload.text)], patience=0.1)


def test_a_program_that_never_ends_is_stopped_with_its_environment() -> None:
    require("shell")
    spec = EnvSpec("test:Interprets", "tests.checker.broken_envs:Interprets", {"language": "shell"})
    with pytest.raises(RuleBroken):
        send(spec, 0, [("sleep", "bare", f"sleep 86399.{os.getpid()}")], patience=0.1)
    while any(b"86399.%d" % os.getpid() in command for command in _commands()):  # the kernel ends it soon
        time.sleep(0.05)


def _commands() -> Iterator[bytes]:
    """Yield the command line of each process."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # the process has ended
            yield path.read_bytes()


def test_an_environment_in_time_is_not_stopped_and_the_worker_is_used_again() -> None:
    spec = EnvSpec("test:Sound", "tests.checker.broken_envs:Sound")
    texts = [(name, "bare", text) for name, text in _ENDLESS.items()]
    send(spec, 0, texts, patience=5.0)
    send(spec, 0, texts, patience=5.0)


def test_an_environment_that_no_other_process_can_build_gets_no_endless_text() -> None:
    class Local(Backtracks):
        pass

    check_env(Local, rules=["attacks_change_nothing"], patience=0.5)
    with pytest.raises(CheckFailed, match=r"regex repetition.*did not return within 2 s"):
        check_env(Backtracks, rules=["attacks_change_nothing"], patience=0.5)


@pytest.mark.parametrize("kwargs", [{}, {"digits": "01"}, {"limit": 4}])
def test_a_class_has_a_spec_for_another_process(kwargs: dict) -> None:
    class Subject:
        spec = None

    spec = portable_spec(Subject(), Sound(**kwargs))
    assert (spec.entry_point, spec.kwargs) == ("tests.checker.broken_envs:Sound", kwargs)
    assert portable_spec(Subject(), Sound("01")) is None  # positional arguments have no spec
