"""What a trace says of an agent's calls: why each row was opened, and what is not trained."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")
pytest.importorskip("jinja2", reason="needs jinja2, of the extra 'train'")

from gem_agents import _reasons
from tests.agents.clients import forgetful
from tests.agents.stage import SEARCH, Stage, call, stage
from tests.agents.test_harness import play
from tests.agents.test_traps import OTHER, TASK, ask, post, refusal, said, settle

SYSTEM = {"role": "system", "content": "You are an agent."}
MORE = {"role": "user", "content": "Go on."}


def record(at: Stage) -> dict[str, Any]:
    """Return the log, whose reasons are those of the rows of the episode."""
    log = json.loads(json.dumps(at.session.log.record(at.session.calls)))
    first = [str(row.turns[0]) for row in at.episode().rows()]
    assert [*log["opened"]] == first
    return dict(log)


def reasons(log: dict[str, Any]) -> list[tuple[str, int | None]]:
    return [(why["kind"], why.get("turn")) for why in log["opened"].values()]


async def talk(at: Stage, *messages: Any, calls: int = 2, **more: Any) -> list[Any]:
    """Go on with a conversation, and return it."""
    history = [*messages]
    for _ in range(calls):
        history += [await ask(at, *history, **more), MORE]
    return history


async def title_first(at: Stage) -> None:
    await ask(at, {"role": "user", "content": "Write a title."})
    await talk(at, SYSTEM, TASK, tools=[SEARCH])


async def title_later(at: Stage) -> None:
    history = await talk(at, SYSTEM, TASK, tools=[SEARCH])
    await ask(at, *history[:-1], {"role": "user", "content": "Write a title."})


async def rewritten_answer(at: Stage) -> None:
    history = await talk(at, SYSTEM, TASK, calls=3)
    history[4] = said("I said something else.")
    await talk(at, *history)


async def rewritten_system_prompt(at: Stage) -> None:
    history = await talk(at, {"role": "system", "content": "It is 10:31."}, TASK)
    await talk(at, {"role": "system", "content": "It is 10:32."}, *history[1:])


async def compaction(at: Stage) -> None:
    history = await talk(at, SYSTEM, TASK, calls=3)
    await talk(at, SYSTEM, {"role": "user", "content": "So far, we talked."}, *history[-2:])


async def compaction_by_summary(at: Stage) -> None:
    history = await talk(at, SYSTEM, TASK, calls=3, tools=[SEARCH])
    await ask(at, *history[:-1], {"role": "user", "content": "Summarize."})
    await talk(at, SYSTEM, {"role": "user", "content": "So far, we talked."}, *history[-2:], tools=[SEARCH])


async def other_tools(at: Stage) -> None:
    history = await talk(at, SYSTEM, TASK, tools=[SEARCH])
    await talk(at, *history, tools=[SEARCH, OTHER])


async def in_parallel(at: Stage) -> None:
    history = await talk(at, SYSTEM, TASK)
    parts = [{"role": "user", "content": f"Part {part}."} for part in range(3)]
    await asyncio.gather(*(ask(at, *history[:-1], part) for part in parts))


async def asked_again(at: Stage) -> None:
    history = await talk(at, SYSTEM, TASK)
    await ask(at, *history[:2])
    await ask(at, *history[:2])


async def two_answers(at: Stage) -> None:
    await ask(at, TASK, n=2)


async def sub_agent(at: Stage) -> None:
    answer = await ask(at, SYSTEM, TASK, tools=[SEARCH])
    task = json.loads(answer["tool_calls"][0]["function"]["arguments"])["query"]
    await talk(at, {"role": "system", "content": "You search."}, {"role": "user", "content": task}, calls=1)
    result = {"role": "tool", "tool_call_id": answer["tool_calls"][0]["id"], "content": "Found."}
    await talk(at, SYSTEM, TASK, answer, result, tools=[SEARCH])


SHAPES: dict[str, tuple[Any, list[tuple[str, int | None]], str]] = {
    "one row": (lambda at: talk(at, SYSTEM, TASK), [("first", None)], "the first call"),
    "title first": (title_first, [("first", None), ("conversation", None)], "begins with 'What is a gem?'"),
    "title later": (title_later, [("first", None), ("no tools", None)], "without tools"),
    "rewritten": (
        rewritten_answer,
        [("first", None), ("rewritten", 1)],
        "message 5 (assistant) was rewritten: was 'answer 1', is 'I said something else.'",
    ),
    "system prompt": (
        rewritten_system_prompt,
        [("first", None), ("rewritten", None)],
        "message 1 (system) was rewritten: was 'It is 10:31.', is 'It is 10:32.'",
    ),
    "compaction": (
        compaction,
        [("first", None), ("compacted", None)],
        "history compacted: 7 messages became 4, from message 2 on, which is 'So far, we talked.'",
    ),
    "summary": (
        compaction_by_summary,
        [("first", None), ("no tools", None), ("compacted", None)],
        "from message 2 on, which is 'So far, we talked.'",
    ),
    "tools": (other_tools, [("first", None), ("tools", None)], "another list of tools: +browse"),
    "parallel": (in_parallel, [("first", None), ("branch", 1), ("branch", 1)], "continues the same answer"),
    "again": (
        asked_again,
        [("first", None), ("cut back", None), ("repeated", None)],
        "the same request again",
    ),
    "samples": (two_answers, [("first", None), ("sample", None)], "answer 2 of 2 to one request"),
    "sub-agent": (sub_agent, [("first", None), ("sub-agent", 0)], "whose task is in a call"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_trace_says_why_each_row_was_opened(shape: str) -> None:
    agent, expected, text = SHAPES[shape]
    first = call("rare gems") if shape == "sub-agent" else "answer 0"

    async def main() -> dict[str, Any]:
        async with stage(lambda number: f"answer {number}" if number else first) as at:
            await agent(at)
            await settle()
            return record(at)

    log = asyncio.run(main())
    assert reasons(log) == expected
    assert text in [*log["opened"].values()][-1]["why"]


def test_a_trace_says_what_is_not_trained() -> None:
    async def main() -> dict[str, Any]:
        async with stage(["first", "never read", "second", "third"], seconds=0.2) as at:
            history = await talk(at, TASK, calls=1)
            assert (await refusal(at, {"messages": "none"}))[0] == 400
            lost = {"model": "m", "messages": [*history[:-1], {"role": "user", "content": "Stop."}]}
            gone = asyncio.ensure_future(post(at, "v1/chat/completions", lost))
            await asyncio.sleep(0.1)
            gone.cancel()
            await asyncio.sleep(0.3)
            await ask(at, *history)  # goes on with the row, because nobody got the other response
            await ask(at, *history, said("Made up."), MORE)
            await settle()
            return record(at)

    log = asyncio.run(main())
    assert [*log["opened"]] == ["0", "2"]
    assert [(entry["after"], entry["code"]) for entry in log["refused"]] == [(1, "invalid_request_error")]
    assert log["foreign"] == [{"after": 2, "text": "Made up.", "count": 1}]
    assert log["lost"] == [{"after": 1, "text": "never read", "tokens": len("never read") + 1}]


def test_a_long_log_ends() -> None:
    async def main() -> dict[str, Any]:
        async with stage(lambda number: f"answer {number}") as at:
            await ask(at, TASK, *(said(f"Made up {number}. " + "x" * 1000) for number in range(50)), MORE)
            for number in range(50):
                await refusal(at, {"model": "m"}, f"v1/page{number}" + "x" * 1000)
            await settle()
            return record(at)

    log = asyncio.run(main())
    assert [len(log[name]) for name in ("refused", "foreign")] == [20, 20]
    assert max(len(entry["text"]) for entry in log["foreign"]) == 200


def test_many_rows_are_compared_with_the_newest_only(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    nearest = _reasons._nearest

    def counted(request: Any, found: Any, drafts: Any) -> Any:
        compared.append(len(drafts))
        return nearest(request, found, drafts)

    monkeypatch.setattr(_reasons, "_nearest", counted)

    async def main() -> None:
        async with stage(lambda number: f"answer {number}", calls=200) as at:
            for number in range(100):
                await ask(at, {"role": "user", "content": f"Task {number}"})
            await settle()
            assert len(record(at)["opened"]) == 100

    asyncio.run(main())
    assert max(compared) == 32


def test_an_episode_of_a_harness_has_the_log() -> None:
    episode = play(forgetful, 0)
    log = episode.metadata["gateway_log"]
    assert [*log["opened"]] == [str(turn) for turn in range(len(episode.turns))]
    assert log["opened"]["1"]["kind"] == "conversation"
