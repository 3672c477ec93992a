"""What estimators need besides rewards, from episodes: the one table from a need to its values."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gem_core._tasks import EnvChoice
from gem_core.rollout._trajectory import Episode, reported_components, tabulate_components
from gem_core.rollout._turn import Thread


@dataclass(frozen=True)
class EpisodeTurns:
    """The data about an episode's turns that estimators need, small enough to send between ranks.

    Attributes:
        rewards: Reward of each turn.
        lengths: Number of response tokens of each turn.
        env_id: Environment with its arguments; empty for an episode that GEM did not play.
        agent_id: Environment and agent that was played; see `Episode.agent`.
        truncated: Whether the episode was truncated.
        state_keys: Key of the state in which each turn began; empty if no estimator needs it.
        reward_components: Components of the reward of each turn by name; empty if no estimator needs them.
        turn_threads: Thread of each turn; empty if all are in the main thread.
        threads: The side threads; see `Episode.threads`.
    """

    rewards: list[float]
    lengths: list[int]
    env_id: str = ""
    agent_id: tuple[str, str] = ("", "")
    truncated: bool = False
    state_keys: list[str] = field(default_factory=list)
    reward_components: list[dict[str, float]] = field(default_factory=list)
    turn_threads: tuple[int, ...] = ()
    threads: dict[int, Thread] = field(default_factory=dict)

    @classmethod
    def of(cls, episode: Episode, needs: Collection[str]) -> EpisodeTurns:
        """Return the data about an episode's turns, with no turns if the episode is not trainable.

        Args:
            episode: The episode, or its outline with what `needs` names (`without_tokens`).
            needs: What the estimator needs; see `gem_core.advantages._declaration.NEEDS`.
        """
        turns = episode.turns if episode.trainable else []
        return cls(
            [turn.reward for turn in turns],
            [len(turn.response_ids) for turn in turns],
            EnvChoice(episode.env_id, episode.env_kwargs).label,
            (episode.env_id, episode.agent),
            episode.truncated,
            episode.state_keys() if turns and "state_keys" in needs else [],
            reported_components(episode) if turns and "reward_components" in needs else [],
            tuple(turn.thread for turn in turns) if episode.threads else (),
            episode.threads if turns else {},
        )


def estimator_inputs(
    episodes: Sequence[EpisodeTurns], needs: Collection[str], group_ids: Sequence[Hashable] | None = None
) -> dict[str, Any]:
    """Return the inputs of an estimator that are known from the episodes.

    Args:
        episodes: Episodes with turns.
        needs: What the estimator needs.
        group_ids: Group of each episode.

    Raises:
        ConfigError: No step of an environment reported components of its reward, which the estimator needs.
    """
    inputs: dict[str, Any] = {
        "lengths": [episode.lengths for episode in episodes],
        "env_ids": [episode.env_id for episode in episodes],
        "agent_ids": [episode.agent_id for episode in episodes],
        "state_keys": [episode.state_keys for episode in episodes],
    }
    if group_ids is not None:
        inputs["group_ids"] = group_ids
    if "reward_components" in needs:
        inputs["reward_components"] = tabulate_components(
            [episode.rewards for episode in episodes],
            [episode.reward_components for episode in episodes],
            [episode.env_id for episode in episodes],
        )
    return {need: inputs[need] for need in needs if need in inputs}
