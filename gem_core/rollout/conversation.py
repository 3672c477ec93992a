"""Interfaces between the episode loop and contexts, which turn a conversation into tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from gem_core.core import Observation
from gem_core.rollout.trajectory import ContextMode
from gem_core.tools import Tool, ToolCall


class CallResult(NamedTuple):
    """The result of a call in a response.

    Attributes:
        name: Name of the tool.
        id: Id of the call; empty if the model gave none.
        text: The result.
    """

    name: str
    id: str
    text: str


class Images(Protocol):
    """What the episode loop asks of the image processor of a context."""

    @property
    def placeholders(self) -> Mapping[int, str]:
        """Texts of the tokens that mark images, by id; the model must not sample them."""
        ...


class Context(Protocol):
    """Interface of a context: turns observations into prompt tokens, and responses into text."""

    @property
    def mode(self) -> ContextMode:
        """Meaning of `Turn.context_ids`."""
        ...

    @property
    def image_processor(self) -> Images | None:
        """The image processor; None for a context that takes text only."""
        ...

    def with_tools(self, schemas: Sequence[Mapping[str, Any]]) -> ToolContext[Context] | None:
        """Return the context for episodes with these tools; None if their calls are a part of the text."""
        ...

    def first(self, observation: Observation) -> list[int]:
        """Return the tokens of the first prompt."""
        ...

    def extend(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> list[int]:
        """Return the `Turn.context_ids` of the next turn.

        In append mode, these are the tokens between this response and the next one, at least one; in rebuild
        mode, they are the whole next prompt.
        """
        ...

    def first_text(self, observation: Observation) -> str:
        """Return the text that `first` encodes, for trainers that encode texts themselves.

        If the observation spells special tokens, a word joiner (U+2060) in each keeps it from becoming one.
        """
        ...

    def extend_text(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> str:
        """Return the text that `extend` encodes."""
        ...

    def count_spelled(self, observation: Observation) -> int:
        """Return the number of special tokens that the texts of an observation spell.

        They are text in the prompt, unless the context has the option `parse_special`.
        """
        ...

    def decode(self, response_ids: Sequence[int]) -> str:
        """Return the response as text for the environment.

        Its thoughts are ``<think>...</think>``, whatever their syntax in the chat template. Its end and
        padding are not part of the text; other tokens of the model's own format are, such as those of calls.
        """
        ...

    def extra_stop_id(self, known: Collection[int]) -> int | None:
        """Return the token at which an engine must stop in addition to `known`; None if it needs none.

        Args:
            known: Tokens at which the engine stops. With none, the result is the token with which the
                chat template ends an answer.

        Raises:
            UnsupportedTemplate: The chat template does not tell where an answer ends.
        """
        ...


ContextT_co = TypeVar("ContextT_co", covariant=True)


class ToolContext(Protocol[ContextT_co]):
    """A context for episodes whose tools the model calls as its chat template does."""

    @property
    def context(self) -> ContextT_co:
        """The context for first prompts, and for what follows a response without calls."""
        ...

    def read(self, response_ids: Sequence[int], tools: Sequence[Tool]) -> tuple[str, list[ToolCall]]:
        """Return the text of a response before its calls, and the calls."""
        ...

    def extend(self, results: Sequence[CallResult], note: str, response_ids: Sequence[int]) -> list[int]:
        """Return the tokens between a response with calls and the next response, at least one.

        Args:
            results: Results of all calls in the response.
            note: A further message of the environment; empty for none.
            response_ids: The response.
        """
        ...

    def extend_text(self, results: Sequence[CallResult], note: str, response_ids: Sequence[int]) -> str:
        """Return the text that `extend` encodes."""
        ...
