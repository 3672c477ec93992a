"""Episodes as rows of Oat's buffer: one turn, one `TransitionData`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from oat.types import TransitionData

from gem_core.advantages import ReturnStats, returns
from gem_core.advantages.registry import Estimator
from gem_core.rollout import Episode, without_tokens
from gem_core.rollout.trajectory import trainable_turn_rewards


@dataclass
class Collected:
    """What an actor collected in one step, the rows that it dropped included.

    Attributes:
        stats: Of the returns of all turns.
        episodes: Outlines of all episodes.
    """

    stats: ReturnStats
    episodes: list[Episode]


@dataclass
class Row(TransitionData):  # type: ignore[misc]
    """A turn. `rewards` is 0 but for the last token, which holds the value that the learner reads.

    Attributes:
        collected: The same object in all rows of a step; they travel in one pickle.
    """

    collected: Collected | None = field(default=None, repr=False)


def turn_values(
    episodes: Sequence[Episode], estimator: Estimator, gamma: float, options: dict[str, Any]
) -> tuple[list[list[float]], ReturnStats]:
    """What the learner gets for each turn of the trainable episodes, and the statistics of the returns.

    For an estimator that normalises by the statistics of the whole batch that is the turn's return,
    because the learner alone knows all ranks; for any other one it is the advantage itself.

    Raises:
        NonFiniteReward: Names the episode and the turn.
    """
    rewards = trainable_turn_rewards(episodes)
    gs = returns(rewards, gamma)
    stats = ReturnStats.from_returns(gs)
    if estimator.uses_stats:
        return [episode.tolist() for episode in gs], stats
    if "group_ids" in estimator.needs:
        groups = [episode.metadata["group"] for episode in episodes if episode.trainable]
        options = {**options, "group_ids": groups}
    credit = estimator.reference()(rewards, gamma=gamma, **options)
    return [episode.tolist() for episode in credit], stats


def lay_out(
    episodes: Sequence[Episode],
    values: Sequence[Sequence[float]],
    stats: ReturnStats,
    *,
    wanted: int,
    random: Random,
    mask_cut: bool,
    info: dict[str, float],
) -> list[Row]:
    """The rows that go to the learners: `wanted` of all turns, drawn without preference.

    Args:
        episodes: All that were collected.
        values: Per trainable episode and turn; see `turn_values`.
        stats: Of the returns of all turns.
        wanted: Number of rows; there are at least as many turns.
        random: Draws them.
        mask_cut: Keep responses that the length limit cut out of the loss (``--ignore-no-eos``).
        info: Numbers for Oat's metrics, the same keys in every row.
    """
    collected = Collected(stats, [without_tokens(episode) for episode in episodes])
    trainable = [episode for episode in episodes if episode.trainable]
    rows = []
    for episode, of_turns in zip(trainable, values, strict=True):
        for turn, row, value in zip(episode.turns, episode.transitions(), of_turns, strict=True):
            rows.append(
                Row(
                    prompt="",
                    prompt_ids=row.prompt_ids,
                    response=turn.action,
                    response_ids=row.response_ids,
                    response_logprobs=row.logprobs,
                    rewards=[0.0] * (len(row.response_ids) - 1) + [value],
                    loss_mask=not (mask_cut and turn.finish_reason == "length"),
                    info=info,
                    collected=collected,
                )
            )
    return random.sample(rows, wanted)
