"""The check on machines that lack a sandbox level, space, or a working directory."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from gem_core.errors import CheckFailed, SandboxError
from gem_envs.sandbox import _levels, open_sandbox
from gem_envs.sandbox._levels import LevelCheck
from gem_lab import check_env
from tests.checker.broken_envs import Sound

WRITES = "'w').close()"
"""Part of the programs that only write a file."""
RULE = "attacks_change_nothing"
FORMS = {
    "tag": r"<python>(.*?)</python>",
    "bold": r"\*\*(.*?)\*\*",
    "list": r"\[\[(.*?)\]\]",
    "function": r"<function=python>(.*?)</function>",
}


class RunsPrograms(Sound):
    """Runs the programs in one of several forms of text, in the default sandbox."""

    def __init__(self, form: str = "tag", level: str | None = None) -> None:
        super().__init__()
        self.pattern = re.compile(FORMS[form], re.DOTALL)
        self.level = level

    def step(self, action: str) -> Any:
        match = self.pattern.search(action)
        if match and (self.level is None or WRITES in action):
            open_sandbox(self.level).run(match[1])
        return super().step(action)


class RunsProgramsAndEvaluates(RunsPrograms):
    def step(self, action: str) -> Any:
        if action.startswith("\\boxed{exec(") and WRITES in action:
            with contextlib.suppress(SyntaxError):
                exec(action.removeprefix("\\boxed{").removesuffix("}"))
        return super().step(action)


class Raises(Sound):
    error: BaseException

    def step(self, action: str) -> Any:
        raise self.error


class LacksSpace(Raises):
    error = OSError(errno.ENOSPC, "No space left on device", "/somewhere")


class LacksProcesses(Raises):
    error = BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


class LacksLevel(Raises):
    error = SandboxError("level 'namespace' is not available")


class LacksThreads(Sound):
    def step(self, action: str) -> Any:
        before = threading.stack_size(2**46)  # more than there is
        try:
            threading.Thread(target=print).start()
        finally:
            threading.stack_size(before)


class LosesFile(Raises):
    error = FileNotFoundError(errno.ENOENT, "No such file or directory", "/somewhere")


@pytest.fixture
def no_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_levels._checks, "namespace", LevelCheck("namespace", False, "refused by this test"))


@pytest.mark.usefixtures("no_namespaces")
@pytest.mark.parametrize("form", FORMS)
def test_programs_are_not_run_where_the_sandbox_blocks_no_attacker(form: str) -> None:
    report = check_env(RunsPrograms, form=form, rules=[RULE], seeds=[0])
    assert report.passed == ()
    assert report.lacking == report.skipped
    assert "refused by this test" in report.lacking[RULE]


@pytest.mark.usefixtures("no_namespaces")
def test_other_texts_are_still_sent_on_such_a_machine() -> None:
    assert check_env(Sound, rules=[RULE], seeds=[0]).passed == (RULE,)
    with pytest.raises(CheckFailed, match="a text was executed"):
        check_env(RunsProgramsAndEvaluates, rules=[RULE], seeds=[0])
    with pytest.raises(CheckFailed, match="a text was executed"):  # asked for by name, on any machine
        check_env(RunsPrograms, level="none", rules=[RULE], seeds=[0])


@pytest.mark.parametrize("env", [LacksSpace, LacksProcesses, LacksLevel])
def test_what_the_machine_lacks_is_not_a_broken_rule(env: type[Raises]) -> None:
    with pytest.raises(type(env.error), match=re.escape(str(env.error))):
        check_env(env, seeds=[0], keep_going=True)


def test_a_limit_of_threads_is_not_a_broken_rule() -> None:
    with pytest.raises(RuntimeError, match="can't start new thread"):
        check_env(LacksThreads, seeds=[0], keep_going=True)


def test_other_errors_of_the_system_are_broken_rules() -> None:
    with pytest.raises(CheckFailed, match="FileNotFoundError"):
        check_env(LosesFile, seeds=[0])


def test_a_deleted_working_directory_breaks_no_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError):
        os.getcwd()
    assert check_env(Sound, rules=[RULE], seeds=[0]).passed == (RULE,)


DELETES = """
import os
import shutil
from tests.checker.broken_envs import Sound


class {name}(Sound):
    def step(self, action):
        shutil.rmtree({folder!r}, ignore_errors=True)
        {next}
        return super().step(action)
"""


@pytest.mark.parametrize(
    ("needs", "inside"), [("open('data').close()", False), ("pass", True)], ids=["data", "file"]
)
def test_no_environment_is_blamed_for_what_is_deleted_during_the_check(
    needs: str, inside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "data").touch()
    file = (here if inside else tmp_path) / "env.py"
    file.write_text(DELETES.format(name="Deletes", folder=str(here), next=needs))
    monkeypatch.chdir(tmp_path if inside else here)
    with pytest.raises(FileNotFoundError):
        check_env(f"{file}:Deletes", seeds=[0])
