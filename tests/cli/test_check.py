from __future__ import annotations

import json

import pytest

import gem_core
from gem_core.errors import ServiceError
from gem_lab import main
from tests.support import ScriptedEnv

EASY = "game:GuessTheNumber-v0-easy"


class Stepper(ScriptedEnv):
    """Keeps the contract except for one rule: it can be stepped after its end."""

    def require_reset(self) -> None:
        self._running = True
        self.turn %= len(self.rewards)


@pytest.fixture
def broken_env(monkeypatch):
    from gem_core import _registration

    monkeypatch.setattr(_registration._envs, "_values", _registration._envs.registered())
    gem_core.register("test:Broken-v0", Stepper)
    gem_core.register("test:Far-v0", "package_that_is_not_there:Far", extra="far")
    return "test:Broken-v0"


@pytest.mark.once
def test_one_line_for_each_environment_that_keeps_the_contract(capsys):
    assert main(["check", EASY, "game:GuessTheNumber-v0-e*", "--seeds", "1"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"ok      {EASY}: ")
    assert "rules hold" in line


def test_a_broken_rule_is_exit_1_with_its_evidence(broken_env, capsys):
    assert main(["check", broken_env, "--seeds", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"failed  {broken_env}: ")
    assert any(line.strip().startswith("observed:") for line in lines)
    assert lines[-1].strip() == "not checked until reset_is_needed holds: states_survive_json, " + (
        "forks_are_equal_and_independent, resets_start_from_a_state, attacks_change_nothing"
    )


def test_json(broken_env, capsys):
    assert main(["check", EASY, broken_env, "--seeds", "1", "--json"]) == 1
    good, bad = json.loads(capsys.readouterr().out)
    assert (good["id"], good["status"], good["message"]) == (EASY, "ok", "")
    assert len(good["rules"]) + len(good["not_applicable"]) > 10
    assert (bad["id"], bad["status"]) == (broken_env, "failed")
    assert "breaks the rule" in bad["message"]


def test_every_broken_rule_has_a_command_that_repeats_it(broken_env, capsys, monkeypatch):
    monkeypatch.setattr(Stepper, "sample_random_action", lambda self: "", raising=False)
    gem_core.register("test:Nan-v0", Stepper, rewards=[1.0, float("nan")])
    arguments = ["test:Nan-v0", "--seeds", "1", "--kwargs", "truncate=true"]
    assert main(["check", *arguments, "--json"]) == 1
    (verdict,) = json.loads(capsys.readouterr().out)
    assert {"step_results", "reset_is_needed"} <= set(verdict["broken"])
    command = verdict["broken"]["step_results"].rpartition("reproduce: gem-core ")[2].split()
    assert main([*command, "--json"]) == 1
    (again,) = json.loads(capsys.readouterr().out)
    assert again["broken"] == {"step_results": verdict["broken"]["step_results"]}


def test_actions_replace_a_random_player(broken_env, capsys, monkeypatch):
    def no_player(self):
        raise NotImplementedError("what is legal is unknown")

    monkeypatch.setattr(ScriptedEnv, "sample_random_action", no_player)
    gem_core.register("test:Silent-v0", "tests.support:ScriptedEnv")
    check = ["check", "test:Silent-v0", "--seeds", "1", "--rules", "step_results", "--json"]
    assert main(check) == 1
    assert "check_env(..., actions=[...]) or --actions" in capsys.readouterr().out
    assert main([*check, "--rules", "random_actions_are_legal", "--actions", "go", "--actions", "stop"]) == 0
    (verdict,) = json.loads(capsys.readouterr().out)
    assert (verdict["rules"], verdict["not_applicable"]) == (["step_results"], ["random_actions_are_legal"])


def test_a_missing_extra_is_skipped_with_all_and_is_an_error_by_name(broken_env, capsys, monkeypatch):
    from gem_core import _registration

    monkeypatch.setattr(_registration._envs, "_values", {"test:Far-v0": gem_core.spec("test:Far-v0")})
    monkeypatch.setattr(_registration, "_families", {})  # no family that would load more ids into it
    assert main(["check", "--all"]) == 0
    assert capsys.readouterr().out.startswith("skipped test:Far-v0: ")
    assert main(["check", "test:Far-v0"]) == 2
    assert "pip install 'gem-core[far]'" in capsys.readouterr().err


class Unserved(ScriptedEnv):
    """Plays with a server that becomes unavailable, immediately or later."""

    def __init__(self, at_once: bool) -> None:
        super().__init__()
        if at_once:
            raise ServiceError("the server did not answer")

    def reset(self, seed=None, *, options=None):
        raise ServiceError("the server went away")


@pytest.mark.once
@pytest.mark.parametrize(("at_once", "message"), [(True, "did not answer"), (False, "went away")])
def test_one_that_cannot_be_checked_does_not_end_the_check(at_once, message, capsys, monkeypatch):
    from gem_core import _registration

    monkeypatch.setattr(_registration._envs, "_values", {EASY: gem_core.spec(EASY)})
    monkeypatch.setattr(_registration, "_families", {})
    gem_core.register("game:Absent-v0", Unserved, at_once=at_once)
    assert main(["check", "--all", "--seeds", "1"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("failed  game:Absent-v0: ")
    assert message in shown
    assert f"\nok      {EASY}: " in shown
    assert "fix:" not in shown  # no rule is to blame
    assert main(["check", "game:Absent-v0"]) == 2
    assert message in capsys.readouterr().err


def test_arguments_reach_the_environment(capsys):
    arguments = ["--seeds", "1", "--rules", "episodes_end", "--kwargs", "max_turns=3"]
    assert main(["check", EASY, *arguments]) == 0  # not the max_turns of check_env
    assert main(["check", EASY, "--seeds", "1", "--kwargs", "max_number=1"]) == 2
    assert "max_number" in capsys.readouterr().err


def test_all_passes_over_data_that_is_not_here(monkeypatch, capsys):
    from gem_core import _registration

    spec = gem_core.spec("qa:HotpotQA")
    monkeypatch.setattr(_registration._envs, "_values", {spec.id: spec})
    monkeypatch.setattr(_registration, "_families", {})
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert main(["check", "--all", "--json"]) == 0
    (verdict,) = json.loads(capsys.readouterr().out)
    assert verdict["status"] == "skipped"
    assert "axon-rl/HotpotQA" in verdict["message"] or "gem-core[data]" in verdict["message"]
    assert main(["check", "qa:HotpotQA"]) == 2
