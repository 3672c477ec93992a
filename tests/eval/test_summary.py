from __future__ import annotations

import itertools
import json
import math
import tracemalloc
from statistics import fmean, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_core.eval.summary import estimate, evaluation_metrics, overall, pass_at_k, summarize
from tests.eval.traces import episode, turn


def played(seed: int, reward: float, solved: bool = False, **changes):
    return episode(turn(reward, info={"success": solved}), seed=seed, **changes)


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.data())
def test_pass_at_k_is_the_share_of_all_choices_of_k_samples(outcomes, data):
    k = data.draw(st.integers(1, len(outcomes)))
    choices = list(itertools.combinations(outcomes, k))
    expected = sum(any(choice) for choice in choices) / len(choices)
    assert pass_at_k(len(outcomes), sum(outcomes), k) == pytest.approx(expected)


def test_pass_at_k_of_more_samples_than_there_are():
    with pytest.raises(ValueError, match="k must be from 1 to the 3 samples"):
        pass_at_k(3, 1, 4)


def test_mean_error_and_interval():
    values = [0.0, 1.0, 1.0, 0.5, 0.25]
    found = estimate([[value] for value in values])
    assert found["mean"] == pytest.approx(fmean(values))
    assert found["se"] == pytest.approx(stdev(values) / math.sqrt(5))
    assert 0 <= found["low"] < found["mean"] < found["high"] <= 1
    assert found == estimate([[value] for value in values])  # the same numbers again


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    random = np.random.default_rng(1)
    inside = 0
    for _ in range(200):
        found = estimate([[value] for value in random.normal(0.3, 1.0, size=60)])
        inside += found["low"] <= 0.3 <= found["high"]
    assert 178 <= inside <= 200  # 95 % of 200 is 190


def test_the_bootstrap_of_many_tasks_needs_little_memory_and_draws_the_same():
    means = np.random.default_rng(1).normal(size=3000)
    tracemalloc.start()
    try:
        found = estimate([[value] for value in means.tolist()])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 10_000_000
    picks = np.random.default_rng(0).integers(3000, size=(2000, 3000))  # 48 MB
    assert [found["low"], found["high"]] == np.quantile(means[picks].mean(axis=1), [0.025, 0.975]).tolist()


def test_samples_of_a_task_are_not_independent():
    once = estimate([[0.0], [1.0]])
    assert estimate([[0.0] * 50, [1.0] * 50]) == once
    assert estimate([[0.0, 1.0]]) == {"mean": 0.5, "se": None, "low": None, "high": None}


def test_what_some_episodes_say():
    summary = summarize(
        [
            played(0, 1.0, True),
            played(0, 0.0),
            played(1, 0.5, env_id="game:GuessTheNumber-v0-easy"),
            played(1, 0.5),
            episode(seed=2, stop_reason="env_error", terminated=False, truncated=True, error="it broke",
                    trainable=False),
            episode(seed=3, stop_reason="empty_response", terminated=False, truncated=True, trainable=False),
            episode(seed=3, stop_reason="empty_response", terminated=False, truncated=True, trainable=False),
        ]
    )  # fmt: skip
    assert (summary["episodes"], summary["tasks"], summary["errors"]) == (6, 3, 1)
    assert summary["return"]["mean"] == pytest.approx((0.5 + 0.5 + 0.0) / 3)  # no answer earns 0
    assert summary["success"]["mean"] == pytest.approx(0.5 / 3)
    assert summary["pass_at"] == {"1": pytest.approx(0.5 / 3), "2": pytest.approx(1 / 3)}
    assert summary["stop_reasons"] == {"empty_response": 2, "terminated": 4}
    assert (summary["prompt_tokens"], summary["response_tokens"]) == (12, 8)
    json.dumps(summary, allow_nan=False)


def test_tokens_of_an_endpoint_are_those_that_it_counted():
    def said(**reply):
        return turn(info={"reply": reply}, context_ids=[], response_ids=[], logprobs=None)

    counted = episode(
        said(prompt_tokens=10, response_tokens=2), said(prompt_tokens=20, response_tokens=3),
        context_mode="messages",
    )  # fmt: skip
    summary = summarize([counted])
    assert (summary["prompt_tokens"], summary["response_tokens"]) == (30, 5)
    unknown = episode(said(), context_mode="messages")
    assert summarize([counted, unknown])["prompt_tokens"] is None


def test_nothing_at_all_and_nothing_but_errors():
    assert summarize([])["return"]["mean"] is None
    broken = episode(error="it broke", trainable=False, stop_reason="env_error")
    summary = summarize([broken])
    assert (summary["errors"], summary["success"]["mean"], summary["pass_at"]) == (1, None, {})
    assert overall([summary])["return"]["mean"] is None


def test_every_environment_counts_once():
    one = summarize([played(seed, 1.0, True) for seed in range(30)])
    other = summarize([played(seed, float(seed % 2)) for seed in range(10)])
    whole = overall([one, other])
    assert whole["return"]["mean"] == pytest.approx(0.75)
    assert whole["return"]["se"] == pytest.approx(other["return"]["se"] / 2)
    assert whole["episodes"] == 40


def test_metrics_during_training_have_their_uncertainty():
    metrics = evaluation_metrics([played(seed, float(seed % 2)) for seed in range(4)])
    assert metrics["gem/return"] == 0.5
    assert metrics["gem/return_se"] == pytest.approx(stdev([0, 1, 0, 1]) / 2)
    assert metrics["gem/success_se"] == 0
    assert "gem/return_se" not in evaluation_metrics([played(0, 1.0)])
    assert evaluation_metrics([]) == {}
