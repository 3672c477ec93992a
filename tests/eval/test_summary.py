from __future__ import annotations

import itertools
import json
from statistics import stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_core.rollout._metrics import evaluation_metrics
from gem_lab.eval._summary import pass_at_k, summarize, summarize_envs
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
    with pytest.raises(ValueError, match="k=4: expected a number from 1 to 3"):
        pass_at_k(3, 1, 4)


def test_metrics_that_only_some_episodes_report():
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
    assert summarize_envs({"broken": [broken]})["overall"]["return"]["mean"] is None
    assert summarize_envs({})["overall"]["success"]["mean"] is None


def test_every_environment_counts_once():
    one = [played(seed, 1.0, True) for seed in range(30)]
    other = [played(seed, float(seed % 2)) for seed in range(10)]
    summary = summarize_envs({"one": one, "other": other})
    whole, other_env = summary["overall"], summary["envs"]["other"]
    assert summary["envs"]["one"] == summarize(one)
    assert whole["return"]["mean"] == pytest.approx(0.75)
    assert whole["return"]["se"] == pytest.approx(other_env["return"]["se"] / 2)
    assert whole["return"]["high"] - whole["return"]["low"] == pytest.approx(
        (other_env["return"]["high"] - other_env["return"]["low"]) / 2
    )
    assert (whole["success"]["mean"], whole["episodes"]) == (0.5, 40)


def test_equal_outcomes_do_not_have_an_interval_without_width():
    summary = summarize([played(seed, 1.0, True) for seed in range(3)])
    assert (summary["return"]["low"], summary["return"]["high"]) == (None, None)
    assert (round(summary["success"]["low"], 3), summary["success"]["high"]) == (0.439, 1.0)


def test_metrics_during_training_have_their_uncertainty():
    metrics = evaluation_metrics([played(seed, float(seed % 2)) for seed in range(4)])
    assert metrics["gem/return"] == 0.5
    assert metrics["gem/return_se"] == pytest.approx(stdev([0, 1, 0, 1]) / 2)
    assert metrics["gem/success_se"] == 0
    assert "gem/return_se" not in evaluation_metrics([played(0, 1.0)])
    assert evaluation_metrics([]) == {}
