"""A run in which every call of the environment sometimes raises or hangs, compared with an exact oracle."""

from __future__ import annotations

import collections
import itertools
from fractions import Fraction

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

from gem_core.rollout import read_traces  # noqa: E402
from gem_lab.train import TrainConfig, train  # noqa: E402
from tests.advantages.oracle import standardized, turn_returns  # noqa: E402
from tests.train.helpers import options  # noqa: E402
from tests.trainers.spies import gem_trouble  # noqa: E402

CHAOS = "test:Chaos-v0(min_number=1, max_number=3, max_turns=2, hang=1.5)"
GAMMA = 0.9


def rebn(episodes):
    """Compare each turn's return with all turns of the step."""
    returns = [turn_returns(episode.rewards, GAMMA) for episode in episodes]
    everything = [value for values in returns for value in values]
    return [standardized(values, everything, 0, 1e-8, 1e-6) for values in returns]


def rloo(episodes):
    """Compare each episode's return with the mean of the other episodes of its group."""
    returns = [turn_returns(episode.rewards, GAMMA)[0] for episode in episodes]
    groups = [episode.metadata["group"] for episode in episodes]
    advantages = []
    for index, episode in enumerate(episodes):
        others = [r for n, r in enumerate(returns) if groups[n] == groups[index] and n != index]
        gap = returns[index] - sum(others, Fraction(0)) / len(others) if others else Fraction(0)
        advantages.append([float(gap)] * len(episode.turns))
    return advantages


@pytest.mark.parametrize(
    ("estimator", "oracle", "on_env_error"), [("rebn", rebn, "mask"), ("rloo", rloo, "retry")]
)
def test_chaos(estimator, oracle, on_env_error, tiny_folder, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("GEM_CHAOS", str(tmp_path))
    monkeypatch.setattr(gem_trouble, "_resets", collections.Counter())
    monkeypatch.setattr(gem_trouble, "_instances", itertools.count())
    gem_trouble.register()
    config = options(
        tiny_folder, tmp_path / "run", env=[CHAOS], estimator=estimator, group_size=4, episodes_per_step=24,
        gamma=GAMMA, on_env_error=on_env_error, step_timeout=0.7, trace_every=1, trace_episodes=24,
        eval_episodes=0,
    )  # fmt: skip
    outcome = train(TrainConfig(**config))
    episodes = list(read_traces(tmp_path / "run" / "traces.jsonl"))
    counts = gem_trouble.chaos_counts(tmp_path)
    assert {kind for _, kind in counts} == {"raise", "hang"}
    failed = [episode for episode in episodes if not episode.trainable]
    attempts = sum(episode.env_retries for episode in episodes)
    # Failures are counted once per attempt; on a busy machine a correct call may be late, too.
    planted = sum(n for (call, _), n in counts.items() if call != "close")
    assert 8 < planted <= len(failed) + attempts <= planted + 3
    assert (attempts > len(failed)) == (on_env_error == "retry")
    for metrics in outcome.history:
        mine = [episode for episode in episodes if episode.metadata["step"] == metrics["step"]]
        assert len(mine) == 24
        played = [episode for episode in mine if episode.trainable]
        assert metrics["gem/error_rate"] == pytest.approx(1 - len(played) / 24)
        assert metrics["gem/retry_rate"] == pytest.approx(sum(e.env_retries > 0 for e in mine) / 24)
        assert metrics["gem/return"] == pytest.approx(sum(e.total_reward for e in played) / len(played))
        assert metrics["rebn/turns"] == sum(len(episode.turns) for episode in played)
        for episode, expected in zip(played, oracle(played), strict=True):
            assert [turn.advantage for turn in episode.turns] == pytest.approx(expected, abs=1e-6)
        if len(played) < 24:
            said = f"step {metrics['step']}: {24 - len(played)} of 24 episodes cannot be trained on"
            assert said in caplog.text
    assert all(turn.advantage is None for episode in failed for turn in episode.turns)
