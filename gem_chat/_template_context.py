"""`TemplateContext`: the chat template renders the whole history for each prompt."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from gem_chat._calls.native import ProbeTool, find_calls
from gem_chat._chat_templates import shows
from gem_chat._conversation import TokenDialogue
from gem_chat._histories import ChatMessage, Conversations
from gem_chat._inputs import checked_renderer
from gem_chat._native_tools import CallResult
from gem_chat._probes import ADVICE, ANSWERS, MESSAGES, QUESTIONS, clipped
from gem_chat._rebuild_context import RebuildContext
from gem_chat._template import Render, Tokenizer
from gem_chat._thought_form import find_thought_form
from gem_chat._tool_turns import NativeReader, find_call_end
from gem_chat._tools import schema
from gem_chat.tools import ToolCall
from gem_core import Env, Observation
from gem_core._thoughts import thoughts_in
from gem_core.errors import ConfigError, UnknownName, UnsupportedTemplate
from gem_core.rollout._dialogue import Answer, Dialogue, TokenLimits
from gem_core.rollout._trajectory import ContextMode

_RESULT = "Neutral-Result"


class TemplateContext(RebuildContext):
    """A context that keeps the history as messages, and renders each prompt with the chat template.

    The template does what it does when the model is served: it may drop the thoughts of earlier turns, move
    the schemas of tools, or write a result in another way. A prompt that continues the sampled tokens of an
    earlier turn is in the row of that turn; any other prompt, also one that only writes a response with other
    tokens than were sampled, begins another row. So a row holds what the policy saw and sampled.

    Args:
        tokenizer: As in `AppendContext`.
        chat_template: As in `AppendContext`.
        system_prompt: As in `AppendContext`.
        template_kwargs: As in `AppendContext`.
        stop_ids: As in `AppendContext`.
        date: As in `AppendContext`.
        parse_special: As in `AppendContext`.
        native_tools: Whether the template gets the calls of tools and their results as messages of their own.
            None does so where the template shows them, and else leaves them in the text of messages.

    Raises:
        UnsupportedTemplate: The template takes no conversation of several turns, drops one of its inputs, or
            shows no calls of tools although `native_tools` is True; the error names the cause.
        ConfigError: A template is given, but the tokenizer cannot apply one.
    """

    mode: ContextMode = "template"

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
        super().__init__(
            tokenizer,
            chat_template=chat_template,
            system_prompt=system_prompt,
            template_kwargs=template_kwargs,
            stop_ids=stop_ids,
            date=date,
            parse_special=parse_special,
        )
        self._template_kwargs, self._date = dict(template_kwargs or {}), date
        self._native_tools = native_tools
        self._schemas: list[Mapping[str, Any]] = []
        self._messages: list[ChatMessage] = []
        self._model_ids: dict[str, str] = {}
        self._require_turns()
        if native_tools:
            self.with_tools([schema(ProbeTool())])

    def dialogue(self, env: Env, policy: Any, limits: TokenLimits, request_id: str) -> Dialogue:
        """Return the conversation of one episode, with a history of its own."""
        if not hasattr(policy, "generate"):
            raise ConfigError(f"{type(policy).__name__} takes messages; give it a MessagesContext")
        return _TemplateDialogue(env, policy, self.with_schemas([]), limits, request_id)

    def with_schemas(self, schemas: Sequence[Mapping[str, Any]]) -> TemplateContext:
        """Return a copy without a history, whose template gets the schemas of tools."""
        own = copy.copy(self)
        own._schemas, own._messages, own._model_ids = list(schemas), [], {}
        return own

    def with_tools(self, schemas: Sequence[Mapping[str, Any]]) -> TemplateTools | None:  # type: ignore[override]
        """Return the context for episodes with these tools; None if their calls are a part of the text.

        Raises:
            UnsupportedTemplate: The template does not show the schemas, calls, or results, although
                `native_tools` is True.
        """
        if self._native_tools is False or not schemas or not self._has_template:
            return None
        try:
            return TemplateTools(self.with_schemas(schemas))
        except UnsupportedTemplate:
            if self._native_tools:
                raise
            return None

    def call_stop_id(self, known: Collection[int]) -> int | None:
        """Return the token at which an engine must stop after native calls, as in `AppendContext`."""
        schemas = [schema(ProbeTool())]
        try:
            tools = self.with_tools(schemas)
            if tools is None:
                return None
            end = find_call_end(
                self._renderer(schemas),
                tools.native,
                self._tokens.encode,
                self._tokens.decode_all,
                self._tokens.atomic_ids,
                system_prompt=self._system_prompt,
            )
        except UnsupportedTemplate:
            return None
        return end.extra_stop_id(known, required=False)

    def first(self, observation: Observation) -> list[int]:
        """Begin a history; return the tokens of its first prompt."""
        return self.encode(self._begun(observation))

    def first_text(self, observation: Observation) -> str:
        """Begin a history; return the text that `first` encodes."""
        return self.shown_text(self._begun(observation))

    def extend(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> list[int]:
        """Add a response and an observation to the history; return the tokens of the next prompt."""
        return self.encode(self._extended(observation, response_ids, role))

    def extend_text(
        self, observation: Observation, response_ids: Sequence[int], *, role: str = "user"
    ) -> str:
        """Add a response and an observation to the history; return the text that `extend` encodes."""
        return self.shown_text(self._extended(observation, response_ids, role))

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a prompt, whose spelled special tokens are marked."""
        return self._tokens.encode(text)

    def shown_text(self, text: str) -> str:
        """Return the text that `encode` encodes, for trainers that encode texts themselves."""
        return self._tokens.shown(text)

    def _renderer(self, schemas: list[dict[str, Any]]) -> Render:
        """Return the chat template with the schemas of tools."""
        assert self._render is not None
        if not schemas:
            return self._render
        variables = self._texts.guarded_variables({**self._template_kwargs, "tools": schemas})
        return checked_renderer(
            self._tokenizer,
            self._own_template,
            variables,
            system_prompt=self._system_prompt,
            date=self._date,
        )

    @cached_property
    def conversations(self) -> Conversations:
        """Whole conversations in tokens."""

        def reader() -> NativeReader[Any]:
            try:
                native = find_calls(self._renderer([schema(ProbeTool())]))
            except UnknownName as error:
                raise UnsupportedTemplate(str(error)) from error
            return NativeReader(self, native, self._end, self._tokens.decode_all, self._stop_ids)

        assert self._render is not None
        return Conversations(
            self,
            reader,
            self._renderer,
            self._texts,
            self._end,
            self._stop_ids,
            self._system_prompt,
            find_thought_form(self._render, self._thinking, system_prompt=self._system_prompt),
        )

    def answered(self, response_ids: Sequence[int], text: str, calls: Sequence[ToolCall] = ()) -> ChatMessage:
        """Return a response as a message of the history.

        Args:
            response_ids: The response.
            text: Its text before the calls.
            calls: Its calls.
        """
        tokens = self._tokens
        special = [token_id for token_id in response_ids if token_id in tokens.atomic_ids]
        spelled = tokens.encode(tokens.decode_all(response_ids))
        form = self.conversations.thoughts
        thought, content = form.split(text)
        if form.in_text and thoughts_in(content):  # the template knows its own syntax
            ids = tokens.without_padding(response_ids)
            content = tokens.decode_all(ids[: len(ids) - self._end.length(ids, self._stop_ids)])
            content = form.trimmed(content[: calls[0].start] if calls else content)
        return ChatMessage(
            "assistant",
            content.rstrip() if calls else content,
            tuple(calls),
            thought,
            sampled=special == [token_id for token_id in spelled if token_id in tokens.atomic_ids],
        )

    def shown(self, observation: Observation, role: str = "user") -> ChatMessage:
        """Return an observation as a message of the history."""
        content = self._texts.content(observation)
        if isinstance(content, str):
            return ChatMessage(role, content)
        return ChatMessage(role, "\n".join(text for kind, text in content if kind == "text"), images=content)

    def rendered(self, added: Sequence[ChatMessage], model_ids: Mapping[str, str] | None = None) -> str:
        """Add messages to the history; return the text of the next prompt.

        Raises:
            UnsupportedTemplate: The template fails; the history is unchanged.
        """
        messages, ids = [*self._messages, *added], {**self._model_ids, **(model_ids or {})}
        text = self.conversations.text_of(messages, self._schemas, ids)
        self._messages, self._model_ids = messages, ids
        return text

    def _begun(self, observation: Observation) -> str:
        self._messages, self._model_ids = [], {}
        return self.rendered([self.shown(observation)])

    def _extended(self, observation: Observation, response_ids: Sequence[int], role: str) -> str:
        said = self.answered(response_ids, self.decode(response_ids))
        return self.rendered([said, self.shown(observation, role)])

    def _require_turns(self) -> None:
        """Require a template that takes a second question and shows it."""
        messages = [
            ChatMessage("user", QUESTIONS[0]),
            ChatMessage("assistant", ANSWERS[0]),
            ChatMessage("user", MESSAGES[1]),
        ]
        text = self.conversations.text_of(messages)
        if MESSAGES[1] not in text:
            raise UnsupportedTemplate(
                f"the chat template does not show the second question of a conversation ({clipped(text)}); "
                f"{ADVICE}"
            )


