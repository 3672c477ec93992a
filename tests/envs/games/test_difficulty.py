"""The recorded rates of every family of games fall from -easy to -hard."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

import gem_core
from gem_lab._checker.floors import documented
from tests.docs.blocks import ROOT

RECORDS = {
    record["id"]: record
    for record in map(json.loads, (ROOT / "docs/results/games.jsonl").read_text().splitlines())
}
GAMES = gem_core.list_envs("game:*")
FAMILIES = [id.removesuffix("-v0-easy") for id in GAMES if id.endswith("-v0-easy")]


def record_of(id: str) -> dict[str, Any]:
    assert id in RECORDS, f"{id} has no record: run `make records ID={id}`"
    return RECORDS[id]


def test_there_are_games_of_several_sizes() -> None:
    assert len(FAMILIES) >= 13


@pytest.mark.parametrize("family", FAMILIES)
def test_difficulty_is_ordered(family: str) -> None:
    variants = [record_of(f"{family}-v0{suffix}") for suffix in ("-easy", "", "-hard")]
    for easier, harder in pairwise(variants):
        assert _random_play(easier) > _random_play(harder), (easier["id"], harder["id"])
        assert easier["oracle"]["success"] >= harder["oracle"]["success"], (easier["id"], harder["id"])


@pytest.mark.parametrize("id", GAMES)
def test_an_oracle_is_far_better_than_a_blind_player(id: str) -> None:
    floor = documented(gem_core.spec(id))
    assert floor is not None, f"{id} has no floor: run `make records ID={id}`"
    best = record_of(id)["oracle"]["success"]
    assert floor.success == 0 or floor.success <= best - 0.05, "a routine that ignores the replies wins"


def _random_play(record: dict[str, Any]) -> tuple[float, float]:
    """Return the success rate of random play, and its mean return, which orders variants it never solves."""
    return record["random"]["success"], record["random"]["return"]
