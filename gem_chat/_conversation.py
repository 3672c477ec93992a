"""`TokenContext`: base class of contexts that turn a conversation into tokens."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from gem_chat._native_tools import CallResult, NativeTools, entries_of, hide_instructions, takes_native_calls
from gem_chat.tools import Tool, ToolCall
from gem_core import Env, Observation
from gem_core._observations import encodable
from gem_core.errors import ConfigError, PolicyError
from gem_core.images import image_urls
from gem_core.rollout import ChatReply, Generation, Policy
from gem_core.rollout._dialogue import Answer, Dialogue, TokenLimits
from gem_core.rollout._trajectory import ContextMode
from gem_core.rollout._turn import Prompts


class Images(Protocol):
    """What a dialogue asks of the image processor of a context."""

    @property
    def placeholders(self) -> Mapping[int, str]:
        """Texts of the tokens that mark images, by id; the model must not sample them."""
        ...


class TokenContext(Protocol):
    """A context that turns observations into prompt tokens, and responses into text."""

    mode: ContextMode
    """What an observation shows; see `Episode.context_mode`."""
    image_processor: Images | None
    """The image processor; None for a context that takes text only."""

    def with_tools(self, schemas: Sequence[Mapping[str, Any]]) -> ToolContext[TokenContext] | None:
        """Return the context for episodes with these tools; None if their calls are a part of the text."""
        ...

    def require_images(self, env: Env, policy: Any | None) -> None:
        """Reject an environment whose images would not reach the model; see `gem_core.rollout.Context`."""
        if not env.shows_images:
            return
        name = env.spec.id if env.spec else type(env).__name__
        if self.image_processor is None:
            raise ConfigError(
                f"{name} shows images, but this context supports text only; use a vision-language model with "
                "a processor of the Qwen2-VL family"
            )
        if policy is not None and not getattr(policy, "takes_images", False):
            raise ConfigError(f"{name} shows images, but {type(policy).__name__} takes text only")

    def dialogue(self, env: Env, policy: Any, limits: TokenLimits, request_id: str) -> Dialogue:
        """Return the conversation of one episode; see `gem_core.rollout.Context`."""
        if not hasattr(policy, "generate"):
            raise ConfigError(f"{type(policy).__name__} takes messages; give it a MessagesContext")
        return TokenDialogue(env, policy, self, limits, request_id)

    def first(self, observation: Observation) -> list[int]:
        """Return the tokens of the first prompt."""
        ...

    def extend(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> list[int]:
        """Return the `Turn.context_ids` of the next turn.

        In append mode, these are the tokens between this response and the next one, at least one; in the
        other modes, they are the whole next prompt.
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

    def call_stop_id(self, known: Collection[int]) -> int | None:
        """Return the token at which an engine must stop after native calls, in addition to `known`.

        None is the result if it needs none, or if calls are a part of the text.
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


class TokenDialogue:
    """A conversation with a `Policy`: token ids in, token ids out.

    The model calls the tools of the environment natively if the context has tool turns.

    Args:
        env: The environment, before its reset.
        policy: The policy.
        context: The context.
        limits: Limits of the episode.
        request_id: Id of the episode.
    """

    _tools: NativeTools
    _turns: ToolContext[TokenContext] | None = None

    def __init__(
        self, env: Env, policy: Policy, context: TokenContext, limits: TokenLimits, request_id: str
    ) -> None:
        self._env = env
        self._policy = policy
        self._context = context
        self._native = (
            takes_native_calls(env) and context.with_tools(NativeTools(env, True).schemas) is not None
        )
        if self._native:
            hide_instructions(env)
        self._calls: list[ToolCall] = []
        self._limits = limits
        self._request_id = request_id
        self._context_ids: list[int] = []
        self._prompts = None if context.mode == "append" else Prompts()
        self._prompt_ids: list[int] = []
        self._response_ids: list[int] = []
        self._images: list[str] = []
        self._forged_tokens = 0

    def begin(self, observation: Observation) -> str | None:
        self._tools = NativeTools(self._env, self._native)
        if self._tools.schemas:
            self._turns = self._context.with_tools(self._tools.schemas)
            self._context = self._context if self._turns is None else self._turns.context
        self._forged_tokens = self._context.count_spelled(observation)
        self._context_ids = self._context.first(observation)
        self._images = image_urls(observation)
        self._prompt_ids = list(self._context_ids)
        self._start_limits(len(self._prompt_ids))
        if self._room() >= 1:
            return None
        return (
            f"the first prompt has {len(self._prompt_ids)} tokens, which leaves no room for a response in "
            f"max_total_tokens={self._limits.total}; raise max_total_tokens or shorten the prompt"
        )

    def _start_limits(self, prompt_length: int) -> None:
        """Set the limits of the episode, given the number of tokens in its first prompt."""
        self._limits = self._limits.after(prompt_length, self._context.mode)

    def _room(self) -> int:
        """Return the maximum number of tokens in the next response; below 1 if none fits."""
        return self._limits.room(self._prompt_ids)

    async def answer(self) -> Answer | None:
        room = self._room()
        arguments: dict[str, Any] = {"images": list(self._images)} if self._images else {}
        generation = await self._policy.generate(
            list(self._prompt_ids), max_tokens=room, request_id=self._request_id, **arguments
        )
        check_generation(generation, room)
        self._response_ids = list(generation.token_ids)
        if not self._response_ids:
            return None
        image_processor = self._context.image_processor
        placeholders = {} if image_processor is None else image_processor.placeholders
        for token_id in self._response_ids:
            if token_id in placeholders:
                raise PolicyError(
                    f"the policy sampled the placeholder {placeholders[token_id]!r}, but no image belongs to "
                    "it; forbid that token in the engine (vLLM: logit_bias)"
                )
        parent: int | None = -1
        context_ids = self._context_ids
        if self._prompts is not None:
            parent, context_ids = self._prompts.add(self._prompt_ids, self._response_ids, self._images)
        return Answer(
            text=self._action(),
            finish_reason=generation.finish_reason,
            parent=parent,
            context_ids=context_ids,
            response_ids=self._response_ids,
            logprobs=None if generation.logprobs is None else list(generation.logprobs),
            notes={},
            forged_tokens=self._forged_tokens,
        )

    def _action(self) -> str:
        """Return the response as text, with native calls in the format of the environment."""
        if self._turns is None:
            return self._context.decode(self._response_ids)
        text, self._calls = self._turns.read(self._response_ids, self._tools.tools)
        return encodable(self._tools.action(ChatReply(text, tool_calls=entries_of(self._calls))))

    def observe(self, observation: Observation) -> bool:
        self._forged_tokens = self._context.count_spelled(observation)
        found = self._tools.call_results(self._calls, observation) if self._calls else None
        if found is None or self._turns is None:
            self._context_ids = self._context.extend(observation, self._response_ids)
        else:
            self._context_ids = self._turns.extend(*found, self._response_ids)
        mode = self._context.mode
        history = [*self._prompt_ids, *self._response_ids] if mode == "append" else []
        self._prompt_ids = history + self._context_ids
        self._images = ([] if mode == "rebuild" else self._images) + image_urls(observation)
        return self._room() >= 1


def check_generation(generation: Generation, max_tokens: int) -> None:
    """Raise a `PolicyError` for what is not a response of at most `max_tokens` tokens."""
    count = len(generation.token_ids)
    if count > max_tokens:
        raise PolicyError(f"the policy returned {count} tokens, more than max_tokens={max_tokens}")
    if generation.finish_reason not in ("stop", "length"):
        raise PolicyError(f"finish_reason={generation.finish_reason!r}: expected 'stop' or 'length'")
    if generation.logprobs is None:
        return
    if len(generation.logprobs) != count:
        raise PolicyError(f"the policy returned {len(generation.logprobs)} log-probs for {count} tokens")
    if not all(map(math.isfinite, generation.logprobs)):
        raise PolicyError(f"the policy returned non-finite log-probs: {generation.logprobs!r:.200}")
