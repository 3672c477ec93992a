"""The exact measures of the study of Kuhn poker."""

from __future__ import annotations

import importlib

import pytest

pytest.importorskip("torch", reason="needs the extra 'train'")

from gem_core.envs.multiagent.kuhn_poker import ACTIONS, CHANCES, VALUE
from gem_core.envs.multiagent.turn_game import PLAYERS
from gem_core.train import TrainConfig, train
from gem_core.train.tiny import TinyOptions, save_tiny
from tests.docs.blocks import ROOT

SELF_PLAY = 'multi:KuhnPoker-v0(opponent="self")'


@pytest.fixture
def measures(monkeypatch, own_registry):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("studies.kuhn_poker")


def policy(chances):
    """Return the policy with these probabilities of the bold action by history and card."""
    return {
        (card, history): {cautious: 1 - chances[history][card], bold: chances[history][card]}
        for history, (cautious, bold) in ACTIONS.items()
        for card in range(3)
    }


def test_an_equilibrium_has_its_known_value_and_no_better_response(measures):
    equilibrium = policy(CHANCES)
    assert measures.expected(equilibrium, equilibrium) == pytest.approx((VALUE, -VALUE, 0))
    assert measures.nash_conv(equilibrium) == pytest.approx(0, abs=1e-12)


def test_other_policies_have_the_gain_of_a_best_response(measures):
    # OpenSpiel's exploitability of the uniform policy is 0.4583, the mean of the gains of both players.
    uniform = policy(dict.fromkeys(ACTIONS, (0.5, 0.5, 0.5)))
    assert measures.nash_conv(uniform) == pytest.approx(11 / 12)
    # A policy that always forfeits loses 2 chips as the first player, and the second never acts. Checking
    # or betting would give it nothing worse than 0 then, because the opponent would forfeit.
    silent = {situation: {} for situation in uniform}
    assert measures.expected(silent, silent) == pytest.approx((-2, 0, 1))
    assert measures.nash_conv(silent) == pytest.approx(2)


def test_the_measures_of_a_model_agree_with_its_hands(measures, tmp_path):
    save_tiny(tmp_path / "model", TinyOptions(envs=(SELF_PLAY,), layers=1, warm_start_steps=60))
    computed = measures.read_policy(tmp_path / "model")
    assert computed.keys() == policy(CHANCES).keys()
    assert all(0 < sum(actions.values()) <= 1 + 1e-6 for actions in computed.values())
    assert all({*actions} == {*ACTIONS[history]} for (_, history), actions in computed.items())
    sides = [f'multi:KuhnPoker-v0(opponent="random", agent="{player}")' for player in PLAYERS]
    config = TrainConfig(
        model=str(tmp_path / "model"), out=str(tmp_path / "run"), env=[SELF_PLAY], eval_env=sides, kl=0.0,
        steps=1, minibatches=1, episodes_per_step=8, eval_episodes=1000, device="cpu",
    )  # fmt: skip
    played = train(config).before
    uniform = policy(dict.fromkeys(ACTIONS, (0.5, 0.5, 0.5)))
    first = measures.expected(computed, uniform)[0]
    second = measures.expected(uniform, computed)[1]
    for label, chips in zip(played, (first, second), strict=True):
        # Four standard errors of a return whose standard deviation is at most 1.5.
        assert played[label]["gem/return"] == pytest.approx(chips, abs=4 * 1.5 / 1000**0.5)
    assert abs(first - second) > 0.1  # so that confused sides would be noticed
    measured = measures.measure(tmp_path / "model")
    assert measured["nash_conv"] == measures.nash_conv(computed) > 0.1
    assert measured["forfeits"] == measures.expected(computed, computed)[2]
