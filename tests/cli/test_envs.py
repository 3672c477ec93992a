from __future__ import annotations

import json
import re
import sys

import pytest

import gem_core
from gem_lab import main


def test_lists_every_id_with_its_description(capsys):
    assert main(["envs"]) == 0
    shown = capsys.readouterr().out
    for id in gem_core.list_envs():
        assert id in shown
        assert gem_core.spec(id).description in shown


@pytest.mark.parametrize("pattern", ["game:GuessTheNumber-v0*", "GuessTheNumber"])
def test_pattern_or_part_of_the_id(pattern, capsys):
    assert main(["envs", pattern, "--json"]) == 0
    ids = [env["id"] for env in json.loads(capsys.readouterr().out)]
    assert ids == gem_core.list_envs("game:GuessTheNumber-v0*")


def test_json_has_what_a_program_needs(capsys):
    assert main(["envs", "game:GuessTheNumber-v0-easy", "--json"]) == 0
    (env,) = json.loads(capsys.readouterr().out)
    assert env == {
        "id": "game:GuessTheNumber-v0-easy",
        "description": "Find a number from 1 to 10 in 4 turns",
        "extra": None,
        "needs": [],
        "kwargs": {"min_number": 1, "max_number": 10, "max_turns": 4},
        "deterministic": True,
        "stateful": True,
        "floor": env["floor"],
    }
    assert 0.3 <= env["floor"]["success"] <= 0.5  # four of ten numbers
    assert env["floor"]["seeds"] == 200


def test_floor_of_an_id(capsys):
    assert main(["envs", "logic:Proofs-v0-d1"]) == 0
    head, row = capsys.readouterr().out.splitlines()[1:]
    assert head.endswith("floor")
    assert re.search(r" 0\.5\d* \(.*boxed\{.*\}\)$", row)
    gem_core.register("test:Declared-v0", "tests.checker.broken_envs:Sound", floor=0.25)
    assert main(["envs", "test:Declared-v0", "--json"]) == 0
    (env,) = json.loads(capsys.readouterr().out)
    assert env["floor"] == {"success": 0.25, "policy": None, "seeds": None}


def test_json_says_what_each_id_needs(capsys):
    assert main(["envs", "--json"]) == 0
    envs = {env["id"]: env for env in json.loads(capsys.readouterr().out)}
    assert len(envs) >= 180
    assert envs["math:GSM8K"]["needs"] == [
        "pip install 'gem-core[math]'",
        "the dataset axon-rl/GSM-8k on the Hugging Face Hub, or dataset_name= a local copy",
    ]
    assert envs["rg:letter_counting"]["needs"] == ["pip install 'gem-core[rg]'"]
    assert envs["math:Arithmetic-v0"]["needs"] == []


def test_no_match_is_exit_1(capsys):
    assert main(["envs", "nothing-like-this"]) == 1
    assert capsys.readouterr().err == (
        "gem-core: no environment matches 'nothing-like-this'; `gem-core envs` lists all\n"
    )
    assert main(["envs", "nothing-like-this", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize("rich_installed", [True, False])
def test_on_a_terminal_with_and_without_rich(rich_installed, monkeypatch, capsys):
    if rich_installed:
        pytest.importorskip("rich", reason="needs the extra 'train'")
        monkeypatch.setenv("COLUMNS", "120")
    else:
        monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(["envs", "GuessTheNumber"]) == 0
    shown = capsys.readouterr().out
    assert ("\x1b[" in shown) == rich_installed
    assert "game:GuessTheNumber-v0-easy" in shown


def test_part_of_an_id_in_any_case_and_filters(capsys):
    assert main(["envs", "wordle", "--json"]) == 0
    ids = [env["id"] for env in json.loads(capsys.readouterr().out)]
    assert ids == sorted(gem_core.list_envs("game:Wordle-*"))
    assert main(["envs", "vision", "--extra", "vision", "--json"]) == 0
    assert {env["extra"] for env in json.loads(capsys.readouterr().out)} == {"vision"}
    assert main(["envs", "game", "--extra", "none", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["extra"] is None
    assert main(["envs", "game", "--extra", "nope"]) == 1
    assert "no environment matches 'game' and the extra 'nope'" in capsys.readouterr().err
