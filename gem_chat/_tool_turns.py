"""Native tool calls in tokens: what a chat template puts between a call and the next response.

A template writes the results of calls in a turn of its own: with the role ``tool`` or ``ipython``, as JSON,
with the name or the id of the call, or inside the turn of the assistant. `ToolTurns` renders a short neutral
conversation in which an assistant makes the same calls, and returns what follows them. As in `MessageFormat`,
this is correct only for templates whose turns do not depend on each other, so the constructor probes that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

from gem_chat._answer_end import AnswerEnd, ends_of, tokens_inside
from gem_chat._calls.native import NativeCalls, ProbeTool, after_opening, find_calls
from gem_chat._encoding import PromptTexts
from gem_chat._native_tools import CallResult
from gem_chat._openings import common_prefix
from gem_chat._probes import system_messages
from gem_chat._template import Messages, Render
from gem_chat.tools import Tool, ToolCall
from gem_core.errors import UnknownName, UnsupportedTemplate

_QUESTION = {"role": "user", "content": "first neutral question"}
_RESULTS = ("Neutral-Result", "two lines,\n\nof which one ends here.\n", '{{ x }} 12 <b> "quoted"')
_AFTER = (
    {"role": "assistant", "content": "Alpha-reply-7319"},
    {"role": "user", "content": "what comes second?"},
)
_PAIR = ("Neutral-First-Result", "Neutral-Second-Result")
_NOTE = "neutral note 5206"
_ARGUMENT = "neutral argument 3817"
_REMEMBERED = 256


class _Decoder(Protocol):
    def decode(self, response_ids: Sequence[int]) -> str: ...


ContextT_co = TypeVar("ContextT_co", bound=_Decoder, covariant=True)


class NativeReader(Generic[ContextT_co]):
    """Reads the native calls in responses.

    Args:
        context: The context that reads the text before the calls.
        native: How the template writes calls.
        end: How the template ends an answer with calls.
        decode: Function from token ids to text that keeps special tokens.
        stop_ids: Tokens at which the engine stops by itself.

    Attributes:
        context: As given.
        native: As given.
        end: As given.
    """

    def __init__(
        self,
        context: ContextT_co,
        native: NativeCalls,
        end: AnswerEnd,
        decode: Callable[[Sequence[int]], str],
        stop_ids: Collection[int],
    ) -> None:
        self.context, self.native, self.end = context, native, end
        self._decode, self._stop_ids = decode, stop_ids

    def read(self, response_ids: Sequence[int], tools: Sequence[Tool]) -> tuple[str, list[ToolCall]]:
        """Return the text of a response before its calls, and the calls."""
        length = len(response_ids) - self.end.length(response_ids, self._stop_ids)
        ids = list(response_ids[:length])
        text = self._decode(ids)
        calls = self.native.syntax.parse(text, tools)
        if not calls:
            return self.context.decode(response_ids), []
        low, high = 0, length  # the most tokens that end before the first call
        while low < high:
            middle = (low + high + 1) // 2
            if len(self._decode(ids[:middle])) <= calls[0].start:
                low = middle
            else:
                high = middle - 1
        shown = len(self._decode(ids[:low]))
        return self.context.decode(ids[:low]) + text[shown : calls[0].start], calls


class TemplateToolContext(NativeReader[ContextT_co]):
    """A context for episodes with native tools.

    Args:
        context: The context whose template has the schemas. It makes first prompts, and continues after a
            response without calls.
        turns: The tool turns of the template.
        texts: Encodes prompts, in which results are text.
        stop_ids: Tokens at which the engine stops by itself.
    """

    def __init__(
        self,
        context: ContextT_co,
        turns: ToolTurns,
        texts: PromptTexts,
        stop_ids: Collection[int],
    ) -> None:
        super().__init__(context, turns.native, turns.end, texts.encoder.decode_all, stop_ids)
        self._turns = turns
        self._texts = texts
        self._ids = lru_cache(_REMEMBERED)(self._encode_results)

    def extend(self, results: Sequence[CallResult], note: str, response_ids: Sequence[int]) -> list[int]:
        """Return the tokens between a response with calls and the next response, at least one.

        Args:
            results: Results of all calls in the response.
            note: A further message of the environment; empty for none.
            response_ids: The response; used only to check how much of the end of the turn it holds.
        """
        overlap = self.end.written(response_ids, self._stop_ids)
        ids = self._ids(tuple(results), note)
        return list(ids[self.end.space + overlap :] if overlap else ids)

    def _encode_results(self, results: Sequence[CallResult], note: str) -> tuple[int, ...]:
        return tuple(self._texts.encoder.encode(self._between(results, note)))

    def _between(self, results: Sequence[CallResult], note: str) -> str:
        """Return the text between two responses, in which results and the note spell no special tokens."""
        mark = self._texts.guarded_text
        return self._turns.between(
            [result._replace(text=mark(result.text)) for result in results], mark(note)
        )

    def extend_text(self, results: Sequence[CallResult], note: str, response_ids: Sequence[int]) -> str:
        """Return the text that `extend` encodes."""
        text = self._between(results, note)
        if overlap := self.end.written(response_ids, self._stop_ids):
            text = text.partition(self._decode(self.end.closing[:overlap]))[2]
        return self._texts.encoder.shown(text)


def find_call_end(
    render: Render,
    native: NativeCalls,
    encode: Callable[[str], list[int]],
    decode: Callable[[list[int]], str],
    atomic_ids: frozenset[int],
    *,
    system_prompt: str | None = None,
) -> AnswerEnd:
    """Determine how a template ends an answer with calls, as `find_answer_end` does for other answers.

    Args:
        render: The template, with the schemas of the tools.
        native: How it writes calls.
        encode: Function from text to token ids, without added tokens.
        decode: Function from token ids to text that keeps special tokens.
        atomic_ids: Ids that the encoder never merges with adjacent tokens.
        system_prompt: First message of each conversation; None for no system message.

    Raises:
        UnsupportedTemplate: The template does not show the call, or fails.
    """
    name = ProbeTool.name
    call = ToolCall(name, {"key": _ARGUMENT, "count": 0}, id=native.ids.format(name=name, number=0))
    messages = [*system_messages(system_prompt), _QUESTION, native.message([call])]
    result = {"role": "tool", "name": name, "tool_call_id": call.id, "content": _RESULTS[0]}
    parts = []
    for text in (render([*messages, result], generate=True), render(messages, generate=False)):
        before = [found for found in native.syntax.parse(text, []) if found.start < text.rfind(_ARGUMENT)]
        if not before:
            raise UnsupportedTemplate(f"the chat template does not show a call: {text!r:.300}")
        parts.append(encode(text[before[-1].end :]))
    return ends_of(parts[0], parts[1], decode, atomic_ids, tokens_inside(render, encode, system_prompt))


class ToolTurns:
    """How a template writes calls, and what it puts between them and the next response.

    Args:
        render: The template, with the schemas of the tools.
        encode: Function from text to token ids, without added tokens.
        decode: Function from token ids to text that keeps special tokens.
        atomic_ids: Ids that the encoder never merges with adjacent tokens.
        system_prompt: First message of each conversation; None for no system message.

    Attributes:
        native: How the template writes calls.
        end: How the template ends an answer with calls.

    Raises:
        UnsupportedTemplate: The template has no tool turn that can be appended; the error names the reason.
    """

    def __init__(
        self,
        render: Render,
        encode: Callable[[str], list[int]],
        decode: Callable[[list[int]], str],
        atomic_ids: frozenset[int],
        *,
        system_prompt: str | None = None,
    ) -> None:
        self._render = render
        self._system = system_messages(system_prompt)
        try:
            self.native: NativeCalls = find_calls(render)
        except UnknownName as error:
            raise UnsupportedTemplate(str(error)) from error
        self._calls_texts = lru_cache(_REMEMBERED)(self._written)
        self._prefix = lru_cache(_REMEMBERED)(self._text_before)
        self._reject_dependence()
        results = (CallResult(ProbeTool.name, "", _RESULTS[0]),)
        self._takes_note = self._shows_note(results)
        last = self._after_calls(self._history(results), (), generate=False)
        inside = tokens_inside(render, encode, system_prompt)
        end = ends_of(encode(self.between(results)), encode(last), decode, atomic_ids, inside)
        opens = end.opens or self._opens_each_result(decode(end.closing))
        self.end: AnswerEnd = replace(end, opens=opens)
        if len(encode(self.between(results))) <= self.end.space + len(self.end.closing):
            raise UnsupportedTemplate("the chat template puts no token between a call and the next response")

    def between(self, results: Sequence[CallResult], note: str = "") -> str:
        """Return the text from the end of the last call of a response to the start of the next response.

        Args:
            results: Results of all calls in the response.
            note: A further message of the environment; empty for none. If the template has no user message
                after results, it follows the last result.
        """
        if note and not self._takes_note:
            *earlier, last = results
            results, note = [*earlier, last._replace(text=f"{last.text}\n\n{note}")], ""
        try:
            return self._between(results, note)
        except UnsupportedTemplate:  # the template takes only ids of its own form
            if not any(result.id for result in results):
                raise
            return self._between([result._replace(id="") for result in results], note)

    def _between(self, results: Sequence[CallResult], note: str) -> str:
        before = self._prefix(tuple((result.name, result.id) for result in results), bool(note))
        text = self._render(self._conversation(results, note), generate=True)
        if not text.startswith(before):
            raise UnsupportedTemplate(
                f"with this chat template, the text of a call depends on its result ({results!r:.200}), so "
                "the tokens cannot be append-only; set native_tools=False"
            )
        return text[len(before) :]

    def _id(self, result: CallResult, number: int) -> str:
        return result.id or self.native.ids.format(name=result.name, number=number)

    def _conversation(self, results: Sequence[CallResult], note: str = "") -> list[dict[str, Any]]:
        notes = [{"role": "user", "content": note}] if note else []
        return [*self._history(results), *self._answers(results), *notes]

    def _opens_each_result(self, closing: str) -> bool:
        """Return whether the end of an answer with calls opens its first result, as in Gemma 4."""
        if not closing or not self.native.several:
            return False
        text = self.between([CallResult(ProbeTool.name, "", result) for result in _PAIR])
        opening, _, rest = text.partition(_PAIR[0])
        middle, _, after = rest.partition(_PAIR[1])
        ends_each = after.startswith(middle.removesuffix(opening) + closing)
        return opening.startswith(closing) and middle.endswith(opening) and not ends_each

    def _text_before(self, calls: tuple[tuple[str, str], ...], noted: bool) -> str:
        """Return the neutral conversation up to the end of its calls; results cannot change what it is.

        Some templates write the thought before a call only until the next message of a user.
        """
        results = [CallResult(name, id, _RESULTS[0]) for name, id in calls]
        text = self._render(self._conversation(results, _NOTE if noted else ""), generate=True)
        return text.removesuffix(self._cut(text, self._history(results)[-1]))

    def _shows_note(self, results: Sequence[CallResult]) -> bool:
        """Return whether the template takes a user message after results."""
        try:
            return _NOTE in self._between(results, _NOTE)
        except UnsupportedTemplate:
            return False

    def _history(self, results: Sequence[CallResult]) -> list[dict[str, Any]]:
        """Return a question and an assistant's message with calls."""
        calls = [
            ToolCall(result.name, {"key": _ARGUMENT, "count": index}, id=self._id(result, index))
            for index, result in enumerate(results)
        ]
        return [*self._system, _QUESTION, self.native.message(calls)]

    def _answers(self, results: Sequence[CallResult]) -> list[dict[str, Any]]:
        return [
            {
                "role": "tool",
                "name": result.name,
                "tool_call_id": self._id(result, index),
                "content": result.text,
            }
            for index, result in enumerate(results)
        ]

    def _after_calls(
        self,
        history: Messages,
        results: Sequence[CallResult],
        follow_up: Messages = (),
        *,
        generate: bool = True,
        date: str | None = None,
    ) -> str:
        """Return what follows the calls at the end of `history` in a neutral conversation."""
        messages = [*history, *self._answers(results), *follow_up]
        text = self._render(messages, generate=generate, date=date)
        return self._cut(text, history[-1])

    def _cut(self, text: str, message: Mapping[str, Any]) -> str:
        """Return the part of a neutral text after the last calls, which are those of `message`."""
        texts = self._calls_texts(json.dumps(message))
        for calls in texts:
            _, found, after = text.rpartition(calls)
            if found:
                return after
        raise UnsupportedTemplate(
            f"the chat template writes the calls {texts[0]!r:.300} differently in another conversation: "
            f"{text!r:.300}"
        )

    def _written(self, message: str) -> list[str]:
        """Return the text of the calls of a message, given as JSON: before results, and at the end of a text.

        Some templates write the ids of calls only before results.
        """
        question = [*self._system, _QUESTION]
        calls = json.loads(message)
        names = [
            CallResult(call["function"]["name"], call["id"], _RESULTS[0]) for call in calls["tool_calls"]
        ]
        opening = self._render(question, generate=True)
        texts = []
        for rest, generate in ((self._answers(names), True), ([], False)):
            answer = after_opening(self._render([*question, calls, *rest], generate=generate), opening)
            if rest:  # thinking after the results would hide the calls
                answer = answer[: answer.find(_RESULTS[0], answer.rfind(_ARGUMENT))]
            found = self.native.syntax.parse(answer, [])
            texts += [answer[found[0].start : found[-1].end]] if found else []
        if not texts:
            raise UnsupportedTemplate(
                f"the chat template does not show the calls of an assistant: {answer!r:.300}"
            )
        return texts

    def _reject_dependence(self) -> None:
        """Require that a tool turn does not depend on other turns or the date, and never changes."""
        one = [CallResult(ProbeTool.name, "", _RESULTS[0])]
        call = self._history(one)[-1]
        question: Mapping[str, Any] = {"role": "user", "content": "another\nquestion"}
        earlier = [CallResult(ProbeTool.name, self.native.ids.format(name=ProbeTool.name, number=7), "done")]
        histories: dict[str, list[Mapping[str, Any]]] = {
            "earlier turns": [*self._system, _QUESTION, *_AFTER, call],
            "earlier calls": [*self._history(earlier), *self._answers(earlier), call],
            "the question": [*self._system, question, call],
        }
        for text in _RESULTS:
            results = [CallResult(ProbeTool.name, "", text)]
            expected = self.between(results)
            if not _shows(expected, text):
                raise UnsupportedTemplate(
                    f"the chat template does not show the result {text!r} of a call ({expected!r:.300})"
                )
            for cause, history in histories.items():
                found = self._after_calls(history, results)
                if found != expected:
                    raise UnsupportedTemplate(
                        f"with this chat template, the text of a result depends on {cause} "
                        f"({expected!r:.300} became {found!r:.300})"
                    )
        dates = {self._after_calls(self._history(one), one, date=date) for date in ("one", "another")}
        if len(dates) > 1:
            raise UnsupportedTemplate("the chat template puts the date or time into each result of a call")
        last = [self._after_calls(self._history(one), one, generate=generate) for generate in (False, True)]
        later = self._after_calls(self._history(one), one, _AFTER)
        if not later.startswith(common_prefix(*last)):
            raise UnsupportedTemplate(
                f"the chat template renders a result differently when others follow it ({last!r:.300}, "
                f"{later!r:.300})"
            )


def _shows(text: str, content: str) -> bool:
    """Return whether a text has some content, as it is or in JSON."""
    forms = (content.strip(), json.dumps(content), json.dumps(content.strip()))
    return any(form.strip('"') in text for form in forms)
