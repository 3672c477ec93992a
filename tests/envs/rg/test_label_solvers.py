"""The labels of reasoning-gym agree with solvers that see the prompt only, and the solvers can disagree.

``GEM_LABEL_ITEMS=300`` compares 300 items of each dataset instead of 12.
"""

import json
import os
import re
from functools import cache

import pytest

pytest.importorskip("reasoning_gym", reason="needs the extra rg")

from gem_envs._rg.env import ReasoningGymEnv
from gem_envs._rg.labels import NOTES, label
from gem_envs._rg.solvers import JUDGES, SOLVERS

_ITEMS = int(os.environ.get("GEM_LABEL_ITEMS", 12))
_MULTIPLE = {"boxnet", "rush_hour"}
"""Datasets without a label."""
_SWAP = (
    '["w,C3,B1", "B,D2,B3", "w,A2,C3", "B,C1,A2", "w,B1,D2", "B,B3,C1", "w,C3,B1", "B,A2,C3", "w,D2,B3",'
    ' "B,C3,D1", "w,B1,D2", "B,C1,A2", "w,B3,C1", "B,D1,C3"]'
)


@cache
def _rows(name):
    return ReasoningGymEnv(name).rows


@pytest.mark.parametrize("name", sorted(JUDGES.keys() - _MULTIPLE))
def test_labels_are_right(name):
    rows = _rows(name)
    verdicts = {i: JUDGES[name](rows[i]["question"], label(rows[i])) for i in range(_ITEMS)}
    assert len(verdicts) == _ITEMS
    assert {i for i, verdict in verdicts.items() if verdict is not True} == set()


@pytest.mark.parametrize("name", sorted(JUDGES.keys() - _MULTIPLE))
def test_changed_labels_are_seen(name):
    """Labels of other items are rejected unless they are right by chance, and so is text."""
    rows = _rows(name)
    labels = [label(rows[i]) for i in range(12)]
    accepted = [JUDGES[name](rows[i]["question"], labels[i - 1]) for i in range(12)]
    same = [labels[i].split() == labels[i - 1].split() for i in range(12)]
    assert accepted.count(True) <= sum(same) + 2
    assert not any(JUDGES[name](rows[i]["question"], "nothing of the kind") for i in range(12))


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("basic_arithmetic", {"allow_parentheses": False}),
        ("basic_arithmetic", {"format_style": "natural", "whitespace": "random"}),
        ("bf", {"difficulty": 2}),
        ("calendar_arithmetic", {"year": 904, "offset_upper_bound": 365}),
        ("circuit_logic", {"min_inputs": 1}),
        ("circuit_logic", {"min_terms": 1, "max_terms": 1}),
        ("circuit_logic", {"max_terms": 12, "max_inputs": 9, "allow_reuse": False}),
        ("coin_flip", {"max_trials": 60}),
    ],
)
def test_labels_are_right_with_other_settings(name, config):
    rows = ReasoningGymEnv(name, config=config).rows
    assert all(JUDGES[name](rows[i]["question"], label(rows[i])) for i in range(20))


_ODD = ("", "nan", "1e999999999", "1/0", "[null]", "{}", "1" * 9000, "[" * 9000, "-" * 480 + "1", "9**9**9",
        "\u0661", "\u00bd", "\ud800", "True", '[{"Agent[0.5, 0.5]": 3}]', "0x", "\n")  # fmt: skip


@pytest.mark.parametrize("name", sorted(JUDGES))
def test_odd_answers_are_read(name):
    row = ReasoningGymEnv(name).rows[1]
    right = label(row) or ""
    accepted = [answer for answer in _ODD if JUDGES[name](row["question"], answer)]
    assert [answer for answer in accepted if answer.split() != right.split()] == []


def test_every_rush_hour_has_a_way_out():
    from gem_envs._rg.solvers.boards import way_out

    env = ReasoningGymEnv("rush_hour")
    for i in range(5):
        moves = way_out(env.rows[i]["question"])
        assert moves
        assert JUDGES["rush_hour"](env.rows[i]["question"], moves)
        assert env.grade(moves, env.rows[i]).score == 1.0
        shorter = moves.rpartition(" ")[0]
        assert not JUDGES["rush_hour"](env.rows[i]["question"], shorter)
        assert env.grade(shorter, env.rows[i]).score < 1.0


def test_every_boxnet_has_a_plan():
    from gem_envs._rg.solvers.spaces import box_plan

    env = ReasoningGymEnv("boxnet")
    for i in range(_ITEMS):
        plan = json.loads(box_plan(env.rows[i]["question"]))
        for answer, right in [(plan, True), (plan[:-1], False), (plan[1:], False), (plan[:1] * 2, False)]:
            assert JUDGES["boxnet"](env.rows[i]["question"], json.dumps(answer)) is right
            assert (env.grade(json.dumps(answer), env.rows[i]).score == 1.0) is right


