"""The players without a model reach the documented returns.

`docs/results/games.jsonl` and `datasets.jsonl` hold the numbers in the tables of docs/environments. These
tests check environments with hundreds of episodes per second; CHECK_RETURNS=ID selects others by a pattern.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from gem_core import list_envs, make
from gem_lab.eval import EvalConfig, evaluate

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
QUICK = [
    "game:GuessTheNumber-v0-easy",
    "game:GuessTheNumber-v0",
    "game:Mastermind-v0-easy",
    "game:Hangman-v0-easy",
    "math:Arithmetic-v0-easy",
    "logic:Proofs-v0-d1",
    "qa:MultiHop-v0-easy",
]
pytestmark = pytest.mark.once
FILES = ("games.jsonl", "datasets.jsonl", "vision.jsonl")
EPISODES = 500


def ids() -> list[str]:
    asked = os.environ.get("CHECK_RETURNS")
    return QUICK if asked is None else list_envs(asked)


@pytest.mark.parametrize("kind", ["random", "oracle"])
@pytest.mark.parametrize("id", ids())
def test_the_documented_return(id, kind, tmp_path):
    lines = [line for name in FILES for line in (RESULTS / name).read_text().splitlines()]
    documented = {record["id"]: record for record in map(json.loads, lines)}[id]
    outcome = evaluate(EvalConfig(kind, [id], episodes=EPISODES, out=str(tmp_path)))
    found = outcome.summary["envs"][id]
    assert found["errors"] == 0
    # The documented mean has its own error, from the documented number of episodes.
    deviation = found["return"]["se"] * math.sqrt(EPISODES)
    error = deviation * math.sqrt(1 / EPISODES + 1 / documented["episodes"])
    assert abs(found["return"]["mean"] - documented[kind]["return"]) <= 3 * error + 1e-9
    with make(id) as env:
        if kind == "oracle" and env.oracle_certain and env.max_return is not None:
            assert found["return"]["mean"] == pytest.approx(env.max_return)
