"""A coding agent, a program in a process of its own, trains in TRL: rows, advantages, and the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from gem_trl._dataset import tasks
from transformers import AutoTokenizer

pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")

from gem_core.rollout import Generation
from gem_envs.sandbox import self_check
from gem_lab._engines.sampling import BatchingPolicy
from gem_lab.train._batches import policy_gradient
from tests.trainers import coder
from tests.trainers.evidence import oracle
from tests.trainers.trl import harness

TASKS = "terminal:Files-v0"
LOOK, SUBMIT = "I look.\n```bash\nls\n```", "```bash\nsubmit\n```"
PLANS = (["I think about it.", LOOK, SUBMIT], [LOOK, SUBMIT], ["Well.", "Hm.", SUBMIT])
"""What the policy says in the episodes; without a command, a turn costs a tenth."""


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The tokenizer; the policy follows `PLANS`, letter by letter."""
    tokenizer = AutoTokenizer.from_pretrained(harness.MODEL)

    async def generate(self: Any, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Any:
        prompt = tokenizer.decode(list(prompt_ids))
        said = "a small task"
        if coder.TITLE not in prompt:  # the second row of the episode
            plan = PLANS[int(request_id.split("/")[-2]) % len(PLANS)]
            said = plan[sum(text in prompt for text in plan)]
        ids = [id for letter in said for id in tokenizer.encode(letter)] + [tokenizer.eos_token_id]
        return Generation(ids[:max_tokens], [-1.0] * len(ids), "stop")

    monkeypatch.setattr(BatchingPolicy, "generate", generate)
    return tokenizer


@pytest.mark.skipif(not self_check()["namespace"].available, reason=self_check()["namespace"].reason)
def test_a_step_has_the_gradient_of_the_oracle(words: Any, tmp_path: Path, model: Any) -> None:
    trainer = harness.Spied(
        harness.MODEL,
        args=harness.config(tmp_path, max_steps=1, max_completion_length=2000, loss_type="dapo", beta=0.0),
        gem=harness.gem(harness="tests.trainers.coder:CODER_WITH_TITLE", max_turns=6, max_tokens_per_turn=64),
        train_dataset=tasks([TASKS], 8),
    )
    trainer.train()
    (episodes,) = trainer.rollouts
    assert len(episodes) == 8

    # Each call is a turn with its own reward; the title is a row of its own.
    for episode in episodes:
        title, *said = [words.decode(turn.response_ids[:-1]) for turn in episode.turns]
        assert title == "a small task"
        assert said in PLANS
        wanted = [0.0, *(0.0 if "```" in text else -0.1 for text in said)]
        assert episode.rewards == pytest.approx(wanted)
        assert len(episode.rows()) == 2
        assert episode.metadata["gateway"]["recognized"] == len(said) * (len(said) - 1) // 2
    assert len({tuple(episode.rewards) for episode in episodes}) == len(PLANS)

    assert_step_is_that_of_the_oracle(trainer, model)


def assert_step_is_that_of_the_oracle(trainer: harness.Spied, model: Any) -> None:
    """Check rows, advantages of each call, and the gradient of a step of one rollout."""
    (episodes,), (update,) = trainer.rollouts, trainer.updates
    for episode, values in zip(episodes, oracle([e.rewards for e in episodes], harness.GAMMA), strict=True):
        for turn, advantage in zip(episode.turns, values, strict=True):
            turn.advantage = float(advantage)
    trained: dict[tuple[int, ...], list[list[float]]] = {}
    for row in update.rows:
        if any(row.mask):
            trained.setdefault((*row.prompt, *row.response), []).append(row.advantages)
    for episode in episodes:
        for row in episode.rows():
            advantages = [
                0.0 if turn < 0 else episode.turns[row.turns[turn]].advantage or 0.0 for turn in row.turn_ids
            ]
            wanted_row = pytest.approx(advantages[row.prompt_length :], abs=1e-5)
            found = trained[tuple(row.token_ids)]
            (index,) = [n for n, values in enumerate(found) if values == wanted_row][:1]
            del found[index]
    assert not any(trained.values())

    reference = policy_gradient(model, episodes, rows="turn")
    names = [name for name, _ in trainer.model.named_parameters()]
    gradients = dict(zip(names, update.gradients, strict=True))
    flat = [torch.cat([of[name].flatten() for name in reference]) for of in (gradients, reference)]
    assert float(flat[1].norm()) > 0
    assert float((flat[0] - flat[1]).norm() / flat[1].norm()) < 1e-5
