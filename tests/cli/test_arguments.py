from __future__ import annotations

import pytest

from gem_core.cli import main
from gem_core.cli._arguments import parse_kwargs
from gem_core.errors import ConfigError


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
        (["check"], "pass an id, a pattern, or --all"),
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
    from gem_core import registration

    registration.register("test:Far-v0", "package_that_is_not_there:Far", extra="far")
    assert main(["play", "test:Far-v0"]) == 2
    assert capsys.readouterr().err == (
        "gem-core: error: test:Far-v0 needs the package 'package_that_is_not_there': "
        "pip install 'gem-core[far]'\n"
    )
