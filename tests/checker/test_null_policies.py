"""Players that solve nothing."""

from __future__ import annotations

import pytest

import gem_core
from gem_lab._checker.floors import documented
from gem_lab._checker.null_policies import play, readable_forms, replays
from tests.checker.broken_envs import Sound

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


def test_the_oracle_of_another_seed_is_replayed() -> None:
    with gem_core.make("game:TowerofHanoi-v0-easy") as env:
        actions = replays(env, [1000, 1001])
        assert list(actions) == ["oracle of seed 1000", "oracle of seed 1001"]
        own = list(play(env, 1000, forms=(), replays=actions))
        shares = dict.fromkeys(actions, 0.0)
        for seed in range(SEEDS):
            for outcome in play(env, seed, forms=(), replays=actions):
                shares[outcome.policy] += outcome.success / SEEDS
    assert own[0] == ("bare", "oracle of seed 1000", True, 1.0, True)
    assert 0 < max(shares.values()) <= documented(gem_core.spec("game:TowerofHanoi-v0-easy")).success + 0.1
    assert readable_forms(own) == [], "replays say nothing about the forms"


def test_without_an_oracle_there_are_no_replays() -> None:
    class WithoutOracle(Sound):
        def oracle_action(self) -> None:
            return None

    assert list(replays(Sound(), [1000])) == ["oracle of seed 1000"]
    assert replays(WithoutOracle(), [1000]) == {}
