"""`Turn`, one response of the policy, and `Prompts`, which stores a prompt as what it adds to an earlier one.

Most prompts continue the tokens of an earlier turn: of the previous one in a conversation that only grows, of
one further back if another conversation was between them. A turn names that turn (`Turn.parent`) and holds
only the tokens that its prompt adds, so the size of an episode grows with the number of its tokens, not with
its square.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from gem_core._core import Observation
from gem_core.errors import ConfigError

FinishReason: TypeAlias = Literal["stop", "length"]


class Thread(NamedTuple):
    """How a side thread of an episode, such as a sub-agent, belongs to the other turns.

    `gem_core.advantages._threads` defines the returns that follow from it, with a table of the usual cases.
    """

    called_by: int | None
    """Index of the turn whose step includes the thread, so that it earns the rewards inside; None if the
    thread comes before the first turn."""
    returns_to: int | None
    """Index of the first turn whose reward may depend on the result of the thread; None if no reward does."""
    independent: bool = False
    """Whether the thread shares nothing, such as a sandbox, with threads that run beside it."""


@dataclass
class Turn:
    """One response of the policy and its result in the environment.

    Attributes:
        context_ids: Tokens of the prompt that follow the tokens of `parent`; the whole prompt without one.
            May be empty. Empty in messages mode.
        response_ids: Sampled token ids, at least one; empty in messages mode.
        logprobs: Log-probability of each response token under the sampling policy, same length as
            `response_ids`; None if the engine did not report them.
        reward: Reward that `Env.step` returned for this turn.
        observation: The observation to which the model responded.
        action: The text sent to the environment; empty for a response cut by the length limit, unless
            `EpisodeLimits.on_length_cut` is "pass".
        finish_reason: Why generation stopped.
        info: The info dict of this step, reduced to values that JSON can represent.
        advantage: Advantage of this turn; None (not 0) until it is assigned.
        parent: Earlier turn whose prompt and response the prompt continues, counted back from this turn: -1
            is the previous turn. None if the prompt continues no turn. The first turn has none, whatever the
            value.
        thread: Thread of the turn in its episode; 0 is the main one. See `Episode.threads`.
    """

    context_ids: list[int]
    response_ids: list[int]
    logprobs: list[float] | None
    reward: float
    observation: Observation
    action: str
    finish_reason: FinishReason
    info: dict[str, Any] = field(default_factory=dict)
    advantage: float | None = None
    parent: int | None = -1
    thread: int = 0


def parents_of(turns: Sequence[Turn]) -> list[int | None]:
    """Return the index of each turn's parent in the episode; None for a turn without one.

    Raises:
        ConfigError: A parent is not an earlier turn.
    """
    parents: list[int | None] = [None] * len(turns)
    for index, turn in enumerate(turns):
        if index and turn.parent is not None:
            if not -index <= turn.parent < 0:
                raise ConfigError(
                    f"turn {index} has parent={turn.parent}: expected None, or a number from -1 (the "
                    f"previous turn) to {-index} (the first turn)"
                )
            parents[index] = index + turn.parent
    return parents


def whole_prompts(turns: Sequence[Turn]) -> list[list[int]]:
    """Return all tokens of each turn's prompt. Their size may grow with the square of the number of turns."""
    prompts: list[list[int]] = []
    for turn, parent in zip(turns, parents_of(turns), strict=True):
        before = [] if parent is None else [*prompts[parent], *turns[parent].response_ids]
        prompts.append(before + turn.context_ids)
    return prompts


class Prompts:
    """The prompts and responses of an episode, from which the parent of the next prompt is found.

    parent, context_ids = prompts.add(prompt_ids, response_ids)
    """

    def __init__(self) -> None:
        self._parents: list[int | None] = []
        self._contexts: list[list[int]] = []
        self._responses: list[list[int]] = []
        self._images: list[tuple[str, ...]] = []

    def add(
        self, prompt_ids: Sequence[int], response_ids: Sequence[int], images: Sequence[str] = ()
    ) -> tuple[int | None, list[int]]:
        """Store a turn; return its `Turn.parent` and `Turn.context_ids`.

        The parent is a turn whose tokens and images the prompt begins with: of those that no other turn
        continues, the one with the most tokens, so that rows go on; without such a turn, of all others.

        Args:
            prompt_ids: All tokens of the prompt.
            response_ids: Tokens of the response.
            images: Data URLs of all images of the prompt, in order.
        """
        prompt, shown = list(prompt_ids), tuple(images)
        ends: list[int | None] = []
        continued = {parent for parent in self._parents if parent is not None}
        best, rank = None, (False, -1)
        for turn, parent in enumerate(self._parents):
            start = 0 if parent is None else ends[parent]
            end = None if start is None else self._end(turn, prompt, start)
            ends.append(end)
            own = self._images[turn]
            if end is not None and own == shown[: len(own)] and (turn not in continued, end) >= rank:
                best, rank = turn, (turn not in continued, end)
        context = prompt[max(rank[1], 0) :]
        self._parents.append(best)
        self._contexts.append(context)
        self._responses.append(list(response_ids))
        self._images.append(shown)
        return None if best is None else best - len(self._parents) + 1, context

    def _end(self, turn: int, prompt: list[int], start: int) -> int | None:
        """Return where a turn that begins at `start` ends in the prompt; None if its tokens differ."""
        for tokens in (self._contexts[turn], self._responses[turn]):
            end = start + len(tokens)
            if prompt[start:end] != tokens:
                return None
            start = end
        return start
