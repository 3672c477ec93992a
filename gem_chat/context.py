"""Contexts: how observations and responses become the token ids of a prompt.

    context = AppendContext(tokenizer)
    prompt = context.first("Guess a number.")                    # the whole first prompt
    prompt += response_ids + context.extend("Higher.", response_ids)   # tokens only grow

`AppendContext` keeps every sampled token unchanged and encodes each message of the environment once.
`RebuildContext` renders the whole prompt in every turn. A context holds no state of an episode, so all
episodes of a run share one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

from gem_chat.answer_end import AnswerEnd, find_answer_end
from gem_chat.calls.native import ProbeTool
from gem_chat.encoding import PromptTexts
from gem_chat.inputs import checked_renderer
from gem_chat.message_format import MessageFormat
from gem_chat.template import Render, Tokenizer, chat_renderer, templates_of
from gem_chat.thinking import ThinkingFormat, find_thinking
from gem_chat.tool_turns import TemplateToolContext, ToolTurns
from gem_chat.vision import Content, ImageProcessor, content_of, for_template, is_processor
from gem_core._util.forks import ForkSafeLock
from gem_core.core import Observation
from gem_core.errors import ConfigError, UnsupportedTemplate
from gem_core.observations import observation_text
from gem_core.rollout.trajectory import ContextMode
from gem_core.tools import schema

logger = logging.getLogger(__name__)

_REMEMBERED = 1024
"""Maximum number of first prompts, of later messages, and of decoded responses that a context caches."""


class AppendContext:
    """A context whose tokens only grow; the model's responses, including thinking, stay verbatim.

    A message of the environment is encoded as the text that the chat template adds for it to a neutral
    conversation, so the cost of a turn depends on its new tokens only. The end-of-turn token is added only
    if the model did not sample it.

    Args:
        tokenizer: A transformers tokenizer, or any object with the methods of `Tokenizer`. If it has no chat
            template, the plain format of `template.plain_renderer` is used. With a processor of the Qwen2-VL
            family, the context also takes observations with images.
        chat_template: Jinja text to use instead of the tokenizer's own template, or the name of one of its
            templates.
        system_prompt: First message of each conversation; None leaves it to the template.
        template_kwargs: Variables for the template, such as ``{"enable_thinking": False}``.
        stop_ids: Tokens at which the engine stops by itself, see `gem_chat.stop_ids`. A response that
            ends with one of them, or with the tokenizer's end-of-sequence token, is not ended again.
        date: Day that the template takes for today, such as ``"2026-01-31"``; None for the real one.
        parse_special: Whether a special token that an observation spells, such as ``<|im_end|>``, becomes
            that token. By default, what an observation holds is text; see `gem_core.special_tokens`. The
            system prompt may always spell special tokens.
        native_tools: Whether the model calls tools as its chat template does: the template gets their
            schemas, and their results come back in tool turns. None does so where the template has tool turns
            that can be appended, and else leaves calls and results in the text of messages.

    Raises:
        UnsupportedTemplate: The template renders a message differently depending on the rest of the
            conversation, drops one of its inputs, or has no tool
            turns although `native_tools` is True; the error names the cause.
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
        stop_ids: Collection[int] = (),
        date: str | None = None,
        parse_special: bool = False,
        native_tools: bool | None = None,
    ) -> None:
        self._source, self._chat_template = tokenizer, chat_template
        self._options: dict[str, Any] = {"stop_ids": stop_ids, "date": date, "parse_special": parse_special}
        self._template_kwargs, self._native_tools = dict(template_kwargs or {}), native_tools
        self._with_tools: dict[str, TemplateToolContext[AppendContext] | None] = {}
        tokenizer, chat_template, self.image_processor = _split_processor(
            tokenizer, chat_template, system_prompt
        )
        self._has_template = (
            chat_template is not None or getattr(tokenizer, "chat_template", None) is not None
        )
        self._texts = PromptTexts(tokenizer, chat_template, self.image_processor, parse_special)
        self._tokens = self._texts.encoder
        eos = tokenizer.eos_token_id
        self._stop_ids = frozenset([*stop_ids, *([] if eos is None else [eos])])
        self._render = checked_renderer(
            tokenizer,
            chat_template,
            self._texts.guarded_variables(template_kwargs),
            system_prompt=system_prompt,
            date=date,
        )
        self._system_prompt = system_prompt
        self._formats: dict[str, MessageFormat] = {}
        self._lock = ForkSafeLock()
        self._format("user")
        # Episodes of a group share their first prompt, many environments repeat a few messages, and short
        # answers repeat.
        self._first_ids = lru_cache(_REMEMBERED)(self._encode_first)
        self._message_ids = lru_cache(_REMEMBERED)(self._encode_message)
        self._thinking = find_thinking(self._render, system_prompt=system_prompt)
        self._text = lru_cache(_REMEMBERED)(self._decode)
        if native_tools:
            self.with_tools([schema(ProbeTool())])

    def with_tools(self, schemas: Sequence[Mapping[str, Any]]) -> TemplateToolContext[AppendContext] | None:
        """Return the context for episodes with these tools; None if their calls are a part of the text.

        The schemas replace those in `template_kwargs`, if there are any.

        Args:
            schemas: Schemas of the tools, as `gem_chat.calls.formats.schema` returns them.

        Raises:
            UnsupportedTemplate: The template has no tool turns that can be appended, although `native_tools`
                is True.
        """
        if self._native_tools is False or not schemas or not self._has_template:
            return None
        key = json.dumps(list(schemas), sort_keys=True)
        with self._lock:
            if key not in self._with_tools:
                self._with_tools[key] = self._for_tools(schemas)
            return self._with_tools[key]

    def _for_tools(self, schemas: Sequence[Mapping[str, Any]]) -> TemplateToolContext[AppendContext] | None:
        try:
            context = AppendContext(
                self._source,
                chat_template=self._chat_template,
                system_prompt=self._system_prompt,
                template_kwargs={**self._template_kwargs, "tools": list(schemas)},
                native_tools=False,
                **self._options,
            )
            tokens = context._tokens
            turns = ToolTurns(
                context._render,
                tokens.encode,
                tokens.decode_all,
                tokens.atomic_ids,
                system_prompt=self._system_prompt,
            )
        except UnsupportedTemplate as error:
            if self._native_tools:
                raise
            if not self._with_tools:
                logger.warning("tools are called in the text of messages: %s", error)
            return None
        return TemplateToolContext(context, turns, context._texts, context._stop_ids)

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
            response_ids: The response; used only to check how it ends.
            role: Role of the message in the chat template.
        """
        end = self._format(role).end
        written = end.written(response_ids, self._stop_ids)
        ids = self._message_ids(role, self._content(observation))
        return list(ids[end.space + written :] if written else ids)

    def first_text(self, observation: Observation) -> str:
        """Return the text that `first` encodes, for trainers that encode texts themselves."""
        return self._tokens.shown(self._first_text(self._content(observation)))

    def extend_text(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> str:
        """Return the text that `extend` encodes."""
        text = self._message_text(role, self._content(observation))
        end = self._format(role).end
        if written := end.written(response_ids, self._stop_ids):
            text = text.partition(self._tokens.decode_all(end.closing[:written]))[2]
        return self._tokens.shown(text)

    def count_spelled(self, observation: Observation) -> int:
        """Return the number of special tokens that the texts of an observation spell."""
        return self._texts.count(self._content(observation))

    def decode(self, response_ids: Sequence[int]) -> str:
        """Return the response as text, with its thoughts as ``<think>...</think>`` and without its end."""
        return self._text(tuple(response_ids))

    def _decode(self, response_ids: tuple[int, ...]) -> str:
        ids = self._tokens.without_padding(response_ids)
        end = self._format("user").end.length(ids, self._stop_ids)
        return self._thinking.rewrite(self._tokens.decode_all(ids[: len(ids) - end]))

    def _content(self, observation: Observation) -> Content:
        return observation_text(observation) if self.image_processor is None else content_of(observation)

    def _first_text(self, content: Content) -> str:
        content = self._texts.guarded(content)
        return _expanded(self.image_processor, _prompt(self._render, self._system_prompt, content), content)

    def _message_text(self, role: str, content: Content) -> str:
        content = self._texts.guarded(content)
        return _expanded(self.image_processor, self._format(role).between(for_template(content)), content)

    def _encode_first(self, content: Content) -> tuple[int, ...]:
        return tuple(self._tokens.encode(self._first_text(content)))

    def _encode_message(self, role: str, content: Content) -> tuple[int, ...]:
        return tuple(self._tokens.encode(self._message_text(role, content)))

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
        chat_template: Jinja text to use instead of the tokenizer's own template, or the name of one of its
            templates.
        system_prompt: First message of each prompt; None leaves it to the template.
        template_kwargs: Variables for the template.
        stop_ids: As in `AppendContext`.
        date: As in `AppendContext`.
        parse_special: As in `AppendContext`. With `raw`, the wrapper decides: what it hands over is encoded
            with special tokens, and `concat_chat` keeps the texts of the environment from spelling any.

    Raises:
        UnsupportedTemplate: The template does not show how it ends an answer, or drops one of its inputs.
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
        stop_ids: Collection[int] = (),
        date: str | None = None,
        parse_special: bool = False,
    ) -> None:
        given = (chat_template, system_prompt, date)
        if raw and (any(value is not None for value in given) or template_kwargs):
            raise ConfigError(
                "RebuildContext(raw=True) encodes the observation unchanged, so chat_template, "
                "system_prompt, template_kwargs, and date have no effect; omit them or use raw=False"
            )
        tokenizer, chat_template, self.image_processor = _split_processor(
            tokenizer, chat_template, system_prompt
        )
        if raw:
            self.image_processor = None
        self._texts = PromptTexts(tokenizer, chat_template, self.image_processor, raw or parse_special)
        self._tokens = self._texts.encoder
        eos = tokenizer.eos_token_id
        self._stop_ids = frozenset([*stop_ids, *([] if eos is None else [eos])])
        self._render = None
        if not raw:
            self._render = checked_renderer(
                tokenizer,
                chat_template,
                self._texts.guarded_variables(template_kwargs),
                system_prompt=system_prompt,
                date=date,
            )
        self._system_prompt = system_prompt
        self._end = AnswerEnd(0, [], False, [], {})
        self._thinking = ThinkingFormat()
        tokens = self._tokens
        if self._render is not None:
            self._end = find_answer_end(
                self._render, tokens.encode, tokens.decode_all, tokens.atomic_ids, system_prompt=system_prompt
            )
            self._thinking = find_thinking(self._render, system_prompt=system_prompt)
        elif hasattr(tokenizer, "apply_chat_template"):  # the prompts are likely to have this template
            own = chat_renderer(tokenizer)
            self._thinking = find_thinking(own)
            with suppress(UnsupportedTemplate):
                self._end = find_answer_end(own, tokens.encode, tokens.decode_all, tokens.atomic_ids)

    def extra_stop_id(self, known: Collection[int]) -> int | None:
        """Return the token at which an engine must stop in addition to `known`, as in `AppendContext`.

        With `raw`, the template is unknown, so the result is None.
        """
        return None if self._render is None else self._end.extra_stop_id(known)

    def with_tools(self, schemas: Sequence[Mapping[str, Any]]) -> None:
        """Return None: an observation that holds the whole conversation holds calls and results as text."""
        return

    def first(self, observation: Observation) -> list[int]:
        """Return the tokens of the whole prompt."""
        return self._tokens.encode(self._marked_text(observation))

    def first_text(self, observation: Observation) -> str:
        """Return the text that `first` encodes, for trainers that encode texts themselves."""
        return self._tokens.shown(self._marked_text(observation))

    def count_spelled(self, observation: Observation) -> int:
        """Return the number of special tokens that an observation spells; 0 with `raw`."""
        return 0 if self._render is None else self._texts.count(self._content(observation))

    def _content(self, observation: Observation) -> Content:
        return observation_text(observation) if self.image_processor is None else content_of(observation)

    def _marked_text(self, observation: Observation) -> str:
        content = self._texts.guarded(self._content(observation))
        if self._render is None:
            assert isinstance(content, str)  # a raw context takes text only
            return content
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
        """Return the response as text, with its thoughts as ``<think>...</think>`` and without its end."""
        ids = self._tokens.without_padding(response_ids)
        end = self._end.length(ids, self._stop_ids)
        text = self._tokens.decode_all(ids[: len(ids) - end])
        if self._render is None and self._thinking.close not in text:  # the opening of the answer is unknown
            return replace(self._thinking, prefilled=False).rewrite(text)
        return self._thinking.rewrite(text)


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
