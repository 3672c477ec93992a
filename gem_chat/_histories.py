"""`Conversations`: the conversations of a program that keeps its own history, as tokens.

An agent sends all of its messages in each request. `Conversations.tail` returns the tokens between a response
that was sampled and the next one, so a prompt is what the model saw and sampled before, and these tokens.
Where the history was rewritten, `Conversations.whole` renders it from scratch, with the tokens of the
responses that are still in it.
"""

from __future__ import annotations

import functools
import json
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from gem_chat._answer_end import AnswerEnd
from gem_chat._encoding import PromptTexts
from gem_chat._native_tools import CallResult
from gem_chat._probes import LAST_ANSWERS, QUESTIONS, after, common_length, system_messages
from gem_chat._template import Render
from gem_chat._thought_form import THOUGHT_FIELD, ThoughtForm
from gem_chat._tool_turns import NativeReader, TemplateToolContext
from gem_chat._vision import Content, Parts, for_template
from gem_chat.tools import Tool, ToolCall
from gem_core import without_thoughts
from gem_core._thoughts import thoughts_in
from gem_core.errors import UnsupportedTemplate

_REMEMBERED = 64
"""Maximum number of lists of tools, and of tails, that are cached."""
_SAFE_ID = re.compile(r"[\w.:-]{1,64}")
"""Ids of calls that a model may give; others are replaced, because templates write them into results."""


@dataclass(frozen=True)
class ChatMessage:
    """A message of a conversation.

    Attributes:
        role: "system", "user", "assistant", or "tool".
        content: Its text, without thoughts and calls.
        calls: Calls of an assistant, with their ids.
        thought: Thoughts of an assistant.
        call_id: Id of the call to which a message of a tool is the result.
        name: Name of that tool.
        images: Images between texts in the message, in which case `content` is only the texts; else empty.
        sampled: Whether special tokens in the texts of an assistant were sampled as such, so they stay what
            they are.
    """

    role: str
    content: str = ""
    calls: tuple[ToolCall, ...] = ()
    thought: str = ""
    call_id: str = ""
    name: str = ""
    images: Parts = ()
    sampled: bool = False


class _Decoder(Protocol):
    def decode(self, response_ids: Sequence[int]) -> str: ...


class _Context(_Decoder, Protocol):
    def extend(self, observation: str, response_ids: Sequence[int]) -> list[int]: ...


