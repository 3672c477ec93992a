"""The next turns of a model, by gem_core and by PrimeIntellect's renderers: `Player`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

QUESTION = "What is 2 + 2?"
ANSWER = "The answer is 4."
THOUGHT = "I add the numbers."
MESSAGES = ("Wrong. Guess higher.", " Wrong,\n\nbut close: \u00e9 \U0001f642.\n")
NEUTRAL = "neutral-result-4711"
RESULTS = ("result 4\n\nof a call", '{"sum": 4}')


class Case(NamedTuple):
    """One prompt of a next turn.

    Attributes:
        name: What happened.
        ours: Tokens after the response, of gem_core.
        theirs: The same of renderers; None if it gives no prompt.
        close: Text that ends the thought in which the response was cut; empty if it was not cut in one.
        same_version: Whether both write the turn equally in a conversation that they render as a whole.
    """

    name: str
    ours: list[int]
    theirs: list[int] | None
    close: str
    same_version: bool


class Player:
    """The turns that are compared for one template.

    Args:
        tokenizer: A tokenizer with the template.
        renderer: The renderer of the same model.
    """

    def __init__(self, tokenizer: Any, renderer: Any) -> None:
        from gem_chat import AppendContext
        from gem_chat._inputs import checked_renderer
        from gem_chat._report import describe_template, stand_in_tokenizer
        from gem_chat._thinking import find_thinking

        self._tokenizer, self._renderer = tokenizer, renderer
        self._stops = renderer.get_stop_token_ids()
        self._context = AppendContext(tokenizer, stop_ids=self._stops)
        self._render = checked_renderer(tokenizer)
        self._thinking = find_thinking(self._render)
        opening = self._render([{"role": "user", "content": QUESTION}], generate=True).rstrip()
        shown = describe_template(stand_in_tokenizer(tokenizer.chat_template)).thinking is not None
        self._thinks = shown and not opening.endswith(self._thinking.close)

    def cases(self) -> Iterator[Case]:
        """Yield all cases."""
        first = self._context.first(QUESTION)
        for index, message in enumerate(MESSAGES):
            new = [{"role": "user", "content": message}]
            history = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}]
            same = self._same_version(history, new, ANSWER, None)
            for end, ids in self._ends():
                response = self._encode(f"{self._thought()}{ANSWER}") + ids
                ours = self._context.extend(message, response)
                yield self._case(f"user {index}, {end}", first, response, ours, new, same_version=same)
            if self._thinks:
                opening = "" if self._thinking.prefilled else self._thinking.open
                response = self._encode(f"{opening}\n{THOUGHT}")
                ours = self._context.extend(message, response)
                close = self._thinking.close
                yield self._case(
                    f"user {index}, cut in a thought",
                    first,
                    response,
                    ours,
                    new,
                    close=close,
                    same_version=same,
                )
        yield from self._tool_cases()

    def _tool_cases(self) -> Iterator[Case]:
        from gem_chat import AppendContext
        from gem_chat._calls.native import ProbeTool, after_opening, find_calls
        from gem_chat._inputs import checked_renderer
        from gem_chat._native_tools import CallResult
        from gem_chat._tools import schema
        from gem_chat.tools import ToolCall
        from gem_core.errors import UnsupportedTemplate

        schemas = [schema(ProbeTool())]
        try:
            tools = AppendContext(self._tokenizer, stop_ids=self._stops, native_tools=True).with_tools(
                schemas
            )
        except UnsupportedTemplate:
            return
        assert tools is not None
        render = checked_renderer(self._tokenizer, None, {"tools": schemas})
        native = find_calls(render)
        question = {"role": "user", "content": QUESTION}
        first = tools.context.first(QUESTION)
        for count, note in ((1, ""), (2, ""), (1, MESSAGES[0])):
            if count > 1 and not native.several:
                continue
            made = [
                ToolCall(
                    ProbeTool.name,
                    {"key": f"value {n}", "count": n},
                    id=native.ids.format(name=ProbeTool.name, number=n),
                )
                for n in range(count)
            ]
            said = native.message(made)
            named = [
                {"role": "tool", "name": ProbeTool.name, "tool_call_id": call.id, "content": text}
                for call, text in zip(made, RESULTS, strict=False)
            ]
            new = [*named, *([{"role": "user", "content": note}] if note else [])]
            neutral = [message | {"content": NEUTRAL} for message in named]
            text = render([question, said, *neutral], generate=True)
            answer = after_opening(text, render([question], generate=True)).partition(NEUTRAL)[0]
            spans = native.syntax.parse(answer, [ProbeTool()])
            calls = answer[spans[0].start : spans[-1].end]
            same = self._same_version([question, said], new, calls, schemas)
            for end, ids in self._ends():
                response = self._encode(f"{self._thought(to_call=True)}{calls}") + ids
                _, read = tools.read(response, [ProbeTool()])
                assert len(read) == count, (calls, read)
                results = [
                    CallResult(call.name, call.id, text) for call, text in zip(read, RESULTS, strict=False)
                ]
                ours = tools.extend(results, note, response)
                name = f"tool {count}{' and user' if note else ''}, {end}"
                yield self._case(name, first, response, ours, new, tools=schemas, same_version=same)

    def _ends(self) -> Iterator[tuple[str, list[int]]]:
        for token_id in self._stops:
            yield self._tokenizer.decode([token_id]), [token_id]
        yield "cut", []

    def _thought(self, *, to_call: bool = False) -> str:
        """Return a thought, and the marks between it and an answer or a call."""
        if not self._thinks:
            return ""
        thinking = self._thinking
        opening = "" if thinking.prefilled else f"{thinking.open}\n"
        last = "" if to_call else thinking.again + thinking.answer
        return f"{opening}{THOUGHT}\n{thinking.close}\n\n{last}"

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def _case(
        self,
        name: str,
        prompt: list[int],
        response: list[int],
        ours: list[int],
        new: list[dict[str, Any]],
        *,
        tools: Any = None,
        close: str = "",
        same_version: bool,
    ) -> Case:
        bridged = self._renderer.bridge_to_next_turn(prompt, response, new, tools=tools)
        before = prompt + response
        if bridged is not None:
            assert bridged.token_ids[: len(before)] == before, name
        return Case(
            name, ours, None if bridged is None else bridged.token_ids[len(before) :], close, same_version
        )

    def _same_version(
        self, history: list[dict[str, Any]], new: list[dict[str, Any]], answer: str, tools: Any
    ) -> bool:
        """Return whether both write a conversation equally after an answer."""
        own = self._tokenizer.apply_chat_template(
            [*history, *new], tools=tools, tokenize=False, add_generation_prompt=True
        )
        ids = self._renderer.render_ids([*history, *new], tools=tools, add_generation_prompt=True)
        theirs = self._tokenizer.decode(ids)
        return str(own).rpartition(answer)[2] == str(theirs).rpartition(answer)[2]
