"""The trainer with an agent that owns its loop: the same weights as with the own loop, bit for bit."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'train'")
pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")

from gem_lab.train import TrainConfig, train
from tests.train.helpers import EASY, LONG, options, same_weights


def episodes_in(folder: Path) -> list[dict[str, Any]]:
    """Return the episodes of training, without what the gateway adds."""
    lines = [json.loads(line) for path in sorted(folder.rglob("traces.jsonl")) for line in path.open()]
    for line in lines:
        for name in ("gateway", "gateway_log"):
            line["metadata"].pop(name, None)
    return lines


@pytest.mark.long
def test_an_agent_behind_the_gateway_trains_the_same_weights(tiny_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="needs the package openai")
    outcomes = []
    for name, harness in (("native", None), ("agent", "tests.agents.clients:guesser")):
        # One episode at a time: sums of floats depend on which prompts share a batch.
        given = options(tiny_folder, tmp_path / name, env=[EASY, LONG], steps=3, concurrency=1)
        outcomes.append(train(TrainConfig(**{**given, "harness": harness})))
    native, agent = outcomes
    assert same_weights(native.checkpoint, agent.checkpoint)
    assert not same_weights(tiny_folder, agent.checkpoint)
    mine, theirs = (episodes_in(tmp_path / name) for name in ("agent", "native"))
    assert len(theirs) > 3
    assert mine == theirs


@pytest.mark.long
def test_an_agent_that_forgets_trains_on_turn_rows(tiny_folder: Path, tmp_path: Path) -> None:
    given = options(tiny_folder, tmp_path, env=[LONG], steps=2)
    outcome = train(TrainConfig(**{**given, "harness": "tests.agents.clients:forgetful"}))
    assert not same_weights(tiny_folder, outcome.checkpoint)
    played = episodes_in(tmp_path)
    assert any(episode["context_mode"] == "rebuild" for episode in played)
    assert all(math.isfinite(metrics["train/loss"]) for metrics in outcome.history)
