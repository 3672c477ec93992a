"""Replays the episodes of a run without its engine, so that only GEM's own work remains."""

from __future__ import annotations

from collections.abc import Sequence

from gem_core.rollout import Context, EnvPool, Episode, EpisodeLimits, Generation
from gem_core.tasks import TaskRow


class Recorded:
    """Immediately returns the responses of an episode."""

    def __init__(self, episode: Episode) -> None:
        self._turns = iter(episode.turns)

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        turn = next(self._turns)
        return Generation(turn.response_ids, turn.logprobs, turn.finish_reason)


async def play_again(episode: Episode, context: Context, pool: EnvPool) -> Episode:
    """Play the same environment, seed, and responses; the rewards must be the same."""
    task = TaskRow(env_id=episode.env_id, env_kwargs=episode.env_kwargs, seed=episode.seed or 0, index=0)
    again = await pool.play(
        task,
        Recorded(episode),
        context,
        EpisodeLimits(max_turns=len(episode.turns), max_tokens_per_turn=4096),
    )
    assert again.rewards == episode.rewards
    return again
