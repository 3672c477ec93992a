"""Contexts: how observations and responses become the token ids of a prompt.

    context = AppendContext(tokenizer)
    prompt = context.first("Guess a number.")                    # the whole first prompt
    prompt += response_ids + context.extend("Higher.", response_ids)   # tokens only grow

`AppendContext` keeps every sampled token unchanged and encodes each message of the environment once.
`RebuildContext` renders the whole prompt in every turn. A context holds no state of an episode, so all
episodes of a run share one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from gem_core._util.forks import ForkSafeLock
from gem_core.core import Observation
from gem_core.errors import ConfigError
from gem_core.observations import observation_text
from gem_core.rollout.template import (
    AnswerEnd,
    MessageFormat,
    Render,
    Tokenizer,
    chat_renderer,
    find_answer_end,
    templates_of,
)
from gem_core.rollout.trajectory import ContextMode
from gem_core.rollout.vision import Content, ImageProcessor, content_of, for_template, is_processor

_REMEMBERED = 1024
"""Maximum number of first prompts, of later messages, and of decoded responses that a context caches."""


class Context(Protocol):
    """Interface of a context: turns observations into prompt tokens, and responses into text."""

    @property
    def mode(self) -> ContextMode:
        """Meaning of `Turn.context_ids`."""
        ...

    @property
    def image_processor(self) -> ImageProcessor | None:
        """The image processor; None for a context that takes text only."""
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
        """Return the text that `first` encodes, for trainers that encode texts themselves."""
        ...

    def extend_text(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> str:
        """Return the text that `extend` encodes."""
        ...

    def decode(self, response_ids: Sequence[int]) -> str:
        """Return the response as text for the environment, without end-of-turn and other special tokens."""
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


class AppendContext:
    """A context whose tokens only grow; the model's responses, including thinking, stay verbatim.

    A message of the environment is encoded as the text that the chat template adds for it to a neutral
    conversation, so the cost of a turn depends on its new tokens only. The end-of-turn token is added only
    if the model did not sample it.

    Args:
        tokenizer: A transformers tokenizer, or any object with the methods of `Tokenizer`. If it has no chat
            template, the plain format of `template.plain_renderer` is used. With a processor of the Qwen2-VL
            family, the context also takes observations with images.
        chat_template: Jinja text to use instead of the tokenizer's own template.
        system_prompt: First message of each conversation; None leaves it to the template.
        template_kwargs: Variables for the template, such as ``{"enable_thinking": False}``.

    Raises:
        UnsupportedTemplate: The template renders a message differently depending on the rest of the
            conversation; the error names the cause.
        ConfigError: A template is given, but the tokenizer cannot apply one.
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
        tokenizer, chat_template, self.image_processor = _split_processor(
            tokenizer, chat_template, system_prompt
        )
        self._tokens = _Tokens(tokenizer)
        self._render = chat_renderer(tokenizer, chat_template, template_kwargs)
        self._system_prompt = system_prompt
        self._formats: dict[str, MessageFormat] = {}
        self._lock = ForkSafeLock()
        self._format("user")
        # Episodes of a group share their first prompt, many environments repeat a few messages, and short
        # answers repeat.
        self._first_ids = lru_cache(_REMEMBERED)(self._encode_first)
        self._message_ids = lru_cache(_REMEMBERED)(self._encode_message)
        self._text = lru_cache(_REMEMBERED)(self._tokens.decode)

    def extra_stop_id(self, known: Collection[int]) -> int | None:
        """Return the token at which an engine must stop in addition to `known`; None if it needs none.

        None is also the result for a template that ends an answer with plain text.

        Args:
            known: Tokens at which the engine stops. With none, the result is the token with which the
                chat template ends an answer.

        Raises:
            UnsupportedTemplate: Each token that ends an answer also occurs inside one.
        """
        return self._format("user").end.extra_stop_id(known)

    def first(self, observation: Observation) -> list[int]:
        """Return the tokens of the first prompt."""
        return list(self._first_ids(self._content(observation)))

    def extend(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> list[int]:
        """Return the tokens between `response_ids` and the next response, at least one.

        Args:
            observation: The environment's answer to the response.
            response_ids: The response; used only to check whether it ends with the end-of-turn token.
            role: Role of the message in the chat template.
        """
        end = self._format(role).end
        overlap = end.overlap(response_ids)
        ids = self._message_ids(role, self._content(observation))
        return list(ids[end.space + overlap :] if overlap else ids)

    def first_text(self, observation: Observation) -> str:
        """Return the text that `first` encodes, for trainers that encode texts themselves."""
        return self._first_text(self._content(observation))

    def extend_text(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> str:
        """Return the text that `extend` encodes."""
        message_format = self._format(role)
        content = self._content(observation)
        text = _expanded(self.image_processor, message_format.between(for_template(content)), content)
        end = message_format.end
        if overlap := end.overlap(response_ids):
            text = text.partition(self._tokens.decode_all(end.closing[:overlap]))[2]
        return text

    def decode(self, response_ids: Sequence[int]) -> str:
        """Return the response as text, without end-of-turn and other special tokens."""
        overlap = self._format("user").end.overlap(response_ids)  # the tokens may not be flagged as special
        return self._text(tuple(response_ids[: len(response_ids) - overlap]))

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
        """Return the message format of a role, which is probed on first use."""
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
    """A context that uses each observation as the whole prompt of its turn.

    Use it with observation wrappers that keep the history themselves, such as `concat` or a summary of the
    history. Turns share no prefix, so such an episode can only be converted to turn rows.

    Args:
        tokenizer: As in `AppendContext`. With `raw`, only text is supported.
        raw: Whether to encode the observation unchanged, for `concat_chat` and other wrappers that apply a
            template themselves. False applies the chat template to the observation as one user message.
        chat_template: Jinja text to use instead of the tokenizer's own template.
        system_prompt: First message of each prompt; None leaves it to the template.
        template_kwargs: Variables for the template.

    Raises:
        UnsupportedTemplate: The template does not show how it ends an answer.
        ConfigError: `raw` is combined with an argument that only affects templates.
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
                "RebuildContext(raw=True) encodes the observation unchanged, so chat_template, system_prompt "
                "and template_kwargs have no effect; omit them or use raw=False"
            )
        tokenizer, chat_template, self.image_processor = _split_processor(
            tokenizer, chat_template, system_prompt
        )
        if raw:
            self.image_processor = None
        self._tokens = _Tokens(tokenizer)
        self._render = None if raw else chat_renderer(tokenizer, chat_template, template_kwargs)
        self._system_prompt = system_prompt
        self._end: AnswerEnd | None = None
        if self._render is not None:
            tokens = self._tokens
            self._end = find_answer_end(
                self._render, tokens.encode, tokens.decode_all, tokens.atomic_ids, system_prompt=system_prompt
            )

    def extra_stop_id(self, known: Collection[int]) -> int | None:
        """Return the token at which an engine must stop in addition to `known`, as in `AppendContext`.

        With `raw`, the template is unknown, so the result is None.
        """
        return None if self._end is None else self._end.extra_stop_id(known)

    def first(self, observation: Observation) -> list[int]:
        """Return the tokens of the whole prompt."""
        return self._tokens.encode(self.first_text(observation))

    def first_text(self, observation: Observation) -> str:
        """Return the text that `first` encodes, for trainers that encode texts themselves."""
        if self._render is None or self.image_processor is None:
            text = observation_text(observation)
            return text if self._render is None else _prompt(self._render, self._system_prompt, text)
        content = content_of(observation)
        return _expanded(self.image_processor, _prompt(self._render, self._system_prompt, content), content)

    def extend(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> list[int]:
        """Return the tokens of the next prompt, as `first` does; the observation contains the response."""
        return self.first(observation)

    def extend_text(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> str:
        """Return the text that `extend` encodes."""
        return self.first_text(observation)

    def decode(self, response_ids: Sequence[int]) -> str:
        """Return the response as text, without end-of-turn and other special tokens."""
        overlap = 0 if self._end is None else self._end.overlap(response_ids)
        return self._tokens.decode(response_ids[: len(response_ids) - overlap])


class _Tokens:
    """A tokenizer with the options that contexts need: no added tokens and no cleanup of spaces."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        # By default, some tokenizers of transformers 4 decode " ." as ".".
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


def _split_processor(
    tokenizer_or_processor: Any, chat_template: str | None, system_prompt: str | None
) -> tuple[Any, str | None, ImageProcessor | None]:
    """Return tokenizer, chat template, and image processor of a tokenizer or a processor.

    Raises:
        ConfigError: The processor is not of the Qwen2-VL family or has no chat template.
        DataError: The system prompt holds a placeholder of an image.
    """
    if not is_processor(tokenizer_or_processor):
        return tokenizer_or_processor, chat_template, None
    processor = tokenizer_or_processor
    # The tokenizer's own template is preferred, so that text prompts do not change.
    own = processor.tokenizer.chat_template is not None
    if chat_template is None and not own:
        chat_template = templates_of(processor.chat_template).get("default")
    if chat_template is None and not own:
        raise ConfigError("this processor has no chat template, so the positions of images are unknown")
    image_processor = ImageProcessor(processor)
    if system_prompt is not None:
        image_processor.check_text(system_prompt)
    return processor.tokenizer, chat_template, image_processor


def _prompt(render: Render, system_prompt: str | None, content: Content) -> str:
    """Return the text of a prompt with one message of the environment."""
    system = [] if system_prompt is None else [{"role": "system", "content": system_prompt}]
    return render([*system, {"role": "user", "content": for_template(content)}], generate=True)


def _expanded(image_processor: ImageProcessor | None, text: str, content: Content) -> str:
    return text if image_processor is None else image_processor.expand(text, content)
