"""The comparison finds faults in TRL's adapter, on the shared step up to the inputs of the loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from gem_trl import _playing, _trainer

from gem_core.advantages import ReturnStats
from gem_core.rollout import Episode
from gem_core.rollout._estimator_inputs import EpisodeTurns
from gem_core.trainers import EstimatorChoice
from gem_lab._engines.sampling import BatchingPolicy
from gem_lab.consistency import Played
from tests.consistency.assemble import turn_ids_of
from tests.consistency.faults import (
    SEEN,
    Patch,
    argument_patch,
    findings,
    own_seeds,
    read_row,
    retokenized,
    shifted,
    unpaid,
)
from tests.consistency.scenario import SAMPLES, Scenario
from tests.trainers.trl import shared

Turns = Sequence[EpisodeTurns]


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch, shared_step: Scenario) -> None:
    shared.answer_from_script(monkeypatch, shared_step.script)


def step(made: Scenario, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Played]:
    """Generate and score the rows of the step; return them as the loss would receive them."""
    consumed: list[EpisodeTurns] = []
    compute = EstimatorChoice.compute_turns

    def noting(self: Any, episodes: Turns, group_ids: Any) -> Any:
        consumed.extend(episodes)
        return compute(self, episodes, group_ids)

    monkeypatch.setattr(EstimatorChoice, "compute_turns", noting)
    training = shared.make_trainer(folder, made)
    training.model.train()
    rows = [row for row in training.train_dataset for _ in range(SAMPLES)]
    batch = training._generate_and_score_completions(rows)
    found = []
    for index, (episode, turns) in enumerate(zip(training.rollouts[0], consumed, strict=True)):
        width = int(batch["completion_mask"][index].sum())
        prompt = batch["prompt_ids"][index][batch["prompt_mask"][index].bool()].tolist()
        mask = [0] * len(prompt) + batch["tool_mask"][index][:width].tolist()
        advantages = [0.0] * len(prompt) + batch["advantages"][index][:width].tolist()
        tokens = prompt + batch["completion_ids"][index][:width].tolist()
        rewards = token_rewards(mask, turns.rewards)
        found.append(read_row(episode, tokens, mask, rewards, advantages))
    return found


def token_rewards(mask: Sequence[int], rewards: Sequence[float]) -> list[float]:
    """Return the reward of each turn on its first token."""
    ids = turn_ids_of(mask)
    return [rewards[turn] if turn >= 0 and turn not in ids[:place] else 0.0 for place, turn in enumerate(ids)]


def computing(change: Callable[[Any, Any, Turns, Any], Any]) -> Patch:
    """Return a fault in the computation of the advantages of all turns."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        original = EstimatorChoice.compute_turns
        monkeypatch.setattr(
            EstimatorChoice,
            "compute_turns",
            lambda self, turns, groups: change(original, self, turns, groups),
        )

    return patch


def per_token(original: Any, choice: Any, episodes: Turns, groups: Any) -> Any:
    """Treat each token as a turn; each turn gets the advantage of its first token."""
    tokens = []
    for episode in episodes:
        rewards = [
            reward * (place == length - 1)
            for reward, length in zip(episode.rewards, episode.lengths, strict=True)
            for place in range(length)
        ]
        tokens.append(EpisodeTurns(rewards, [1] * len(rewards), episode.env_id))
    values, stats = original(choice, tokens, groups)
    starts = [[0, *accumulate(episode.lengths)][: len(episode.lengths)] for episode in episodes]
    return [of[start] for of, start in zip(values, starts, strict=True)], stats


def sample_std(original: Any, choice: Any, episodes: Turns, groups: Any) -> Any:
    return original(replace(choice, options={**choice.options, "ddof": 1}), episodes, groups)


def subsampled(original: Any, choice: Any, episodes: Turns, groups: Any) -> Any:
    """Normalize by the statistics of every other episode."""
    values, every = original(choice, episodes, groups)
    half: ReturnStats = original(choice, episodes[::2], groups[::2])[1]
    return [(of * every.std() + every.mean - half.mean) / half.std() for of in values], every


def played_as(change: Callable[[Episode], Episode]) -> Patch:
    """Return a fault in the episodes of a rollout."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        original = _playing.Rollout._play

        async def changed(self: Any, *args: Any) -> list[Episode]:
            return [change(episode) for episode in await original(self, *args)]

        monkeypatch.setattr(_playing.Rollout, "_play", changed)

    return patch


def test_the_step_matches_gem_core(
    shared_step: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert findings(shared_step, lambda: step(shared_step, tmp_path, monkeypatch)) == set()


@pytest.mark.parametrize("fault", SEEN)
def test_a_fault_is_found(
    fault: str, shared_step: Scenario, shared_tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patches: dict[str, Patch] = {
        "discount per token": computing(per_token),
        "sample standard deviation": computing(sample_std),
        "statistics after subsampling": computing(subsampled),
        "mask shifted by one": played_as(shifted),
        "last reward dropped": argument_patch(_trainer.EpisodeTurns, "of", unpaid),
        "response re-tokenized": retokenized(BatchingPolicy, shared_tokenizer),
        "group with different seeds": own_seeds(_playing, "prompt_task"),
    }
    patches[fault](monkeypatch)
    assert findings(shared_step, lambda: step(shared_step, tmp_path, monkeypatch)) >= SEEN[fault]
