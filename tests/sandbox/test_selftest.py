from __future__ import annotations

import json

import pytest

from gem_envs.sandbox import RunResult, _levels
from gem_envs.sandbox._namespace import Namespace
from gem_envs.sandbox._selftest import suite
from gem_envs.sandbox._selftest.attacks import ATTACKS
from gem_envs.sandbox._selftest.suite import attack_level
from gem_lab import main
from tests.sandbox.support import needs_namespace

HARMLESS = {attack.name for attack in ATTACKS if attack.min_level == "none"}


@pytest.fixture(autouse=True)
def sooner(monkeypatch):
    monkeypatch.setattr(suite, "LATE_SECONDS", 0.3)


@needs_namespace
@pytest.mark.long
def test_every_attack_is_blocked_at_namespace():
    outcomes = attack_level("namespace")
    assert {o.attack: o.evidence for o in outcomes if o.verdict != "blocked"} == {}
    assert len(outcomes) == len(ATTACKS)


@needs_namespace
@pytest.mark.long
@pytest.mark.once
def test_the_programs_of_a_shell_open_no_way_out():
    sandbox = Namespace(programs=True, workers=1)
    outcomes = attack_level("namespace", sandbox=sandbox)
    assert {o.attack: o.evidence for o in outcomes if o.verdict != "blocked"} == {}
    sandbox.close()


def test_at_level_none_harmless_attacks_get_through_and_others_do_not_run():
    outcomes = {o.attack: o for o in attack_level("none")}
    assert {name: o.evidence for name, o in outcomes.items() if o.verdict == "blocked"} == {}
    assert {name for name, o in outcomes.items() if o.verdict == "gets through"} == HARMLESS
    assert outcomes["fork bomb"].verdict == "not run"


def test_destructive_attacks_are_never_handed_to_a_level_that_does_not_hold_them():
    seen = []

    class Spy:
        level = "process"

        def run(self, code, **kwargs):
            seen.append(code)
            return RunResult("", "", "timeout", -9, 0.1, False, "process")

    for level in ("none", "process"):
        attack_level(level, sandbox=Spy())
    programs = "\n".join(seen)
    assert "range(500)" not in programs  # the fork bomb
    assert "file{number}" not in programs  # filling the disk


def test_an_escape_is_detected_with_exit_code_1(monkeypatch, capsys):
    leaky = _levels.open_sandbox("process")
    monkeypatch.setattr(_levels, "_shared", {("namespace", (), None, False): leaky})
    monkeypatch.setattr(
        _levels,
        "_checks",
        {name: _levels.LevelCheck(name, name == "namespace", "-") for name in _levels.LEVELS},
    )
    monkeypatch.setattr(suite, "ATTACKS", [a for a in ATTACKS if a.name in HARMLESS])
    assert main(["sandbox", "check", "--level", "namespace", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    verdicts = {a["attack"]: a["verdict"] for a in report["levels"][0]["attacks"]}
    assert not report["ok"]
    assert verdicts["read a file outside"] == verdicts["connect to this machine"] == "gets through"
    assert verdicts["read environment variables"] == "blocked"


def test_the_command_reports_levels_attacks_and_what_is_not_blocked(monkeypatch, capsys):
    monkeypatch.setattr(suite, "ATTACKS", [a for a in ATTACKS if a.name == "write a file outside"])
    assert main(["sandbox", "check", "--level", "none", "--level", "process"]) == 0
    told = capsys.readouterr().out
    assert "write a file outside  gets through  gets through" in told
    assert "process does not block:\n  - reading and writing the files of this user" in told
    assert main(["sandbox", "check", "--level", "jail"]) == 2
