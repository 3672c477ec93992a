"""Seven faults that adapters have had or could have, to test whether the comparison finds them.

A trainer's test takes the shared step through its adapter in this process, once unmodified and once per
fault; a table maps each fault to a patch of that adapter.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
import torch

from gem_core.rollout import Episode, Generation, Turn
from gem_lab.consistency import Played, Record, compare
from tests.consistency.assemble import turn_ids_of
from tests.consistency.scenario import Scenario
from tests.trainers.spies.gem_script import NotInScript

ENGINE, ROLLOUT, ADVANTAGES = "engine", "rollout", "advantages"

SEEN = {
    "discount per token": {ADVANTAGES},
    "sample standard deviation": {ADVANTAGES},
    "statistics after subsampling": {ADVANTAGES},
    "mask shifted by one": {ROLLOUT},
    "last reward dropped": {ROLLOUT, ADVANTAGES},
    "response re-tokenized": {ENGINE},
    "group with different seeds": {ENGINE},
}
"""Where the suite finds each fault: at an engine that receives a prompt which gem_core does not send, or at a
level of the comparison. After a wrong prompt nothing else is compared."""

Patch: TypeAlias = Callable[[pytest.MonkeyPatch], None]
Step: TypeAlias = Callable[[], list[Played]]


def findings(
    made: Scenario,
    step: Step,
    *,
    reference: str = "core",
    not_carried: Mapping[str, str] | None = None,
) -> set[str]:
    """Return where the suite finds faults in a step; empty if it equals gem_core's step."""
    try:
        episodes = step()
    except Exception as error:
        if not any(isinstance(cause, NotInScript) for cause in _causes(error)):
            raise
        return {ENGINE}
    record = Record("mine", {}, "", made.model_hash(), episodes, reference, dict(not_carried or {}))
    levels = compare(made.core(reference), record).levels
    return {name for number, name in ((1, ROLLOUT), (2, ADVANTAGES)) if levels[number].equal is False}


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def read_row(
    outline: Episode,
    tokens: Sequence[int],
    mask: Sequence[float],
    rewards: Sequence[float],
    advantages: Sequence[float],
) -> Played:
    """Return an episode from its row in a trainer's batch, without padding.

    Args:
        outline: Outline of the episode: the task, and how it ended.
        tokens: Token ids of the row.
        mask: 1 for each token in the loss, otherwise 0.
        rewards: Reward of each token.
        advantages: Advantage of each token, as the loss consumes it.
    """
    made = Played(outline.env_id, outline.seed or 0, outline.trainable)
    made.copy_outcome(outline)
    if outline.trainable:
        made.token_ids = list(tokens)
        made.turn_ids = turn_ids_of([int(on) for on in mask])
        by_turn = [0.0] * (max(made.turn_ids) + 1)
        for turn, reward in zip(made.turn_ids, rewards, strict=True):
            if turn >= 0:
                by_turn[turn] += reward
        made.rewards = by_turn
        made.read_advantages(advantages)
    return made


class Faulty:
    """An estimator whose form for tensors is changed."""

    def __init__(self, estimator: Any, change: Callable[[Any], Any]) -> None:
        self._estimator = estimator
        self.tensors = change(estimator.tensors)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._estimator, name)


def estimator_patch(module: Any, change: Callable[[Any], Any]) -> Patch:
    """Return a fault in the estimator that a module of an adapter looks up."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        original = module.get_estimator

        def changed(name: str) -> Any:
            return Faulty(original(name), change)

        monkeypatch.setattr(module, "get_estimator", changed)

    return patch


def per_token(function: Any) -> Any:
    """Discount per response token instead of per turn."""

    def changed(rewards: torch.Tensor, mask: torch.Tensor, turn_ids: Any = None, **options: Any) -> Any:
        on = mask != 0
        each = torch.where(on, on.long().cumsum(1) - 1, -1)
        return function(rewards, mask, turn_ids=each, **options)

    return changed


def sample_std(function: Any) -> Any:
    """Use the standard deviation of a sample instead of the population."""
    return functools.partial(function, ddof=1)


def subsampled(function: Any) -> Any:
    """Compute the statistics of every other row only."""

    def changed(rewards: torch.Tensor, mask: torch.Tensor, turn_ids: Any = None, **options: Any) -> Any:
        half = None if turn_ids is None else turn_ids[::2]
        stats = function(rewards[::2], mask[::2], turn_ids=half, **options).stats
        return function(rewards, mask, turn_ids=turn_ids, stats=stats, **options)

    return changed


def estimator_patches(module: Any) -> dict[str, Patch]:
    """Return the faults of an estimator that a module looks up by name and applies to whole episodes."""
    return {
        "discount per token": estimator_patch(module, per_token),
        "sample standard deviation": estimator_patch(module, sample_std),
        "statistics after subsampling": estimator_patch(module, subsampled),
    }


def argument_patch(module: Any, name: str, change: Callable[[Any], Any]) -> Patch:
    """Return a fault in the first argument of a function of an adapter."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        original = getattr(module, name)
        monkeypatch.setattr(module, name, lambda first, *rest, **more: original(change(first), *rest, **more))

    return patch


def shifted(episode: Episode) -> Episode:
    """Shift the first response of an episode with several turns by one token."""
    if len(episode.turns) < 2 or not episode.trainable:
        return episode
    first, second, *rest = episode.turns
    early, late = first.response_ids[:1], second.context_ids[:1]
    first = replace(first, context_ids=first.context_ids + early, response_ids=first.response_ids[1:] + late)
    return replace(episode, turns=[first, replace(second, context_ids=second.context_ids[1:]), *rest])


def unpaid(episode: Episode) -> Episode:
    """Set the reward of the last turn to 0."""
    if not episode.trainable:
        return episode
    turns: list[Turn] = [*episode.turns[:-1], replace(episode.turns[-1], reward=0.0)]
    return replace(episode, turns=turns)


def retokenized(kind: Any, tokenizer: Any) -> Patch:
    """Return a fault in an adapter's policy, which decodes the sampled tokens and encodes them again."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        original: Callable[..., Awaitable[Generation]] = kind.generate

        async def generate(self: Any, *args: Any, **options: Any) -> Generation:
            found = await original(self, *args, **options)
            ids = tokenizer.encode(tokenizer.decode(found.token_ids), add_special_tokens=False)
            return Generation(ids, [0.0] * len(ids), found.finish_reason)

        monkeypatch.setattr(kind, "generate", generate)

    return patch


def own_seeds(module: Any, name: str = "task_of") -> Patch:
    """Return a fault in a module's function from rows to tasks: each sample of a group gets its own seed."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        original, seen = getattr(module, name), set()

        def task_of(row: Any) -> Any:
            task = original(row)
            while task["seed"] in seen:
                task = {**task, "seed": task["seed"] + 1_000}
            seen.add(task["seed"])
            return task

        monkeypatch.setattr(module, name, task_of)

    return patch
