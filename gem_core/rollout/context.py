"""Contexts: how observations and responses become the token ids of a prompt.

    context = AppendContext(tokenizer)
    prompt = context.first("Guess a number.")                    # the whole first prompt
    prompt += response_ids + context.extend("Higher.", response_ids)   # tokens only grow

`AppendContext` keeps every sampled token as it was sampled and encodes each message of the
environment once. `RebuildContext` renders each turn's prompt anew. A context holds no episode: one
serves all episodes of a run, at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from gem_core.core import Observation
from gem_core.errors import ConfigError
from gem_core.observations import observation_text
from gem_core.rollout.template import MessageFormat, Render, Tokenizer, chat_renderer
from gem_core.rollout.trajectory import ContextMode
from gem_core.rollout.vision import Content, ImageProcessor, content_of, for_template, is_processor

_REMEMBERED = 1024
"""Messages of each kind whose token ids a context keeps."""


class Context(Protocol):
    """What the runner needs to know about tokens."""

    @property
    def mode(self) -> ContextMode:
        """How `Turn.context_ids` is to be read."""
        ...

    @property
    def image_processor(self) -> ImageProcessor | None:
        """What makes tokens of images; None for a context that takes text only."""
        ...

    def first(self, observation: Observation) -> list[int]:
        """The whole prompt of the first turn."""
        ...

    def extend(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> list[int]:
        """The next turn's `Turn.context_ids`.

        In append mode the tokens between this response and the next one, at least one; in rebuild
        mode the whole next prompt.
        """
        ...

    def first_text(self, observation: Observation) -> str:
        """The text that `first` encodes, for a trainer that wants texts and encodes them itself."""
        ...

    def extend_text(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> str:
        """The text whose tokens `extend` gives."""
        ...

    def decode(self, response_ids: Sequence[int]) -> str:
        """The response as the environment gets it: without end-of-turn and other special tokens."""
        ...


class AppendContext:
    """A context whose tokens only grow; what the model wrote stays verbatim, thinking included.

    The environment's message is encoded as the difference that the chat template makes on a neutral
    conversation, so a turn costs as much as its new tokens. The end-of-turn token is added only
    if the model did not sample it.

    Args:
        tokenizer: A transformers tokenizer or anything with the methods of `Tokenizer`. Without a
            chat template the plain format of `template.plain_renderer` is used. A processor of the
            Qwen2-VL kind takes observations with images, too.
        chat_template: Jinja text used instead of the tokenizer's own.
        system_prompt: First message of each conversation; None leaves it to the template.
        template_kwargs: Variables for the template, such as ``{"enable_thinking": False}``.

    Raises:
        UnsupportedTemplate: The text that the template gives a message depends on the rest of the
            conversation; the message says on what.
        ConfigError: A template for a tokenizer that cannot apply one.
    """

    mode: ContextMode = "append"

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        chat_template: str | None = None,
        system_prompt: str | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        tokenizer, chat_template, self.image_processor = _taken_apart(tokenizer, chat_template)
        self._tokens = _Tokens(tokenizer)
        self._render = chat_renderer(tokenizer, chat_template, template_kwargs)
        self._system_prompt = system_prompt
        self._formats: dict[str, MessageFormat] = {}
        self._lock = threading.Lock()
        self._format("user")
        # Episodes of a group share their first prompt, and many environments say the same few things.
        self._first_ids = lru_cache(_REMEMBERED)(self._encode_first)
        self._message_ids = lru_cache(_REMEMBERED)(self._encode_message)

    @property
    def end_of_turn_id(self) -> int | None:
        """The special token that closes a response; None when the template has none.

        Engines should stop on it, besides the tokenizer's own end-of-sequence token.
        """
        end_ids = self._format("user").end_ids
        return end_ids[0] if end_ids else None

    def first(self, observation: Observation) -> list[int]:
        """The whole first prompt."""
        return list(self._first_ids(self._content(observation)))

    def extend(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> list[int]:
        """Tokens between `response_ids` and the next response, at least one.

        Args:
            observation: What the environment answered.
            response_ids: The response, only to see whether it ends with the end-of-turn token.
            role: Role of the message in the chat template.
        """
        message_format = self._format(role)
        overlap = message_format.overlap(response_ids)
        ids = self._message_ids(role, self._content(observation))
        return list(ids[message_format.space + overlap :] if overlap else ids)

    def first_text(self, observation: Observation) -> str:
        """The text that `first` encodes, for a trainer that wants texts and encodes them itself."""
        return self._first_text(self._content(observation))

    def extend_text(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> str:
        """The text whose tokens `extend` gives."""
        message_format = self._format(role)
        content = self._content(observation)
        text = _expanded(self.image_processor, message_format.between(for_template(content)), content)
        overlap = message_format.overlap(response_ids)
        if overlap:
            text = text.partition(self._tokens.decode_all(message_format.end_ids[:overlap]))[2]
        return text

    def decode(self, response_ids: Sequence[int]) -> str:
        """The response as text, without end-of-turn and other special tokens."""
        overlap = self._format("user").overlap(response_ids)  # need not be flagged as special
        return self._tokens.decode(response_ids[: len(response_ids) - overlap])

    def _content(self, observation: Observation) -> Content:
        return observation_text(observation) if self.image_processor is None else content_of(observation)

    def _first_text(self, content: Content) -> str:
        return _expanded(self.image_processor, _prompt(self._render, self._system_prompt, content), content)

    def _encode_first(self, content: Content) -> tuple[int, ...]:
        return tuple(self._tokens.encode(self._first_text(content)))

    def _encode_message(self, role: str, content: Content) -> tuple[int, ...]:
        text = self._format(role).between(for_template(content))
        return tuple(self._tokens.encode(_expanded(self.image_processor, text, content)))

    def _format(self, role: str) -> MessageFormat:
        """The format of a role, probed when the role is first used."""
        with self._lock:
            if role not in self._formats:
                self._formats[role] = MessageFormat(
                    self._render,
                    self._tokens.encode,
                    self._tokens.decode_all,
                    self._tokens.atomic_ids,
                    role=role,
                    system_prompt=self._system_prompt,
                    placeholder=None if self.image_processor is None else self.image_processor.token,
                )
            return self._formats[role]


class RebuildContext:
    """A context that takes each observation as the whole prompt of its turn.

    For observation wrappers that keep the history themselves (`concat`, cut or summarised
    histories). Turns share no prefix, so such an episode can only be turned into turn rows.

    Args:
        tokenizer: As in `AppendContext`; `raw` takes text only.
        raw: False puts the observation into the chat template as one user message. True encodes it
            as it is: for `concat_chat` and other wrappers that have applied a template already.
        chat_template: Jinja text used instead of the tokenizer's own.
        system_prompt: First message of each prompt; None leaves it to the template.
        template_kwargs: Variables for the template.

    Raises:
        ConfigError: `raw` together with an argument that only a template could honour.
    """

    mode: ContextMode = "rebuild"

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        raw: bool = False,
        chat_template: str | None = None,
        system_prompt: str | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if raw and (chat_template is not None or system_prompt is not None or template_kwargs):
            raise ConfigError(
                "RebuildContext(raw=True) encodes the observation as it is; chat_template, system_prompt and "
                "template_kwargs have no effect there, so leave them out or use raw=False"
            )
        tokenizer, chat_template, self.image_processor = _taken_apart(tokenizer, chat_template)
        if raw:
            self.image_processor = None
        self._tokens = _Tokens(tokenizer)
        self._render = None if raw else chat_renderer(tokenizer, chat_template, template_kwargs)
        self._system_prompt = system_prompt

    def first(self, observation: Observation) -> list[int]:
        """The whole prompt."""
        return self._tokens.encode(self.first_text(observation))

    def first_text(self, observation: Observation) -> str:
        """The text that `first` encodes, for a trainer that wants texts and encodes them itself."""
        if self._render is None or self.image_processor is None:
            text = observation_text(observation)
            return text if self._render is None else _prompt(self._render, self._system_prompt, text)
        content = content_of(observation)
        return _expanded(self.image_processor, _prompt(self._render, self._system_prompt, content), content)

    def extend(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> list[int]:
        """The whole next prompt: the same as `first`, the response is in the observation already."""
        return self.first(observation)

    def extend_text(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> str:
        """The text whose tokens `extend` gives."""
        return self.first_text(observation)

    def decode(self, response_ids: Sequence[int]) -> str:
        """The response as text, without special tokens."""
        return self._tokens.decode(response_ids)


class _Tokens:
    """A tokenizer with the options that contexts rely on: no added tokens, no cleaned-up spaces."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        # Some tokenizers of transformers 4 turn " ." into "." unless told not to.
        self._exact = (
            {"clean_up_tokenization_spaces": False} if hasattr(tokenizer, "apply_chat_template") else {}
        )
        self.atomic_ids = frozenset(tokenizer.all_special_ids) | frozenset(
            getattr(tokenizer, "added_tokens_decoder", ())
        )

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True, **self._exact))

    def decode_all(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False, **self._exact))


def _taken_apart(given: Any, chat_template: str | None) -> tuple[Any, str | None, ImageProcessor | None]:
    """Tokenizer, template and images of a tokenizer or a processor.

    Raises:
        ConfigError: A processor of another kind than Qwen2-VL, or one without a chat template.
    """
    if not is_processor(given):
        return given, chat_template, None
    own = getattr(given.tokenizer, "chat_template", None)  # first, for the sake of text: it stays as it was
    template = chat_template or own or given.chat_template
    if template is None:
        raise ConfigError("this processor has no chat template, so there is no telling where images stand")
    return given.tokenizer, template, ImageProcessor(given)


def _prompt(render: Render, system_prompt: str | None, content: Content) -> str:
    """The text of a prompt with one message of the environment."""
    system = [] if system_prompt is None else [{"role": "system", "content": system_prompt}]
    return render([*system, {"role": "user", "content": for_template(content)}], generate=True)


def _expanded(image_processor: ImageProcessor | None, text: str, content: Content) -> str:
    return text if image_processor is None else image_processor.expand(text, content)