class OfferedTool(Tool):
    """A tool that a program offers to the model and carries out itself.

    Args:
        schema: The tool as chat APIs describe it.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        function = schema["function"]
        self.name, self.description = function["name"], function.get("description") or ""
        self.parameters = function.get("parameters") or {"type": "object", "properties": {}}


class Conversations:
    """Encodes conversations, and reads responses.

    Args:
        context: The context whose chat template they have.
        call_reader: Function that returns what reads calls, for the form of calls.
        renderer: Function from schemas of tools to the chat template with them.
        texts: Encodes prompts; texts of messages spell no special tokens.
        end: How the template ends an answer before a user message.
        stop_ids: Tokens at which the engine stops by itself.
        system_prompt: First message of a conversation that has no system message of its own.
        thoughts: How an assistant's message holds a thought.

    Attributes:
        thoughts: As given.
        call_reader: As given, for one call.
    """

    def __init__(
        self,
        context: _Decoder,
        call_reader: Callable[[], NativeReader[Any]],
        renderer: Callable[[list[dict[str, Any]]], Render],
        texts: PromptTexts,
        end: AnswerEnd,
        stop_ids: Collection[int],
        system_prompt: str | None,
        thoughts: ThoughtForm = THOUGHT_FIELD,
    ) -> None:
        self._decoder, self._texts, self._end = context, texts, end
        self._stop_ids, self._system, self.thoughts = stop_ids, system_messages(system_prompt), thoughts
        self.call_reader = functools.cache(call_reader)
        self._renderer = functools.lru_cache(_REMEMBERED)(lambda text: renderer(json.loads(text)))

    def whole(
        self,
        messages: Sequence[ChatMessage],
        schemas: Sequence[Mapping[str, Any]] = (),
        sampled: Mapping[int, Sequence[int]] | None = None,
        model_ids: Mapping[str, str] | None = None,
    ) -> list[int]:
        """Return the tokens of a prompt.

        Args:
            messages: The whole conversation.
            schemas: Schemas of the tools.
            sampled: Sampled responses by the index of their messages. Their tokens take the place of the
                texts, unless the template does not show an assistant's text unchanged.
            model_ids: Ids that the model gave to calls, by the ids in the messages.

        Raises:
            UnsupportedTemplate: The template cannot render the conversation, or has no tool calls.
        """
        render = self._renderer(json.dumps(list(schemas)))
        given = {number: list(ids) for number, ids in (sampled or {}).items() if ids}
        if given:
            spliced = self._spliced(render, messages, given, model_ids or {})
            if spliced is not None:
                return spliced
        return self._texts.encoder.encode(self.text_of(messages, schemas, model_ids))

    def text_of(
        self,
        messages: Sequence[ChatMessage],
        schemas: Sequence[Mapping[str, Any]] = (),
        model_ids: Mapping[str, str] | None = None,
    ) -> str:
        """Return the text of a prompt, in which spelled special tokens are marked; see `whole`."""
        render = self._renderer(json.dumps(list(schemas)))
        text = render(self._shown(messages, {}, model_ids or {}), generate=True)
        return self._texts.with_images(text, map(self._guarded, messages))

    def read(
        self, response_ids: Sequence[int], schemas: Sequence[Mapping[str, Any]] = ()
    ) -> tuple[ChatMessage, bool]:
        """Return a response as a message, and whether it holds a call that cannot be read.

        A response with such a call has its whole text as content, and no calls. A call of an unknown tool,
        or with arguments that its schema does not allow, is a call like any other: the program answers it.
        """
        text, calls, malformed = self.read_calls(response_ids, schemas)
        content = without_thoughts(text).rstrip() if calls else without_thoughts(text)
        return ChatMessage("assistant", content, tuple(calls), thoughts_in(text)), malformed

    def read_calls(
        self, response_ids: Sequence[int], schemas: Sequence[Mapping[str, Any]] = ()
    ) -> tuple[str, list[ToolCall], bool]:
        """Return the text of a response before its calls, the calls, and whether one cannot be read."""
        if not schemas:
            return self._decoder.decode(response_ids), [], False
        tools = [OfferedTool(schema) for schema in schemas]
        text, calls = self.call_reader().read(response_ids, tools)
        if any(call.error is not None and not _is_complete(call, schemas) for call in calls):
            return self._decoder.decode(response_ids), [], True
        return text, calls, False

    def text(self, response_ids: Sequence[int]) -> str:
        """Return the text of tokens, special ones included."""
        return self._texts.encoder.decode_all(response_ids)

    def _shown(
        self, messages: Sequence[ChatMessage], marks: Mapping[int, str], model_ids: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        """Return messages as the template takes them, with a mark in place of some of an assistant."""
        ids: dict[str, str] = {}
        has_calls = any(message.calls for message in messages)
        native = self.call_reader().native if has_calls else None
        shown: list[dict[str, Any]] = [] if messages and messages[0].role == "system" else list(self._system)
        for number, message in enumerate(messages):
            guarded = self._guarded(message)
            entry: dict[str, Any] = {"role": message.role, "content": for_template(guarded)}
            if number in marks:
                entry["content"] = marks[number]
            elif message.role == "assistant" and message.thought:
                thought = message.thought if message.sampled else self._texts.guarded_text(message.thought)
                entry |= self.thoughts.fields(thought, entry["content"])
            if message.calls and native is not None:
                calls = []
                for call in message.calls:
                    own = native.ids.format(name=call.name, number=len(ids) + 1)
                    ids[call.id] = model_ids.get(call.id) or own
                    values = dict(call.arguments)
                    if not message.sampled:
                        values = self._texts.guarded_variables({"": values})[""]
                    calls.append(replace(call, id=ids[call.id], arguments=values))
                if number not in marks:
                    entry = {**native.message(calls), **entry}
            if message.role == "tool":
                entry |= {"tool_call_id": ids.get(message.call_id, message.call_id), "name": message.name}
            shown.append(entry)
        return shown

    def _guarded(self, message: ChatMessage) -> Content:
        """Return the content of a message, whose texts spell no special tokens."""
        return message.content if message.sampled else self._texts.guarded(message.images or message.content)

    def _spliced(
        self,
        render: Render,
        messages: Sequence[ChatMessage],
        sampled: Mapping[int, list[int]],
        model_ids: Mapping[str, str],
    ) -> list[int] | None:
        """Return the tokens of a prompt with sampled responses; None if the template does not show them."""
        marks = {number: f"sampled-{secrets.token_hex(8)}-{number}" for number in sampled}
        encode = self._texts.encoder.encode
        try:
            text = render(self._shown(messages, marks, model_ids), generate=True)
        except UnsupportedTemplate:
            return None
        if any(text.count(mark) != 1 for mark in marks.values()):
            return None
        opening = self._opening(render)
        ids: list[int] = []
        last: list[int] = []
        for number, mark in sorted(marks.items()):
            before, _, text = text.partition(mark)
            place = before.rfind(opening) if opening else -1
            if place >= 0:  # without the empty thought that some templates write before a last answer
                before = before[: place + len(opening)]
            ids += self._cut(encode(before), last) + sampled[number]
            last = sampled[number]
        return ids + self._cut(encode(text), last)

    def _opening(self, render: Render) -> str:
        """Return the opening of an answer at the end of a prompt."""
        question = [*self._system, {"role": "user", "content": QUESTIONS[0]}]
        texts = [render(question, generate=generate) for generate in (False, True)]
        return texts[1][common_length(*texts) :]

    def _cut(self, ids: list[int], response_ids: Sequence[int]) -> list[int]:
        """Return the tokens after an answer without those at the end of the response."""
        written = self._end.written(response_ids, self._stop_ids) if response_ids else 0
        return ids[self._end.space + written :] if written else ids


class GrowingConversations(Conversations):
    """Conversations of which a response and the messages after it have tokens of their own.

    Args:
        context: The context whose chat template they have.
        tool_context: Function that returns the context of a probe tool, for the form of tool turns.
        rest: Further arguments of `Conversations`.
    """

    def __init__(
        self, context: _Context, tool_context: Callable[[], TemplateToolContext[Any]], *rest: Any
    ) -> None:
        self._context, self._tool_context = context, functools.cache(tool_context)
        super().__init__(context, self._tool_context, *rest)
        self._tail_texts = functools.lru_cache(_REMEMBERED)(self._tail_text)

    def tail(
        self,
        answer: ChatMessage,
        messages: Sequence[ChatMessage],
        response_ids: Sequence[int],
        model_ids: Mapping[str, str] | None = None,
    ) -> list[int] | None:
        """Return the tokens between a response and the next one; None if they depend on what is before it.

        Args:
            answer: The response as a message.
            messages: The messages after it, at least one.
            response_ids: The response.
            model_ids: As in `whole`.
        """
        results = [message for message in messages if message.role == "tool"]
        rest = messages[len(results) :]
        plain = [message.content for message in rest if message.role == "user"]
        if answer.calls:
            ids = [message.call_id for message in results]
            known = sorted(ids) == sorted(call.id for call in answer.calls)
            if (
                not known
                or results != list(messages[: len(results)])
                or len(rest) > 1
                or len(plain) < len(rest)
            ):
                return None
            return self._after_calls(answer, results, "".join(plain), response_ids, model_ids or {})
        if any(message.calls or message.role == "tool" for message in messages):
            return None
        if len(plain) == len(messages) == 1:
            return self._context.extend(plain[0], response_ids)
        text = self._tail_texts(tuple(messages))
        return None if text is None else self._cut(self._texts.encoder.encode(text), response_ids)

    def _after_calls(
        self,
        answer: ChatMessage,
        results: Sequence[ChatMessage],
        note: str,
        response_ids: Sequence[int],
        model_ids: Mapping[str, str],
    ) -> list[int] | None:
        names = {call.id: call.name for call in answer.calls}
        answers = []
        for message in results:
            model_id = model_ids.get(message.call_id, "")
            id = model_id if _SAFE_ID.fullmatch(model_id) else ""
            answers.append(CallResult(names[message.call_id], id, message.content))
        try:
            return self._tool_context().extend(answers, note, response_ids)
        except UnsupportedTemplate:
            return None

    def _tail_text(self, messages: tuple[ChatMessage, ...]) -> str | None:
        """Return what the template writes for messages after an answer; None if it depends on the past."""
        render, shown = self._renderer("[]"), self._shown(messages, {}, {})
        if messages[0].role != "system":
            shown = shown[len(self._system) :]
        texts = set()
        for turns, last in ((1, LAST_ANSWERS[0]), (2, LAST_ANSWERS[1])):
            history = list(self._system)
            for question in QUESTIONS[:turns]:
                history += [{"role": "user", "content": question}, {"role": "assistant", "content": last}]
            history[-1]["content"] = f"{last} {turns}."
            try:
                text = render([*history, *shown], generate=True)
                texts.add(after(history[-1]["content"], text))
            except UnsupportedTemplate:
                return None
        return texts.pop() if len(texts) == 1 else None


def _is_complete(call: ToolCall, schemas: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a call that was rejected has a name and arguments."""
    known = any(schema["function"]["name"] == call.name for schema in schemas)
    return bool(call.name) and (bool(call.arguments) or not known)
