"""Reads the inputs of verl's loss and optimizer (see ``cpu/verl_spy.py``), and verl's log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch

from tests.trainers import evidence
from tests.trainers.evidence import Played, Row, Update, updates_of_ranks
from tests.trainers.processes import Run


def updates(spy: Path) -> list[Update]:
    """Return the optimizer's steps in order, with the rows of all ranks together."""
    return updates_of_ranks(spy, _updates_of_rank)


def _updates_of_rank(spy: Path, pid: str) -> list[Update]:
    result, rows = [], []
    for path in sorted(spy.glob(f"*-{pid}-*.pt"), key=lambda path: path.stem.split("-")[2]):
        saved = torch.load(path, weights_only=False)
        if path.name.startswith("loss"):
            columns = (
                "prompts", "responses", "response_mask", "advantages", "old_log_probs", "rollout_log_probs",
            )  # fmt: skip
            reference = saved.get("ref_log_prob") or [None] * len(saved["prompts"])
            parts = zip(*(saved[name] for name in columns), reference, strict=True)
            rows += [Row(*part) for part in parts]
        else:
            result.append(Update(rows, saved["weights"], saved["gradients"]))
            rows = []
    return result


def assert_gae_is_right(saved: Mapping[str, Sequence[Sequence[float]]], gamma: float, lam: float) -> None:
    """Check advantages over turns and targets of the critic, given its values before each token.

    Args:
        saved: Lists of shape (rows, tokens): response_mask, rm_scores, values, advantages, and returns.
        gamma: Discount per turn.
        lam: Lambda.
    """
    wanted, targets = [], []
    masks = saved["response_mask"]
    for mask, rewards, values in zip(masks, saved["rm_scores"], saved["values"], strict=True):
        starts = [place for place, on in enumerate(mask) if on and (place == 0 or not mask[place - 1])]
        advantage = following = 0.0
        row_advantages, target = [0.0] * len(mask), [0.0] * len(mask)
        for start, end in reversed([*zip(starts, [*starts[1:], len(mask)], strict=True)]):
            value = values[start]
            advantage = sum(rewards[start:end]) + gamma * following - value + gamma * lam * advantage
            following = value
            for place in (place for place in range(start, end) if mask[place]):
                row_advantages[place], target[place] = advantage, advantage + value
        wanted += row_advantages
        targets += target
    on, expected = torch.tensor([place for mask in masks for place in mask]).bool(), torch.tensor(wanted)
    expected[on] = (expected[on] - expected[on].mean()) / expected[on].std()  # like verl's own GAE
    for name, right in (("advantages", expected), ("returns", torch.tensor(targets))):
        found = torch.tensor([value for row in saved[name] for value in row])
        torch.testing.assert_close(found, right, atol=1e-4, rtol=1e-4)


def metrics_of(run: Run) -> list[dict[str, float]]:
    """Return the metrics of verl's file logger, one dict per step."""
    (path,) = run.folder.glob("gem/*.jsonl")
    return [json.loads(line)["data"] for line in path.read_text().splitlines()]


def assert_metrics_are_right(
    metrics: dict[str, float], episodes: list[Played], failed: int = 0, others: Sequence[Played] = ()
) -> None:
    """Check the common metrics of a step.

    Args:
        metrics: Metrics of the step.
        episodes: The trainable episodes of environments.
        failed: Number of further episodes, which have no row.
        others: Rows of other agent loops, which count in verl's metrics and in the statistics of ReBN.
    """
    every = [*episodes, *others]
    turns = sum(len(episode.rewards) for episode in every)
    assert metrics["rebn/turns"] == turns
    assert metrics["training/num_turns/mean"] == pytest.approx(2 * turns / len(every))
    mean = sum(sum(episode.rewards) for episode in every) / len(every)
    assert metrics["critic/score/mean"] == pytest.approx(mean, abs=1e-6)
    game_turns = sum(len(episode.rewards) for episode in episodes)
    evidence.assert_metrics_are_right({**metrics, "rebn/turns": game_turns}, episodes, failed=failed)
