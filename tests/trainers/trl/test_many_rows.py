"""Episodes of several rows in TRL's own trainer: tokens, advantages, and the gradient of one row per turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gem_trl._dataset import tasks
from gem_trl._playing import Rollout, rollout
from gem_trl._trainer import GemGRPOTrainer
from transformers import AutoTokenizer

from gem_core.errors import ConfigError
from gem_core.rollout import Episode
from gem_lab.train._batches import policy_gradient
from tests.trainers.evidence import oracle
from tests.trainers.trl import harness
from tests.trainers.trl.test_own_rows import questions

FAILED = 3
"""The episode of a rollout that is made untrainable."""


def rewritten(episode: Episode) -> Episode:
    """Return the episode as if turn 2 had a prompt without turn 0, which later turns continue."""
    if len(episode.turns) > 2:
        prompt, first = episode.prompts()[2], episode.turns[0]
        start = len(first.context_ids)
        shortened = prompt[: start - 3] + prompt[start + len(first.response_ids) :]
        episode.turns[2].parent, episode.turns[2].context_ids = None, shortened
    return episode


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewrite the history in two of four episodes, and let one fail."""
    play = Rollout._play

    async def changed(self: Any, *given: Any) -> list[Episode]:
        episodes = await play(self, *given)
        episodes[FAILED].trainable, episodes[FAILED].error = False, "failed"
        if self._gem.context == "template":  # which rewrites the history itself
            return episodes
        return [rewritten(episode) if n % 4 < 2 else episode for n, episode in enumerate(episodes)]

    monkeypatch.setattr(Rollout, "_play", changed)


def weights(loss_type: str, length: int, episodes: list[Episode]) -> list[float]:
    """Return the weight of each episode's tokens in TRL's loss if each episode is one row."""
    tokens = sum(episode.num_response_tokens for episode in episodes)
    return [
        {
            "dapo": 1 / tokens,
            "grpo": 1 / (len(episodes) * episode.num_response_tokens),
            "dr_grpo": 1 / (len(episodes) * length),
        }[loss_type]
        for episode in episodes
    ]


TEMPLATE = (
    "{{ '<|system|>later<|end|>' if messages | length > 3 }}"
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
    "{{ '<|assistant|>' if add_generation_prompt }}"
)
"""Rewrites the history once it has more than one turn."""


def require_prompts(episodes: list[Episode]) -> None:
    """Require that each prompt is the template's own rendering of the history."""
    tokenizer = AutoTokenizer.from_pretrained(harness.MODEL)
    for episode in episodes:
        messages: list[dict[str, str]] = []
        for turn, prompt in zip(episode.turns, episode.prompts(), strict=True):
            messages.append({"role": "user", "content": str(turn.observation)})
            text = tokenizer.apply_chat_template(
                messages, chat_template=TEMPLATE, tokenize=False, add_generation_prompt=True
            )
            assert prompt == tokenizer.encode(text, add_special_tokens=False)
            ended = turn.response_ids[-1] == tokenizer.eos_token_id
            said = tokenizer.decode(turn.response_ids[: len(turn.response_ids) - ended])
            messages.append({"role": "assistant", "content": said})
    assert {len(episode.rows()) for episode in episodes if len(episode.turns) > 2} == {2}


