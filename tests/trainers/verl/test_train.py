"""verl's own trainer and engine with a tiny model: what its loss consumes is what it should be."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from gem_core.train.objective import policy_gradient
from tests.trainers.verl import evidence, harness

pytestmark = [
    pytest.mark.skipif(not os.environ.get("GEM_CORE_VERL"), reason="runs the trainer: `nox -s verl` does"),
    pytest.mark.timeout(1200),
]
GAMMA = 0.9


def assert_update_is_right(
    update: evidence.Update, episodes: dict[str, evidence.Played], tokenizer: Any, model: Any
) -> int:
    """Rows, advantages, gradient and weights of one update; returns the number of turns in it."""
    rows = [row for row in update.rows if not row.is_pad]
    mine = [episodes[evidence.name_in(row.prompt, tokenizer)] for row in rows]
    wanted = evidence.oracle(mine, GAMMA)
    largest = max(1.0, *(abs(a) for advantages in wanted for a in advantages))
    for row, episode, advantages in zip(rows, mine, wanted, strict=True):
        assert row.prompt + row.response == episode.token_ids
        turns = episode.turns[episode.prompt_length :]
        assert [int(m) for m in row.mask] == [int(turn >= 0) for turn in turns]
        expected = [advantages[turn] if turn >= 0 else 0.0 for turn in turns]
        assert row.advantages == pytest.approx(expected, abs=1e-5 * largest)
        sampled = [p for request in episode.requests for p in request["logprobs"]]
        on = [n for n, m in enumerate(row.mask) if m]
        assert [row.rollout[n] for n in on] == pytest.approx(sampled, abs=1e-6)
        assert max(abs(math.exp(row.old[n]) - math.exp(row.rollout[n])) for n in on) <= 1e-3
    for row in update.rows:
        if row.is_pad:
            assert not any(row.advantages)
    load(model, update.weights)
    made = [episode.episode(advantages) for episode, advantages in zip(mine, wanted, strict=True)]
    gradient = list(policy_gradient(model, made).values())
    assert evidence.cosine(update.gradients, gradient) >= 0.99
    return sum(len(episode.rewards) for episode in mine)


def load(model: Any, weights: list[Any]) -> None:
    import torch

    with torch.no_grad():
        for parameter, value in zip(model.parameters(), weights, strict=True):
            parameter.copy_(value)


def metrics_of(run: harness.Run) -> list[dict[str, float]]:
    (path,) = run.folder.glob("gem/*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def model(warm: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(warm, attn_implementation="eager").float()


@pytest.fixture(scope="module")
def warm_tokenizer(warm: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(warm)


def test_three_steps_on_a_mix(tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any) -> None:
    run = harness.run_verl(tmp_path, warm, "trainer.v1.trainer_mode=gem_sync").check()
    episodes = evidence.played(run.spy, warm_tokenizer)
    updates = evidence.updates(run.spy)
    assert len(updates) == 3
    turns = [assert_update_is_right(update, episodes, warm_tokenizer, model) for update in updates]
    assert all(len(update.rows) == 8 for update in updates)
    assert any(len(episodes[name].rewards) > 1 for name in episodes)
    print(json.dumps(metrics_of(run), indent=1))
    assert turns
