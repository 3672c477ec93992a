"""Turns as rows of Oat's buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from oat.types import TransitionData

from gem_core.advantages import ReturnStats, returns, with_threads
from gem_core.rollout import Episode, trainable_turn_rewards
from gem_core.rollout._estimator_inputs import EpisodeTurns
from gem_core.rollout._metrics import without_tokens
from gem_core.trainers import EstimatorChoice
from gem_core.trainers._estimators import threads_of


@dataclass
class Collected:
    """Data about everything that an actor collected in one step, including the rows that it dropped.

    Attributes:
        stats: Statistics of the returns of all turns.
        episodes: Outlines of all episodes.
    """

    stats: ReturnStats
    episodes: list[Episode]


@dataclass
class TurnRow(TransitionData):  # type: ignore[misc]
    """A turn. `rewards` is its value (see `turn_values`), or one number per token: 0 except on the last one.

    Attributes:
        reward: Reward of the turn.
        done: Whether this is the last turn of its episode.
        collected: The same object in all rows of a step, because these are pickled together.
    """

    reward: float = 0.0
    done: bool = False
    collected: Collected | None = field(default=None, repr=False)


def turn_values(
    episodes: Sequence[Episode], choice: EstimatorChoice
) -> tuple[list[list[float]], ReturnStats]:
    """Return a value for each turn of the trainable episodes, and the statistics of the returns.

    The value is the turn's return if the estimator normalizes by the statistics of the whole batch, which
    only the learner knows, and the turn's reward if it needs a critic; with any other estimator it is the
    advantage.

    Raises:
        ConfigError: An episode has side threads, and the estimator needs a critic.
        NonFiniteReward: A reward is not finite; the message names the episode and the turn.
    """
    rewards = trainable_turn_rewards(episodes)
    trainable = [episode for episode in episodes if episode.trainable]
    turns = [EpisodeTurns.of(episode, choice.needs) for episode in trainable]
    joined = with_threads(rewards, threads_of(turns))
    turn_returns = returns(joined, choice.gamma)
    stats = ReturnStats.from_returns(turn_returns)
    if choice.estimator.uses_stats:
        return [episode.tolist() for episode in turn_returns], stats
    if "values" in choice.needs:
        joined.require_main_thread(
            choice.name, "the values of Oat's critic are those of one sequence of turns"
        )
        return rewards, stats
    groups = [episode.metadata.get("group", 0) for episode in trainable]
    advantages, stats = choice.compute_turns(turns, groups)
    return [values.tolist() for values in advantages], stats


def pack_turns(
    episodes: Sequence[Episode],
    values: Sequence[Sequence[float]],
    stats: ReturnStats,
    *,
    mask_cut: bool,
    info: dict[str, float],
) -> list[list[TurnRow]]:
    """Return one list of rows for each trainable episode, as a learner with a critic receives them.

    Args:
        episodes: All collected episodes.
        values: Value of each turn of each trainable episode; see `turn_values`.
        stats: Statistics of the returns of all turns.
        mask_cut: Whether to mask out of the loss the responses that the length limit cut
            (``--ignore-no-eos``).
        info: Numbers for Oat's metrics; every row has the same keys.
    """
    collected = Collected(stats, [without_tokens(episode) for episode in episodes])
    trainable = [episode for episode in episodes if episode.trainable]
    return [
        [
            TurnRow(
                prompt="",
                prompt_ids=row.prompt_ids,
                response=turn.action,
                response_ids=row.response_ids,
                response_logprobs=None if row.logprobs is None else row.logprobs[row.prompt_length :],
                rewards=value,
                loss_mask=not (mask_cut and turn.finish_reason == "length"),
                reward=turn.reward,
                info=dict(info),  # Oat adds the advantage of each turn if there is a critic
                done=turn is episode.turns[-1],
                collected=collected,
            )
            for turn, row, value in zip(episode.turns, episode.rows("turn"), advantages_by_turn, strict=True)
        ]
        for episode, advantages_by_turn in zip(trainable, values, strict=True)
    ]


def draw_turns(packed: Sequence[Sequence[TurnRow]], size: int, random: Random) -> list[TurnRow]:
    """Return rows for learners without a critic: `size` of the turns, drawn uniformly."""
    rows = random.sample([row for episode in packed for row in episode], size)
    for row in rows:
        row.rewards = [0.0] * (len(row.response_ids) - 1) + [row.rewards]
    return rows
