"""Players that solve nothing."""

from __future__ import annotations

import pytest

import gem_core
from gem_core.checker.floors import documented
from gem_core.checker.null_policies import play

SEEDS = 40


@pytest.mark.parametrize(
    ("id", "policy", "least"),
    [
        ("game:Mastermind-v0-easy", "codes", 0.3),
        ("game:Minesweeper-v0-easy", "corners", 0.15),
        ("game:TowerofHanoi-v0-easy", "tower", 0.05),
        ("multi:KuhnPoker-v0", "last choice", 0.5),
        ("multi:TicTacToe-v0", "diagonals", 0.4),
    ],
)
def test_a_blind_routine_earns_no_more_than_the_floor(id: str, policy: str, least: float) -> None:
    with gem_core.make(id) as env:
        played = [outcome for seed in range(SEEDS) for outcome in play(env, seed, forms=["boxed"])]
    share = sum(outcome.success for outcome in played if outcome.policy == policy) / SEEDS
    floor = documented(gem_core.spec(id))
    assert least <= share <= floor.success + 0.1


@pytest.mark.parametrize("id", ["math:Arithmetic-v0-easy", "logic:Proofs-v0-d0", "game:Wordle-v0-easy"])
def test_routines_of_a_game_are_not_played_elsewhere(id: str) -> None:
    with gem_core.make(id) as env:
        played = {outcome.policy: outcome for outcome in play(env, 0, forms=["boxed"])}
    for policy in ("last choice", "codes", "corners"):
        assert played[policy][2:] == played["empty"][2:]
