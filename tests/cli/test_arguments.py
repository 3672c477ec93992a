from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from gem_core.errors import ConfigError
from gem_lab import main
from gem_lab._cli import _arguments, build_parser
from gem_lab._cli._arguments import parse_kwargs


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], {}),
        (["max_turns=5"], {"max_turns": 5}),
        (["a=1", "a=2"], {"a": 2}),
        (["a=true", "b=null", "c=[1, 2]", "d=0.5"], {"a": True, "b": None, "c": [1, 2], "d": 0.5}),
        (["name=some text", 'quoted="5"'], {"name": "some text", "quoted": "5"}),
        (["equation=x=y"], {"equation": "x=y"}),
        (['{"max_turns": 5}', "max_turns=6"], {"max_turns": 6}),
        (['{"a": "b=c"}'], {"a": "b=c"}),
    ],
)
def test_kwargs_are_json_or_pairs(given, expected):
    assert parse_kwargs(given) == expected


@pytest.mark.parametrize("given", ["{", "max_turns", "[1]", "3", "{'a': 1}", "=5", "a b=1"])
def test_kwargs_that_are_neither_say_what_was_expected(given):
    with pytest.raises(ConfigError, match="JSON"):
        parse_kwargs([given])


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["play", "game:GuesTheNumber-v0"], "Did you mean game:GuessTheNumber-v0"),
        (["play", "game:GuessTheNumber-v0", "--kwargs", "{"], "JSON object"),
        (["play", "game:GuessTheNumber-v0", "--kwargs", "size=3"], "accepted keyword arguments: min_number"),
        (["play", "game:GuessTheNumber-v0", "--kwargs", "max_number=text"], "max_number"),
        (["play", "game:GuessTheNumber-v0", "--kwargs", "max_number=-4"], "max_number"),
        (["play", "game:GuessTheNumber-v0", "--wrappers", "concatt"], "Did you mean concat"),
        (["play", "game:GuessTheNumber-v0", "--wrappers", "concat("], "names with literal keyword arguments"),
        (["play", "game:GuessTheNumber-v0", "--wrappers", "time_limit(turns=3)"], "time_limit"),
        (["play", "game:GuessTheNumber-v0", "--seed", "-1"], "at least 0"),
        (["bench", "game:GuessTheNumber-v0", "--seconds", "0"], "above 0"),
        (["bench", "game:GuessTheNumber-v0", "--num-envs", "0"], "at least 1"),
        (["check"], "pass an id or a pattern"),
        (["check", "no:such-*"], "no environment matches"),
        (["check", "no:such-?"], "no environment matches"),
        (["play", "game:GuessTheNumber-v0(max_number=30)=2"], "omit =2"),
        (["play", "game:GuessTheNumber-v0(size=3)"], "accepted keyword arguments: min_number"),
        (["play", "game:GuessTheNumber-v0(3)"], "arguments need names"),
    ],
)
def test_a_mistake_is_reported_in_one_line_and_exit_2(argv, expected, capsys):
    assert main(argv) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert expected in shown.err.splitlines()[-1]
    assert "error: " in shown.err.splitlines()[-1]


def test_a_missing_extra_is_reported_in_one_line_with_the_pip_command(capsys, own_registry):
    from gem_core import _registration

    _registration.register("test:Far-v0", "package_that_is_not_there:Far", extra="far")
    assert main(["play", "test:Far-v0"]) == 2
    assert capsys.readouterr().err == (
        "gem-core: error: test:Far-v0 needs the package 'package_that_is_not_there': "
        "pip install 'gem-core[far]'\n"
    )


def list_flags() -> list[tuple[argparse.ArgumentParser, argparse.Action]]:
    """Return every option of every command that takes several values."""
    found, waiting = [], [build_parser()]
    while waiting:
        parser = waiting.pop()
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                waiting += action.choices.values()
            elif action.option_strings and (action.nargs in ("+", "*") or "Append" in type(action).__name__):
                found.append((parser, action))
    return found


VALUES = {"N": ["2", "3"], "G": ["0.5", "1"]}


@pytest.mark.parametrize(
    ("parser", "action"), [pytest.param(*each, id=f"{each[0].prog} {each[1].dest}") for each in list_flags()]
)
def test_every_list_takes_values_separated_by_spaces_and_repeated_flags(parser, action):
    flag, values = action.option_strings[0], VALUES.get(str(action.metavar), ["a", "b"])
    alone = argparse.ArgumentParser()
    alone._add_action(action)
    together = alone.parse_args([flag, *values])
    assert [str(value) for value in getattr(together, action.dest)] == [
        str(action.type(value) if action.type else value) for value in values
    ]
    assert alone.parse_args([flag, values[0], flag, values[1]]) == together
    assert "comma" not in action.help
    assert "repeatable" not in action.help
    if action.type is not None:  # names and numbers, which hold no comma
        with pytest.raises(
            argparse.ArgumentTypeError, match=f"'{values[0]},{values[1]}': separate the values"
        ):
            action.type(",".join(values))


def test_lists_of_every_command_are_known():
    lists = {f"{parser.prog} {action.option_strings[0]}" for parser, action in list_flags()}
    assert {
        "gem-core exam --tasks", "gem-core exam --batch-sizes", "gem-core exam --gammas",
        "gem-core check --rules",
        "gem-core check --actions", "gem-core consistency --trainers", "gem-core eval --env",
        "gem-core train --env", "gem-core export --env", "gem-core repro --to", "gem-core sandbox --level",
        "gem-core play --kwargs", "gem-core serve openenv --kwargs",
    } <= lists  # fmt: skip


def test_no_command_splits_a_value_at_commas():
    folder = Path(_arguments.__file__).parent
    assert [path.name for path in folder.glob("*.py") if 'split(",")' in path.read_text()] == []


@pytest.mark.once
def test_the_commands_of_a_user_who_writes_lists_as_elsewhere(capsys):
    words = ["exam", "grpo", "rebn", "--tasks", "stop", "mixture", "--budget", "500", "--workers", "1"]
    assert main([*words, "--batch-sizes", "8", "16", "--stages", "initial", "--json"]) in (0, 1)
    assert {row["task"] for row in json.loads(capsys.readouterr().out)["results"]} == {"stop", "mixture"}
    words = ["check", "game:GuessTheNumber-v0-easy", "--rules", "signatures", "reset_results", "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)[0]["rules"] == ["signatures", "reset_results"]
    assert main(["exam", "grpo", "--tasks", "stop,mixture"]) == 2
    assert "'stop,mixture': separate the values by spaces" in capsys.readouterr().err
