"""Build an episode from a conversation that another tool recorded: `TurnCollector`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gem_core import Observation
from gem_core.images import text_part
from gem_core.rollout import Episode, Turn
from gem_core.rollout._trajectory import ContextMode
from gem_core.rollout._turn import Prompts


class TurnCollector:
    """Collects messages in order and returns them as the turns of an episode.

    All messages since the previous response are the observation of the next one.
    """

    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._pending: list[Observation] = []
        self._tokens: list[tuple[list[int], list[int]] | None] = []

    def show(self, observation: Observation) -> None:
        """Add a message to the model; an empty one is ignored."""
        if observation:
            self._pending.append(observation)

    def answer(
        self,
        text: str,
        *,
        tool_calls: Sequence[Mapping[str, Any]] = (),
        reasoning: str | None = None,
        reward: float = 0.0,
        info: Mapping[str, Any] | None = None,
        counts: Mapping[str, int | None] | None = None,
        tokens: tuple[list[int], list[int]] | None = None,
        logprobs: list[float] | None = None,
        is_cut: bool = False,
    ) -> None:
        """Add a response of the model.

        Args:
            text: Text that the model wrote.
            tool_calls: Its tool calls, each with ``name`` and ``arguments``; appended to the action as JSON.
            reasoning: Reasoning that the model reported separately.
            reward: Reward of the turn.
            info: Info of the turn.
            counts: ``prompt_tokens`` and ``response_tokens``, if known.
            tokens: Prompt and response token ids, if known.
            logprobs: Log-probability of each response token, if known.
            is_cut: Whether the response reached its token limit.
        """
        calls = [json.dumps(dict(call), ensure_ascii=False) for call in tool_calls]
        reply: dict[str, Any] = {name: count for name, count in (counts or {}).items() if count is not None}
        if reasoning:
            reply["reasoning"] = reasoning
        self._turns.append(
            Turn(
                context_ids=[],
                response_ids=[],
                logprobs=logprobs if tokens else None,
                reward=float(reward),
                observation=_joined(self._pending),
                action="\n".join([*([text] if text else []), *calls]),
                finish_reason="length" if is_cut else "stop",
                info={**(info or {}), **({"reply": reply} if reply else {})},
            )
        )
        self._tokens.append(tokens)
        self._pending = []

    def episode(
        self,
        *,
        env_id: str,
        seed: int | None,
        metadata: Mapping[str, Any],
        reward: float | None = None,
        error: str | None = None,
        is_truncated: bool = False,
    ) -> Episode:
        """Return the episode.

        Args:
            env_id: Name of the task.
            seed: Seed of the task; None if unknown.
            metadata: Additional data.
            reward: Score of the whole conversation, which becomes the reward of the last turn; a score of at
                least 1 is a success. None keeps the rewards of the turns.
            error: Description of a failure; None if nothing failed.
            is_truncated: Whether a limit ended the conversation.
        """
        if self._turns:
            last = self._turns[-1]
            if self._pending:
                last.info["final_obs"] = _joined(self._pending)
            if reward is not None:
                last.reward = float(reward)
                last.info["success"] = reward >= 1
        return Episode(
            env_id=env_id,
            seed=seed,
            turns=self._turns,
            terminated=error is None and not is_truncated,
            truncated=error is not None or is_truncated,
            stop_reason="env_error" if error is not None else "truncated" if is_truncated else "terminated",
            error=error,
            trainable=error is None and bool(self._turns),
            context_mode=self._set_tokens(),
            metadata=dict(metadata),
        )

    def _set_tokens(self) -> ContextMode:
        """Fill in the token ids if all turns have some, and return the context mode."""
        pairs = [pair for pair in self._tokens if pair is not None]
        if not self._turns or len(pairs) < len(self._turns) or not all(response for _, response in pairs):
            for turn in self._turns:
                turn.logprobs = None
            return "messages"
        prompts = Prompts()
        for turn, (prompt, response) in zip(self._turns, pairs, strict=True):
            turn.parent, turn.context_ids = prompts.add(prompt, response)
            turn.response_ids = response
        return "append" if all(turn.parent == -1 for turn in self._turns[1:]) else "rebuild"


def _joined(observations: Sequence[Observation]) -> Observation:
    """Return several messages as one observation: text, unless one contains images."""
    if all(isinstance(observation, str) for observation in observations):
        return "\n\n".join(map(str, observations))
    parts: list[dict[str, Any]] = []
    for observation in observations:
        parts += [text_part(observation)] if isinstance(observation, str) else observation
    return parts
