"""The measures of the study of Kuhn poker."""

from __future__ import annotations

import importlib
from random import Random

import pytest

pytest.importorskip("torch", reason="needs the extra 'train'")

from gem_chat import AppendContext
from gem_core.rollout import Generation
from gem_envs.multiagent._kuhn_poker import ACTIONS, CARDS, CHANCES, VALUE
from gem_envs.multiagent._turn_game import PLAYERS
from gem_lab._engines.loading import load_tokenizer
from gem_lab.train import TinyOptions, TrainConfig, save_tiny, train
from tests.docs.blocks import ROOT

SELF_PLAY = 'multi:KuhnPoker-v0(opponent="self")'


@pytest.fixture
def measures(monkeypatch, own_registry):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module("studies.kuhn_poker")
    monkeypatch.setattr(module, "HANDS", 1000)  # a third of those of a study, for time
    return module


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder of a tiny model that has seen random hands of both players."""
    path = tmp_path_factory.mktemp("kuhn") / "model"
    save_tiny(path, TinyOptions(env=(SELF_PLAY,), layers=1, warm_start_steps=60, warm_start_tokens=20_000))
    return path


class OtherSpelling:
    """A stand-in for a model. It answers in capitals, after a word, with these probabilities."""

    def __init__(self, tokenizer, chances):
        self.tokenizer, self.chances = tokenizer, chances

    async def generate(self, prompt_ids, *, max_tokens, request_id):
        text = self.tokenizer.decode(prompt_ids)
        card = next(index for index, name in enumerate(CARDS) if f"You hold the {name}" in text)
        options = ACTIONS[self.history(text)]
        bold = Random(f"{request_id}/{len(prompt_ids)}").random() < self.chances[self.history(text)][card]
        ids = self.tokenizer.encode(f"Well, \\boxed{{ {options[bold].upper()} }}", add_special_tokens=False)
        return Generation([*ids, self.tokenizer.eos_token_id], None, "stop")

    def history(self, text):
        if "You may fold or call." in text:
            return "check bet" if "You may check or bet." in text else "bet"
        return "check" if "Your opponent chose to check." in text else ""


@pytest.mark.long
def test_other_spellings_of_an_action_count_as_the_action(measures, folder):
    tokenizer = load_tokenizer(str(folder))

    def estimate(chances):
        return measures.estimate_policy(OtherSpelling(tokenizer, chances), AppendContext(tokenizer))

    bold = dict.fromkeys(ACTIONS, (1.0, 1.0, 1.0))
    always = estimate(bold)
    assert measures.nash_conv(always) == pytest.approx(measures.nash_conv(policy(bold)))
    assert measures.expected(always, always) == pytest.approx((0, 0, 0))  # a call of every bet
    # Of other draws, the estimate has the mean 0.036 and the standard deviation 0.012 at the equilibrium, and
    # 0.91 and 0.06 at the uniform policy.
    assert measures.nash_conv(estimate(CHANCES)) == pytest.approx(0.036, abs=0.05)
    uniform = dict.fromkeys(ACTIONS, (0.5, 0.5, 0.5))
    assert measures.nash_conv(estimate(uniform)) == pytest.approx(11 / 12, abs=0.24)


@pytest.mark.long
def test_the_measures_of_a_model_agree_with_its_hands(measures, folder, tmp_path):
    computed = measures.read_policy(folder)
    assert computed.keys() == policy(CHANCES).keys()
    assert all(0 < sum(actions.values()) <= 1 + 1e-6 for actions in computed.values())
    assert all({*actions} == {*ACTIONS[history]} for (_, history), actions in computed.items())
    sides = [f'multi:KuhnPoker-v0(opponent="random", agent="{player}")' for player in PLAYERS]
    config = TrainConfig(
        model=str(folder), out=str(tmp_path / "run"), env=[SELF_PLAY], eval_env=sides, kl=0.0,
        steps=1, minibatches=1, episodes_per_step=8, eval_episodes=1000, device="cpu", curve=False,
    )  # fmt: skip
    played = train(config).before
    uniform = policy(dict.fromkeys(ACTIONS, (0.5, 0.5, 0.5)))
    first = measures.expected(computed, uniform)[0]
    second = measures.expected(uniform, computed)[1]
    for label, chips in zip(played, (first, second), strict=True):
        # Four standard errors of a return whose standard deviation is at most 1.5.
        assert played[label]["gem/return"] == pytest.approx(chips, abs=4 * 1.5 / 1000**0.5)
    assert abs(first - second) > 0.1  # so that confused sides would be noticed
    measured = measures.measure(folder)
    assert measured["nash_conv"] == measures.nash_conv(computed) > 0.1
    assert measured["forfeits"] == measures.expected(computed, computed)[2]