_AGENTS = """The current left boxes and agents are: Agent[0.5, 0.5]: I am in square[0.5, 0.5], I can observe \
['box_red', 'box_blue', 'target_blue'], I can do []
Agent[0.5, 1.5]: I am in square[0.5, 1.5], I can observe ['target_red'], I can do []
"""
_HERE, _THERE = "Agent[0.5, 0.5]", "Agent[0.5, 1.5]"
_AWAY, _RED = "move(box_red, square[0.5, 1.5])", "move(box_red, target_red)"
_BLUE = "move(box_blue, target_blue)"


@pytest.mark.parametrize(
    ("plan", "right"),
    [
        ([{_HERE: _AWAY}, {_HERE: _BLUE, _THERE: _RED}], True),
        ([{_HERE: _BLUE}, {_HERE: _AWAY}, {}, {_THERE: _RED}], True),
        ([{_HERE: _AWAY, _THERE: _RED}, {_HERE: _BLUE}], True),
        ([{_HERE: _AWAY}, {_THERE: _RED}, {_HERE: _BLUE}, {_HERE: _BLUE}], True),
        ([{_THERE: _RED, _HERE: _AWAY}, {_HERE: _BLUE}], False),  # the box is not there yet
        ([{_HERE: _RED}, {_HERE: _BLUE}], False),  # the target is elsewhere
        ([{_HERE: "move(box_red, square[0.5, 2.5])"}], False),
        ([{_HERE: "move(box_blue, target_red)"}], False),
        ([{_HERE: _AWAY}, {_THERE: _RED}], False),
        ([{_THERE: _AWAY}, {_THERE: _RED}, {_HERE: _BLUE}], False),
        ([{_HERE: _BLUE}, {_HERE: _BLUE}, {_HERE: _AWAY}, {_THERE: _RED}], False),
        ([{_HERE: "move(box_red, square[0.5, 0.5])"}, {_HERE: _BLUE}, {_HERE: _AWAY}, {_THERE: _RED}], False),
        (
            [
                {_HERE: "move(box_red, target_blue)"},
                {_HERE: "move(box_blue, square[0.5, 1.5])"},
                {_THERE: "move(box_blue, target_red)"},
            ],
            False,
        ),
        ({_HERE: _BLUE}, False),
        ([_HERE], False),
        ([], False),
    ],
)
def test_plans_for_boxes(plan, right):
    answer, state = (
        json.dumps(plan),
        dict(re.findall(r"in square(.*?), I can observe (.*?), I can do", _AGENTS)),
    )
    assert JUDGES["boxnet"](_AGENTS, answer) is right
    state = {
        "_".join(re.findall(r"[\d.]+", place)): json.loads(things.replace("'", '"'))
        for place, things in state.items()
    }
    row = {"answer": None, "metadata": {"initial_state": state}}
    assert (ReasoningGymEnv("boxnet").grade(answer, row).score == 1.0) is right


def test_an_agent_acts_once_in_a_step():
    twice = f'[{{"{_HERE}": "{_AWAY}", "{_HERE}": "{_BLUE}"}}, {{"{_THERE}": "{_RED}"}}]'
    assert JUDGES["boxnet"](_AGENTS, twice) is False


_COLLEAGUES = (
    "Mary has 4 male colleagues and she also has {} female colleagues. These are all colleagues that Mary"
    " has. All these mentioned persons around Mary are colleagues of each other. John has 2 male colleagues"
    " and {} female colleagues in total. All these mentioned persons around John are colleagues of each"
    " other. The people in the circle around John do not have other colleagues aside - with the only"
    " exception of Matilda. She is colleague of John and she is also colleague of Mary, being part of Mary's"
    " circle. How many female colleagues does Matilda have?"
)
_CIRCUIT = """Below is a randomly generated logic circuit.

A: ───┐
B: ─┐ │
    │ ├─────────┐
    │ │         └──│⊕⊕
    │ └────────────│⊕⊕─── OUT
    │           ┌──│⊕⊕
    └───>o──────┘


Legend for gates:
&&: AND
>o: Negate
⊕⊕: XOR

Given the following input assignments:
  A = 1
  B = 0

What is the final output?"""
_TRIANGLE = (
    "In triangle ABC with coordinates A=(0, 0), B=(1, 0), and C=(3, 1), find the measure (in degrees) of"
    " angle ABC. For all geometry problems:\n2. Round decimal answers to 3 decimal places"
)
_CUBE = (
    "A cube has:\n- a pink top side\n- a gray right side\n- a gold front side\n- a red left side\n- a blue"
    " back side\n- a cyan bottom side\n\n{}\n\nWhat is now the color of the back side of the cube?"
)
_HALF = "The cube is rotated so that the side which was before at the bottom is now at the top."


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("aiw", "Mary has 3 sisters and she also has 1 brothers. How many sisters does John's brother have?"),
        ("basic_arithmetic", "Calculate 1 + 758 / -( 983 + -3 )."),
        ("basic_arithmetic", "Calculate 1 / ( 3 - 3 )."),
        (
            "calendar_arithmetic",
            "Name the day of the week for 08/12/2022. Provide the full name of the weekday.",
        ),
        (
            "calendar_arithmetic",
            "In a year where Monday is January 1st, name the weekday of April 3.",
        ),
        (
            "calendar_arithmetic",
            "How many business days (Monday-Friday) are there from Saturday, October 1, 2022 to Thursday,"
            " January 5, 2022 (inclusive of both dates)? Answer with a number.",
        ),
        ("color_cube_rotation", _CUBE.format(_HALF)),
        (
            "advanced_geometry",
            "Given triangle ABC with coordinates A=(0, 0), B=(2, 0), and C=(1, 16), find the coordinates of"
            " its orthocenter.",  # (1, 0.0625)
        ),
    ],
)
def test_questions_without_one_answer(name, question):
    assert SOLVERS[name](question) is None
    assert JUDGES[name](question, "-1") is None


