"""`Dialogue`: the model's side of an episode in `run_episode`, and `Context`, which makes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from gem_core._core import Env, Observation
from gem_core.errors import GemError, ServiceError
from gem_core.rollout._trajectory import ContextMode
from gem_core.rollout._turn import FinishReason


class ContextFull(GemError, ValueError):
    """Raised when the conversation exceeds the model's context; the runner then ends the episode."""


class RequestRejected(ServiceError):
    """Raised when a model rejects one conversation but answers others; the runner then ends the episode."""


class TokenLimits(NamedTuple):
    """Maximum numbers of tokens in an episode; see `run_episode`. At least one of the three is set."""

    per_turn: int | None
    total: int | None = None
    response: int | None = None

    def after(self, prompt_length: int, mode: ContextMode) -> TokenLimits:
        """Return the limits of an episode whose first prompt has `prompt_length` tokens."""
        if self.response is None:
            return self
        if mode == "rebuild":
            return self._replace(per_turn=_smallest(self.per_turn, self.response))
        return self._replace(total=_smallest(self.total, prompt_length + self.response))

    def room(self, prompt_ids: list[int]) -> int:
        """Return the maximum number of tokens in the response to this prompt; below 1 if none fits."""
        return _smallest(self.per_turn, None if self.total is None else self.total - len(prompt_ids))


def _smallest(*limits: int | None) -> int:
    return min(limit for limit in limits if limit is not None)


class Answer(NamedTuple):
    """One response of the model."""

    text: str
    finish_reason: FinishReason
    parent: int | None
    """`Turn.parent`."""
    context_ids: list[int]
    response_ids: list[int]
    logprobs: list[float] | None
    notes: Mapping[str, Any]
    forged_tokens: int = 0
    """Number of special tokens that the texts of the observation before it spell."""


class Dialogue(Protocol):
    """The conversation of one episode."""

    def begin(self, observation: Observation) -> str | None:
        """Add the first observation; return an error message if no answer fits the limits, else None."""
        ...

    async def answer(self) -> Answer | None:
        """Return the model's next response; None if it is empty."""
        ...

    def observe(self, observation: Observation) -> bool:
        """Add the next observation; return whether another answer fits the limits."""
        ...


class Context(Protocol):
    """Interface of a context: keeps the conversation of an episode in the form that a policy takes.

    The contexts of `gem_chat` keep it as tokens or as messages.
    """

    @property
    def mode(self) -> ContextMode:
        """Meaning of `Turn.context_ids`."""
        ...

    def require_images(self, env: Env, policy: Any | None) -> None:
        """Reject an environment whose images would not reach the model.

        Args:
            env: The environment.
            policy: The policy; None if it does not exist yet.

        Raises:
            ConfigError: The environment shows images, but the context or the policy takes text only.
        """
        ...

    def dialogue(self, env: Env, policy: Any, limits: TokenLimits, request_id: str) -> Dialogue:
        """Return the conversation of one episode.

        Args:
            env: The environment, before its reset.
            policy: The policy.
            limits: Limits of the episode.
            request_id: Id of the episode.

        Raises:
            ConfigError: The policy does not take this form.
        """
        ...
