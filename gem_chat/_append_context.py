"""`AppendContext`: the prompt of a turn is that of the turn before it, the response, and one more message."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any

from gem_chat._calls.native import ProbeTool
from gem_chat._conversation import TokenContext
from gem_chat._encoding import PromptTexts
from gem_chat._histories import GrowingConversations
from gem_chat._inputs import checked_renderer, first_prompt, split_processor
from gem_chat._message_format import MessageFormat
from gem_chat._template import Render, Tokenizer
from gem_chat._thinking import find_thinking
from gem_chat._tool_turns import TemplateToolContext, ToolTurns
from gem_chat._tools import schema
from gem_chat._vision import Content
from gem_core import Observation
from gem_core._util.forks import ForkSafeLock
from gem_core.errors import UnsupportedTemplate
from gem_core.rollout._trajectory import ContextMode

logger = logging.getLogger(__name__)

_REMEMBERED = 1024
"""Maximum number of first prompts, of later messages, and of decoded responses that a context caches."""


class AppendContext(TokenContext):
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
        stop_ids: Tokens at which the engine stops by itself, see `gem_chat._stop_ids`. A response that
            ends with one of them, or with the tokenizer's end-of-sequence token, is not ended again.
        date: Day that the template takes for today, such as ``"2026-01-31"``; None for the real one.
        parse_special: Whether a special token that an observation spells, such as ``<|im_end|>``, becomes
            that token. By default, what an observation holds is text; see `gem_chat._special_tokens`. The
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
        tokenizer, chat_template, self.image_processor = split_processor(
            tokenizer, chat_template, system_prompt
        )
        self._tokenizer, self._own_template = tokenizer, chat_template
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
            schemas: Schemas of the tools, as `gem_chat._calls.formats.schema` returns them.

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
            return self._tool_context(schemas)
        except UnsupportedTemplate as error:
            if self._native_tools:
                raise
            if not self._with_tools:
                logger.warning("tools are called in the text of messages: %s", error)
            return None

    def _tool_context(self, schemas: Sequence[Mapping[str, Any]]) -> TemplateToolContext[AppendContext]:
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
        return TemplateToolContext(context, turns, context._texts, context._stop_ids)

    @cached_property
    def conversations(self) -> GrowingConversations:
        """Whole conversations in tokens, for agents that keep their own history."""

        def renderer(schemas: list[dict[str, Any]]) -> Render:
            if not schemas:
                return self._render
            variables = self._texts.guarded_variables({**self._template_kwargs, "tools": schemas})
            return checked_renderer(
                self._tokenizer, self._own_template, variables, date=self._options["date"]
            )

        return GrowingConversations(
            self,
            lambda: self._tool_context([schema(ProbeTool())]),
            renderer,
            self._texts,
            self._format("user").end,
            self._stop_ids,
            self._system_prompt,
        )

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

    def call_stop_id(self, known: Collection[int]) -> int | None:
        """Return the token at which an engine must stop after native calls, in addition to `known`.

        None is the result if it needs none, or if calls are a part of the text.
        """
        if self._native_tools is False or not self._has_template:
            return None
        try:
            end = self._tool_context([schema(ProbeTool())]).end
        except UnsupportedTemplate:
            return None
        return end.extra_stop_id(known, required=False)

    def first(self, observation: Observation) -> list[int]:
        """Return the tokens of the first prompt."""
        return list(self._first_ids(self._texts.content(observation)))

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
        ids = self._message_ids(role, self._texts.content(observation))
        return list(ids[end.space + written :] if written else ids)

    def first_text(self, observation: Observation) -> str:
        """Return the text that `first` encodes, for trainers that encode texts themselves."""
        return self._tokens.shown(self._first_text(self._texts.content(observation)))

    def extend_text(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> str:
        """Return the text that `extend` encodes."""
        text = self._message_text(role, self._texts.content(observation))
        end = self._format(role).end
        if written := end.written(response_ids, self._stop_ids):
            text = text.partition(self._tokens.decode_all(end.closing[:written]))[2]
        return self._tokens.shown(text)

    def count_spelled(self, observation: Observation) -> int:
        """Return the number of special tokens that the texts of an observation spell."""
        return self._texts.count(self._texts.content(observation))

    def decode(self, response_ids: Sequence[int]) -> str:
        """Return the response as text, with its thoughts as ``<think>...</think>`` and without its end."""
        return self._text(tuple(response_ids))

    def _decode(self, response_ids: tuple[int, ...]) -> str:
        ids = self._tokens.without_padding(response_ids)
        end = self._format("user").end.length(ids, self._stop_ids)
        return self._thinking.rewrite(self._tokens.decode_all(ids[: len(ids) - end]))

    def _first_text(self, content: Content) -> str:
        return self._texts.written(partial(first_prompt, self._render, self._system_prompt), content)

    def _message_text(self, role: str, content: Content) -> str:
        return self._texts.written(self._format(role).between, content)

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