class TemplateTools(NativeReader[TemplateContext]):
    """A context for episodes whose tools the model calls as its chat template does.

    Args:
        context: The context, whose template has the schemas.

    Raises:
        UnsupportedTemplate: The template shows no schemas, calls, or results.
    """

    def __init__(self, context: TemplateContext) -> None:
        self._conversations = context.conversations
        reader = self._conversations.call_reader()
        super().__init__(context, reader.native, context._end, context._tokens.decode_all, context._stop_ids)
        question = ChatMessage("user", QUESTIONS[0])
        call = ToolCall(ProbeTool.name, {"key": "neutral"}, id="probe")
        asked = ChatMessage("assistant", calls=(call,))
        if not self._shows_result([question, asked]):
            raise UnsupportedTemplate(
                f"the chat template does not show the result of a call; set native_tools=False, or {ADVICE}"
            )
        self._takes_bare = self._shows_result([question, ChatMessage("assistant", ANSWERS[0])])

    def extend(self, results: Sequence[CallResult], note: str, response_ids: Sequence[int]) -> list[int]:
        """Add a response with calls and their results to the history; return the tokens of the next prompt.

        Calls that the template cannot show stay in the text of the response.

        Args:
            results: Results of all calls in the response.
            note: A further message of the environment; empty for none.
            response_ids: The response.
        """
        return self.context.encode(self._extended(results, note, response_ids))

    def extend_text(self, results: Sequence[CallResult], note: str, response_ids: Sequence[int]) -> str:
        """Return the text that `extend` encodes."""
        return self.context.shown_text(self._extended(results, note, response_ids))

    def _extended(self, results: Sequence[CallResult], note: str, response_ids: Sequence[int]) -> str:
        context = self.context
        text, calls, _ = self._conversations.read_calls(response_ids, context._schemas)
        start = len(context._model_ids)
        ids = [f"{start + index}" for index in range(len(results))]
        answers = [
            ChatMessage("tool", result.text, call_id=id, name=result.name)
            for id, result in zip(ids, results, strict=True)
        ]
        after = [ChatMessage("user", note)] if note else []
        if len(calls) == len(results) and (self.native.several or len(calls) == 1):
            named = [replace(call, id=id) for id, call in zip(ids, calls, strict=True)]
            said = context.answered(response_ids, text, named)
            given = {id: result.id for id, result in zip(ids, results, strict=True)}
            try:
                return context.rendered([said, *answers, *after], given)
            except UnsupportedTemplate:  # such as a template that takes a thought or a text beside calls
                pass
        whole = context.answered(response_ids, context.decode(response_ids))
        if self._takes_bare:
            return context.rendered([whole, *answers, *after])
        texts = [*(result.text for result in results), *filter(None, [note])]
        return context.rendered([whole, ChatMessage("user", "\n\n".join(texts))])

    def _shows_result(self, messages: Sequence[ChatMessage]) -> bool:
        result = ChatMessage("tool", _RESULT, call_id="probe", name=ProbeTool.name)
        try:
            return shows(self._conversations.text_of([*messages, result], self.context._schemas), _RESULT)
        except UnsupportedTemplate:
            return False


class _TemplateDialogue(TokenDialogue):
    """A conversation whose limits apply to each row."""

    def _start_limits(self, prompt_length: int) -> None:
        self._rows: list[tuple[list[int], int]] = []
        """Tokens of each row that can go on, and the number of those in its first prompt."""

    def _room(self) -> int:
        first = min((first for _, first in self._continued()), default=len(self._prompt_ids))
        return self._limits.after(first, "append").room(self._prompt_ids)

    def _continued(self) -> list[tuple[list[int], int]]:
        """Return the rows that the prompt continues."""
        prompt = self._prompt_ids
        return [row for row in self._rows if prompt[: len(row[0])] == row[0]]

    async def answer(self) -> Answer | None:
        answer = await super().answer()
        if answer is not None:
            best = max(self._continued(), key=lambda row: len(row[0]), default=([], len(self._prompt_ids)))
            self._rows = [row for row in self._rows if row is not best]
            self._rows.append(([*self._prompt_ids, *self._response_ids], best[1]))
        return answer
