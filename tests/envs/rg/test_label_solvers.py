"""The labels of reasoning-gym agree with solvers that see the prompt only, and the solvers can disagree.

``GEM_LABEL_ITEMS=300`` compares 300 items of each dataset instead of 30.
"""

import os
from functools import cache

import pytest

pytest.importorskip("reasoning_gym", reason="needs the extra rg")

from gem_core.envs.rg.env import ReasoningGymEnv
from gem_core.envs.rg.labels import label
from gem_core.envs.rg.solvers import JUDGES

_FEW = 30
_ITEMS = int(os.environ.get("GEM_LABEL_ITEMS", _FEW))
_MULTIPLE = {"rush_hour"}
"""Datasets without a label."""
_SLOW = {"futoshiki", "knight_swap"}
"""Datasets that take a fifth of a second to make an item: at most 12 items are compared."""
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
    items = 12 if name in _SLOW and _ITEMS == _FEW else _ITEMS
    verdicts = {i: JUDGES[name](rows[i]["question"], label(rows[i])) for i in range(items)}
    assert len(verdicts) == items
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


def test_every_rush_hour_has_a_way_out():
    from gem_core.envs.rg.solvers.boards import way_out

    env = ReasoningGymEnv("rush_hour")
    for i in range(5):
        moves = way_out(env.rows[i]["question"])
        assert moves
        assert JUDGES["rush_hour"](env.rows[i]["question"], moves)
        assert env.grade(moves, env.rows[i]).score == 1.0
        shorter = moves.rpartition(" ")[0]
        assert not JUDGES["rush_hour"](env.rows[i]["question"], shorter)
        assert env.grade(shorter, env.rows[i]).score < 1.0


@pytest.mark.parametrize(
    ("name", "question", "wrong", "right"),
    [
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