@pytest.mark.parametrize(
    ("name", "question", "wrong", "right"),
    [
        ("aiw", _COLLEAGUES.format(5, 6), "6", "10"),
        ("calendar_arithmetic", "Is 2100 a leap year? Answer with Yes or No.", "Yes", "No"),
        ("calendar_arithmetic", "Tell me whether 2000 is a leap year. Answer with Yes or No.", "No", "Yes"),
        ("basic_arithmetic", "Calculate 6 * 8 * 7 / 3.", "56", "112"),
        ("circuit_logic", _CIRCUIT, "0", "1"),
        ("aiw", _COLLEAGUES.format(3, 1), "4", "3"),
        ("advanced_geometry", _TRIANGLE, "153.43°", "153.435°"),
        (
            "calendar_arithmetic",
            "Name the day of the week for 08/12/2022. Reply with just the weekday name."
            + NOTES["calendar_arithmetic"],
            "Thursday",
            "Friday",
        ),
        (
            "calendar_arithmetic",
            "If the first day of the year was a Monday, what day of the week will April 3 be? Name it."
            + NOTES["calendar_arithmetic"],
            "Wednesday",
            "Tuesday",
        ),
        ("color_cube_rotation", _CUBE.format(_HALF) + NOTES["color_cube_rotation"], "blue", "gold"),
        (
            "time_intervals",
            "What is the duration between 13:31:16.310 and 15:00:43.656? Please answer in HH:MM:SS.mmm.",
            "01:29:27.345",
            "01:29:27.346",
        ),
        (
            "time_intervals",
            "A call started at 2484-03-27 (Monday) 04:41:41 +0200 and ended at 2484-04-25 (Tuesday)"
            " 06:59:55 -1000. How long was it? Answer in D days, HH:MM:SS.",
            "29 days, 00:00:00",
            "29 days, 14:18:14",
        ),
        (
            "syllogism",
            "Consider these statements:\n1. All cats are dogs\n2. Some dogs are birds\n\n"
            "Does it logically follow that:\nSome cats are birds?\n(Answer Yes or No)",
            "Yes",
            "No",
        ),
        (
            "knight_swap",
            "```\n    A   B   C   D\n   ----------------\n3 |   | . | w |   |\n   ----------------\n"
            "2 | w |   |   | B |\n   ----------------\n1 |   | . | B | . |\n   ----------------\n```\n\n"
            "Rules:\n3. w moves first, then players alternate\n",
            "No",
            _SWAP,
        ),
        (
            "intermediate_integration",
            "Evaluate the indefinite integral: ∫ -2*x**2*cos(3*x) dx\nWhen performing calculations",
            "-2*Integral(x**2*cos(3*x), x) + C",
            "-2*x**2*sin(3*x)/3 - 4*x*cos(3*x)/9 + 4*sin(3*x)/27 + C",
        ),
    ],
)
def test_false_labels_of_the_package(name, question, wrong, right):
    assert JUDGES[name](question, wrong) is False
    assert JUDGES[name](question, right) is True


def test_the_environment_gives_the_opinion_of_the_solver():
    import gem_core

    env = gem_core.make("rg:mahjong_puzzle")
    env.reset(seed=0)
    right = env.oracle_action()
    assert env.verify(right) is True
    assert env.verify(r"\boxed{Chow}") is False
    assert env.verify("no box") is None
    assert gem_core.make("rg:rearc").unwrapped.rows[0]
    other = gem_core.make("rg:rearc")
    other.reset(seed=0)
    assert other.verify(other.oracle_action()) is None
