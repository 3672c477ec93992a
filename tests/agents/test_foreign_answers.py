"""Answers that an agent makes up: they go on with a row if its tokens begin the prompt, and are context."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")
pytest.importorskip("jinja2", reason="needs jinja2, of the extra 'train'")

from tests.agents.stage import SEARCH, THINKING, call, stage, tokenizer
from tests.agents.test_log import MORE, SYSTEM, reasons, record
from tests.agents.test_traps import TASK, ask, said, settle
from tests.rollout.test_tool_turns import FAMILIES

CALL = said(
    "I look.",
    tool_calls=[
        {
            "id": "mine",
            "type": "function",
            "function": {"name": "search", "arguments": json.dumps({"query": "gem"})},
        }
    ],
)
FOUND = {"role": "tool", "tool_call_id": "mine", "content": "A stone."}
OWN = "own"
"""Stands for the newest response."""
RESULT = "result"
"""Stands for the result of its call."""

SHAPES: dict[str, tuple[list[Any], tuple[int, int, int]]] = {
    "after a question": ([SYSTEM, TASK, OWN, MORE, said("Made up."), MORE, OWN, MORE], (3, 0, 2)),
    "after an own answer": ([SYSTEM, TASK, OWN, said("Made up."), MORE, OWN, MORE], (3, 0, 2)),
    "two in a row": ([TASK, OWN, MORE, said("Made up."), said("This too."), MORE, OWN, MORE], (3, 0, 4)),
    "a call": ([TASK, OWN, MORE, CALL, FOUND, OWN, MORE], (3, 0, 2)),
    "a call after an own call": ([TASK, OWN, RESULT, CALL, FOUND, OWN, MORE], (3, 0, 2)),
    "text after an own call": ([TASK, OWN, RESULT, said("Made up."), MORE, OWN, MORE], (3, 0, 2)),
    "first": ([TASK, said("Thanks for the context!"), MORE, OWN, MORE, OWN, MORE], (3, 0, 3)),
    "at the end": ([TASK, OWN, MORE, said("The answer is")], (1, 0, 1)),
    "empty": ([TASK, OWN, MORE, said(""), MORE, OWN, MORE], (3, 0, 2)),
    "with a thought": ([TASK, OWN, MORE, said("Yes.", reasoning_content="Hm."), MORE], (1, 0, 1)),
    "an own answer at the end": ([TASK, OWN], (1, 0, 0)),
}
"""Conversations, and the numbers of answers that are recognized, spliced, and foreign in all histories."""


async def tell(at: Any, story: list[Any]) -> None:
    """Have each conversation that ends before an own answer, and the whole one."""
    history: list[Any] = []
    for message in story:
        if message == OWN:
            history.append(await ask(at, *history, tools=[SEARCH]))
            history[-1].pop("reasoning_content", None)
        elif message == RESULT:
            history.append({**FOUND, "tool_call_id": history[-1]["tool_calls"][0]["id"]})
        else:
            history.append(message)
    await ask(at, *history, tools=[SEARCH])
    await settle()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", ["hermes", "a thought before a call until the next question"])
def test_a_made_up_answer_is_context_of_the_row(shape: str, family: str) -> None:
    story, counted = SHAPES[shape]

    def text(number: int) -> str:
        return call(f"x{number}") if RESULT in story and not number else f"{THINKING}answer {number}"

    async def main() -> None:
        async with stage(text, family=family) as at:
            await tell(at, story)
            (row,) = at.episode().rows()
            trained = [id for id, used in zip(row.token_ids, row.response_mask, strict=True) if used]
            assert trained == [id for _, response in at.policy.sampled for id in response]
            shown = tokenizer(family).decode(row.token_ids)
            made_up = [message["content"] for message in story if isinstance(message, dict)]
            assert all(text in shown for text in made_up)
            counts = at.session.counts
            assert (counts.recognized, counts.spliced, counts.foreign) == counted

    asyncio.run(main())


@pytest.mark.parametrize("shape", ["after a question", "after an own answer", "two in a row", "at the end"])
def test_a_row_goes_on_where_the_template_drops_the_thoughts_before_it(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like Qwen3.5's, it opens a thought for the next answer only."""
    opening = "<|im_start|>assistant\n"
    opened = (
        FAMILIES["hermes"].template.removesuffix(f"{opening}{{% endif %}}")
        + f"{opening}<think>\n{{% endif %}}"
    )
    monkeypatch.setitem(FAMILIES, "opened", FAMILIES["hermes"]._replace(template=opened))

    async def main() -> None:
        async with stage(lambda number: f"Hm.</think>\n\nanswer {number}", family="opened") as at:
            await tell(at, SHAPES[shape][0])
            assert len(at.episode().rows()) == 1
            shown = [tokenizer("opened").decode(prompt) for prompt, _ in at.policy.sampled]
            assert [text.count("<think>") for text in shown] == [*range(1, len(shown) + 1)]

    asyncio.run(main())


def test_a_copy_of_an_answer_to_another_question_has_its_tokens() -> None:
    async def main() -> None:
        async with stage(lambda number: f"answer {number}") as at:
            other = await ask(at, {"role": "user", "content": "Who are you?"})
            await tell(at, [SYSTEM, TASK, OWN, MORE, other, MORE])
            assert [row.turns for row in at.episode().rows()] == [(0,), (1, 2)]
            copied, (prompt, _) = at.policy.sampled[0][1], at.policy.sampled[2]
            assert any(prompt[place : place + len(copied)] == copied for place in range(len(prompt)))
            assert (at.session.counts.recognized, at.session.counts.spliced) == (1, 1)

    asyncio.run(main())


def test_an_answer_in_place_of_an_open_one_is_a_branch() -> None:
    async def main() -> list[tuple[str, int | None]]:
        async with stage(lambda number: f"answer {number}", seconds=0.1) as at:
            first = await ask(at, TASK)
            await asyncio.gather(
                ask(at, TASK, first, MORE), ask(at, TASK, first, MORE, said("Made up."), MORE)
            )
            await settle()
            return reasons(record(at))

    assert asyncio.run(main()) == [("first", None), ("branch", 0)]


def test_a_template_that_shows_the_past_differently_begins_a_row() -> None:
    """The thought before the first call is gone after the next question."""

    async def main() -> dict[str, Any]:
        texts = [call("x"), "done"]
        async with stage(texts, family="a thought before a call until the next question") as at:
            await tell(at, [TASK, CALL, FOUND, OWN, RESULT, said("Made up."), MORE])
            return record(at)

    log = asyncio.run(main())
    assert reasons(log) == [("first", None), ("foreign", None)]
    assert log["opened"]["1"]["why"] == (
        "the chat template shows earlier messages differently before message 6, an answer that was not "
        "sampled here: 'Made up.'"
    )
