"""The shared step of all trainers in TRL's own trainer, in this process."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from gem_trl._config import GemConfig
from gem_trl._dataset import task_prompt

from gem_core.rollout import Episode, Generation
from gem_core.rollout._metrics import without_tokens
from gem_core.tasks import TaskRow
from gem_lab._engines.sampling import BatchingPolicy
from gem_lab.consistency import Played
from tests.consistency import scenario
from tests.consistency.assemble import episode_of, turn_ids_of
from tests.consistency.scenario import Scenario
from tests.trainers.spies.gem_script import Script
from tests.trainers.trl import harness

OPTIONS = GemConfig(
    gamma=scenario.GAMMA,
    max_turns=scenario.MAX_TURNS,
    max_tokens_per_turn=scenario.TOKENS_PER_TURN,
    max_total_tokens=scenario.TOKENS,
    wrappers="named",
)


def settings(**changes: Any) -> dict[str, Any]:
    """Return TRL's settings for the step: one update on all episodes."""
    return {
        "per_device_train_batch_size": scenario.TASKS * scenario.SAMPLES,
        "gradient_accumulation_steps": 1,
        "num_generations": scenario.SAMPLES,
        "max_completion_length": 4096,
        "max_steps": 1,
        "shuffle_dataset": False,
        **changes,
    }


ROWS = {"loss_type": "grpo", "beta": 0.0}
"""TRL's settings for several rows per episode: the mean over rows of the means over their tokens."""


def row_options(shared: Scenario) -> GemConfig:
    """Return the options of the step with several rows per episode."""
    return replace(OPTIONS, context="template", chat_template=str(shared.rows_template))


def make_trainer(
    folder: Path, shared: Scenario, options: GemConfig = OPTIONS, **changes: Any
) -> harness.Spied:
    trainer = harness.Spied(
        str(shared.model),
        args=harness.config(folder, **settings(**changes)),
        train_dataset=Dataset.from_list([task_prompt(task) for task in scenario.tasks()]),
        gem=options,
    )
    harness.played_before(trainer, "test:Raises")
    return trainer


def answer_from_script(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Let the sampler answer from a script instead of the model."""
    scripted = scenario.Scripted(Script(path))

    async def generate(self: Any, prompt_ids: Any, *, max_tokens: int, request_id: str) -> Generation:
        return await scripted.generate(prompt_ids, max_tokens=max_tokens, request_id=request_id)

    monkeypatch.setattr(BatchingPolicy, "generate", generate)


def carried(episodes: Iterable[Episode]) -> list[tuple[list[int], Episode]]:
    """Return tokens of the first row and outline of each episode, as `tests.consistency.assemble` needs."""
    return [
        (episode.rows()[0].token_ids if episode.trainable else [], without_tokens(episode))
        for episode in episodes
    ]


def replay(trainer: Any, episodes: list[Played]) -> list[list[float]]:
    """Return the advantage of each turn that a trainer computes for played episodes.

    Args:
        trainer: A `GRPOTrainer` with the rollout of gem_trl, which returns these episodes.
        episodes: Trainable episodes, with the samples of a task next to each other.
    """

    async def play(*unused: Any) -> list[Episode]:
        return [episode_of(played) for played in episodes]

    trainer.rollout_func._play = play
    rows = [task_prompt(TaskRow(env_id=p.env_id, env_kwargs={}, seed=p.seed, index=0)) for p in episodes]
    output = trainer._generate_and_score_completions(rows)
    mask = output["completion_mask"] * output["tool_mask"]
    advantages = output["advantages"]
    if advantages.dim() == 1:
        advantages = advantages[:, None].expand_as(mask)
    found = []
    for on, row in zip(mask.tolist(), advantages.tolist(), strict=True):
        turns = {turn: value for turn, value in zip(turn_ids_of(on), row, strict=True) if turn >= 0}
        spread = [
            {value for turn, value in zip(turn_ids_of(on), row, strict=True) if turn == number}
            for number in turns
        ]
        assert all(len(values) == 1 for values in spread), "the tokens of a turn have different advantages"
        found.append(list(turns.values()))
    return found


def tokens_of(turn_values: list[float], played: Played) -> list[float]:
    """Return a value for each token of a row; that of another token than a response is arbitrary."""
    return [turn_values[turn] for turn in itertools.accumulate(played.turn_ids, max, initial=0)][1:]
