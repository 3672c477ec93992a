from __future__ import annotations

from typing import Any

import pytest

from gem_core.rollout import Episode, Turn, episode_metrics
from gem_core.rollout._metrics import HARNESS_METRICS, METRICS, without_tokens


def episode(
    *turns: tuple[float, dict[str, Any]], trainable: bool = True, truncated: bool = False, retries: int = 0
) -> Episode:
    rows = [Turn([1], [2], None, reward, "", "", "stop", info) for reward, info in turns]
    stop = "max_turns" if truncated else "terminated"
    return Episode(
        "x", 0, rows, not truncated, truncated, stop, trainable=trainable, env_retries=retries  # type: ignore[arg-type]
    )  # fmt: skip


def test_means_over_trainable_episodes() -> None:
    metrics = episode_metrics(
        [
            episode(
                (0.5, {"use_tool": True, "tool_error": "no"}), (1.0, {"success": True, "metrics": {"a": 2}})
            ),
            episode(
                (0.0, {"invalid": "format", "forged_tokens": 3}), (0.0, {"invalid": "length"}), truncated=True
            ),
            episode(
                (0.0, {"invalid": "illegal", "use_tool": True}), (0.0, {}), (-0.5, {"metrics": {"a": 4}})
            ),
            episode((9.0, {"success": True, "invalid": "format"}), trainable=False, retries=2),
        ]
    )
    assert metrics == pytest.approx(
        {
            "gem/error_rate": 1 / 4,
            "gem/retry_rate": 1 / 4,
            "gem/return": 1 / 3,
            "gem/success": 1 / 3,
            "gem/turns": 7 / 3,
            "gem/turns_to_success": 2.0,
            "gem/truncation_rate": 1 / 3,
            "gem/format_error_rate": 2 / 7,
            "gem/tool_calls": 2 / 3,
            "gem/tool_errors": 1 / 3,
            "gem/forged_tokens": 3 / 3,
            "gem/env/a": 3.0,
        }
    )
    assert all(type(value) is float for value in metrics.values())
    assert sorted(METRICS) == sorted(metrics.keys() - {"gem/env/a"})


def test_without_trainable_episodes_only_failures_and_retries_are_known() -> None:
    given = [episode(trainable=False), episode(trainable=False, retries=1)]
    assert episode_metrics(given) == {"gem/error_rate": 1.0, "gem/retry_rate": 0.5}
    assert episode_metrics([]) == {}


def test_what_a_harness_loses_is_a_metric_that_outlines_keep() -> None:
    given = [episode((1.0, {})), episode((1.0, {})), episode(trainable=False)]
    counts = {"recognized": 2, "spliced": 1, "foreign": 1, "rows": 2, "lost": 1, "refused": 3}
    given[0].metadata["gateway"] = counts
    given[2].metadata |= {"gateway": dict.fromkeys(counts, 0), "harness_error": "it crashed", "step": 3}
    for episodes in (given, [without_tokens(one) for one in given]):
        metrics = episode_metrics(episodes)
        assert {name: metrics[name] for name in HARNESS_METRICS} == {
            "gem/recognized": (3 / 4 + 1) / 2,
            "gem/foreign_answers": 0.5,
            "gem/rows": 1.0,
            "gem/lost": 0.5,
            "gem/refused": 1.5,
            "gem/harness_errors": 0.5,
        }
    assert not set(episode_metrics(given[1:2])) & {*HARNESS_METRICS}


def test_an_environment_metric_that_is_not_a_number_is_omitted() -> None:
    given = [
        {"level": "hard", "a": 2},
        {"level": None, "a": [1]},
        {"a": True, "b": float("nan")},
        "hard",
        None,
    ]
    metrics = episode_metrics([episode((1.0, {"metrics": one})) for one in given])
    assert {name: value for name, value in metrics.items() if name.startswith("gem/env/")} == {
        "gem/env/a": 1.5
    }
