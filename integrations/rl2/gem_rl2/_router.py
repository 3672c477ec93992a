"""The newer source tree: episodes sample from SGLang through RL2's router."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gem_core.errors import ConfigError, PolicyError
from gem_core.rollout import Episode, Generation, Row
from gem_core.rollout._policy import inferred_finish


@dataclass(frozen=True)
class RouterPolicy:
    """RL2's router as a `gem_core.rollout.Policy`: token ids in, token ids out.

    Attributes:
        url: URL of the router.
        sampling_params: SGLang's sampling parameters, for every turn; ``stop_token_ids`` end a response.
        is_paused: Function that returns whether RL2 has paused the engines.
        resumed: Function to await until RL2 continues with this sample; None if RL2 never pauses.
    """

    url: str
    sampling_params: Mapping[str, Any]
    is_paused: Callable[[], bool]
    resumed: Callable[[], Awaitable[None]] | None

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        """Sample one response, which begins with the tokens that were sampled before a pause."""
        from RL2.utils.communication import async_request

        params: dict[str, Any] = {**self.sampling_params, "no_stop_trim": True}
        least, stop_ids = params.get("min_new_tokens") or 0, params.get("stop_token_ids") or ()
        ids: list[int] = []
        logprobs: list[float] = []
        while (room := max_tokens - len(ids)) > 0:
            if self.resumed is not None and self.is_paused():
                await self.resumed()
            params["max_new_tokens"] = room
            if least:  # of the whole response; SGLang rejects more than the room that is left
                params["min_new_tokens"] = min(max(least - len(ids), 0), room)
            answer = await async_request(
                self.url,
                "generate",
                json={
                    "input_ids": [*prompt_ids, *ids],
                    "sampling_params": {**params},
                    "return_logprob": True,
                },
            )
            try:
                meta = answer["meta_info"]
                reason = meta["finish_reason"]["type"]
                for logprob, token_id, *_ in meta.get("output_token_logprobs") or ():
                    logprobs.append(float(logprob))
                    ids.append(int(token_id))
            except (KeyError, TypeError, ValueError) as error:
                raise PolicyError(f"cannot read tokens from the engine's answer: {answer!r:.300}") from error
            if reason != "abort":  # "length" may be a complete response of that length
                finish = inferred_finish(ids, len(ids), stop_ids) if reason == "length" else "stop"
                return Generation(ids, logprobs, finish)
            if self.resumed is None:
                message = meta["finish_reason"].get("message", "no reason given")
                raise PolicyError(f"the engine aborted a request: {message}")
            await self.resumed()
        return Generation(ids, logprobs, "length")


def fill(sample: Any, episode: Episode, tokenizer: Any) -> None:
    """Put a finished episode into an RL2 `Sample`.

    An episode that is not trainable becomes a row without an action token, so that the group keeps its number
    of samples; its only metric in RL2 is a reward of NaN.

    Raises:
        ConfigError: The episode has side threads.
    """
    sample.state_dicts = [
        {
            "states": row.token_ids,
            "actions": [token * on for token, on in zip(row.token_ids, row.response_mask, strict=True)],
            "action_mask": row.response_mask,
            "logps": row.logprobs_or_zeros(),
            "rewards": row.rewards,
        }
        for row in rows_in_order(episode, pad_id=tokenizer.eos_token_id or 0)
    ]
    sample.turn = len(episode.turns)
    sample.status = type(sample).Status.DONE
    if episode.turns:
        sample.state_text = tokenizer.decode(episode.prompts()[-1])
        sample.action_text = tokenizer.decode(episode.turns[-1].response_ids)
    if not episode.trainable:
        sample.metrics["rewards"].append(math.nan)
        return
    sample.metrics["turns"].append(len(episode.turns))
    sample.metrics["rewards"].append(episode.total_reward)
    sample.metrics["response_length"] += [len(turn.response_ids) for turn in episode.turns]
    sample.metrics["length_clip_ratio"] += [turn.finish_reason == "length" for turn in episode.turns]


def rows_in_order(episode: Episode, *, pad_id: int) -> list[Row]:
    """Return rows from which the estimators can count the turns, because RL2's samples do not name them.

    `gem_rl2._estimators` counts the runs of action tokens from one row to the next. Where rows take turns, or
    a response follows another one directly, each turn is a row.

    Args:
        episode: The episode.
        pad_id: Token of the row of an episode that is not trainable.

    Raises:
        ConfigError: The episode has side threads, which RL2's samples cannot hold.
    """
    if episode.threads:
        raise ConfigError(
            f"an episode of {episode.env_id} has side threads, but RL2's samples have no place for them; use "
            "an agent with one thread, or another trainer"
        )
    rows = episode.rows(pad_id=pad_id)
    turns = [turn for row in rows for turn in row.turns]
    if turns == sorted(turns) and not any(row.has_adjacent_turns for row in rows):
        return rows
    return episode.rows("turn")