@pytest.mark.parametrize(
    ("loss_type", "context"),
    [
        ("dapo", "append"),
        ("grpo", "append"),
        ("dr_grpo", "append"),
        ("dapo", "template"),
        ("grpo", "template"),
    ],
)
def test_a_step_has_the_gradient_of_one_row_per_turn(
    loss_type: str, context: Any, tmp_path: Path, model: Any
) -> None:
    config = harness.config(tmp_path, max_steps=1, loss_type=loss_type, beta=0.0)
    trainer = harness.Spied(
        harness.MODEL,
        args=config,
        gem=harness.gem(
            max_turns=5, context=context, chat_template=TEMPLATE if context == "template" else None
        ),
        train_dataset=tasks([harness.GAME], 8),
    )
    harness.played_before(trainer, harness.GAME)
    trainer.train()
    episodes = [episode for episode in trainer.rollouts[0] if episode.trainable]
    assert len(episodes) == len(trainer.rollouts[0]) - 1 == 7
    wanted = [(episode, row) for episode in episodes for row in episode.rows()]
    assert len(wanted) > len(episodes)
    if context == "template":
        require_prompts(episodes)
    for episode, values in zip(episodes, oracle([e.rewards for e in episodes], harness.GAMMA), strict=True):
        for turn, advantage in zip(episode.turns, values, strict=True):
            turn.advantage = float(advantage)

    # Each row once, token by token, and rows that fill the batch without a loss.
    (update,) = trainer.updates
    trained = {(*row.prompt, *row.response): row for row in update.rows if any(row.mask)}
    assert len(update.rows) % 2 == 0
    assert len(trained) == sum(any(row.mask) for row in update.rows) == len(wanted)
    shares = dict(
        zip(map(id, episodes), weights(loss_type, config.max_completion_length, episodes), strict=True)
    )
    rows, tokens = len(wanted), sum(episode.num_response_tokens for episode in episodes)
    for episode, row in wanted:
        found = trained[tuple(row.token_ids)]
        length = sum(row.response_mask)
        row_tokens = {"dapo": tokens, "grpo": rows * length, "dr_grpo": rows * config.max_completion_length}[
            loss_type
        ]
        factor = shares[id(episode)] * row_tokens
        advantages = [0.0 if t < 0 else episode.turns[row.turns[t]].advantage or 0.0 for t in row.turn_ids]
        assert found.advantages == pytest.approx(
            [value * factor for value in advantages[row.prompt_length :]], abs=1e-5
        )

    # The gradient is the reference's, computed from a row for each turn.
    for episode in episodes:
        for turn in episode.turns:
            turn.advantage = (turn.advantage or 0.0) * shares[id(episode)] * tokens
    reference = policy_gradient(model, episodes, rows="turn")
    names = [name for name, _ in trainer.model.named_parameters()]
    gradients = dict(zip(names, update.gradients, strict=True))
    flat = [torch.cat([of[name].flatten() for name in reference]) for of in (gradients, reference)]
    assert float((flat[0] - flat[1]).norm() / flat[1].norm()) < 1e-5


def test_an_evaluation(tmp_path: Path) -> None:
    trainer = harness.Spied(
        harness.MODEL,
        args=harness.config(tmp_path, per_device_eval_batch_size=4),
        gem=harness.gem(max_turns=5),
        train_dataset=tasks([harness.GAME], 8),
        eval_dataset=tasks([harness.GAME], 4, split="eval"),
    )
    logs = trainer.evaluate()
    assert logs["eval_gem/turns"] > 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss_type": "bnpo"}, "loss_type=bnpo: with several rows"),
        ({"loss_type": "grpo", "beta": 0.1}, "beta=0.1: with several rows"),
        ({"importance_sampling_level": "sequence"}, "importance_sampling_level=sequence: with several rows"),
        ({"off_policy_mask_threshold": 0.5}, "off_policy_mask_threshold=0.5: with several rows"),
        (
            {"use_vllm": True, "vllm_mode": "colocate", "vllm_importance_sampling_mode": "sequence_mask"},
            "vllm_importance_sampling_mode=sequence_mask: with several rows",
        ),
    ],
)
def test_what_depends_on_rows_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    config = harness.config(tmp_path, **{"beta": 0.0, **changes})
    with pytest.raises(ConfigError, match=message):
        GemGRPOTrainer(
            "no model",
            args=config,
            gem=harness.gem(context="rebuild"),
            train_dataset=tasks([harness.GAME], 8),
        )


def test_a_rebuilt_context_needs_our_trainer_without_reward_functions(tmp_path: Path) -> None:
    options = harness.gem(context="rebuild")
    with pytest.raises(
        ConfigError, match="several rows, but TRL's own advantages take each row for an episode"
    ):
        rollout(options)
    for dataset in (questions(), [questions(), harness.GAME]):
        with pytest.raises(ConfigError, match="several rows, but reward functions score rows; use append"):
            GemGRPOTrainer(
                "no model", lambda completions, **_: [0.0] * len(completions), gem=options,
                args=harness.config(tmp_path), train_dataset=dataset,
            )  # fmt: skip
