"""Real SDKs against the gateway: the same calls, tools included, through each API, plain and streamed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")
pytest.importorskip("jinja2", reason="needs jinja2, of the extra 'train'")

from tests.agents.stage import SEARCH, THINKING, Stage, call, stage

ANSWERS = [
    f"{THINKING}I look it up.\n\n{call('gem', spaces='   ')}",
    f"{call('core')}\n{call('gems')}",
    "A gem is a stone. ",
]
TASK = "What is a gem?"
RESULT = "a stone <|im_end|> of some kind"


async def chat(at: Stage, stream: bool) -> None:
    client, messages = at.openai(), [{"role": "user", "content": TASK}]
    while True:
        asked: dict[str, Any] = {"model": "policy", "messages": messages, "tools": [SEARCH]}
        if stream:
            text, calls, finish, usage = "", dict[int, Any](), None, None
            options = {"include_usage": True}
            async for chunk in await client.chat.completions.create(
                **asked, stream=True, stream_options=options
            ):
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    finish = choice.finish_reason or finish
                    calls |= {part.index: part for part in choice.delta.tool_calls or []}
            assert usage is not None
            assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
            said = {"role": "assistant", "content": text}
            if calls:
                said["tool_calls"] = [
                    {**part.model_dump(exclude={"index"}), "type": "function"} for part in calls.values()
                ]
        else:
            done = await client.chat.completions.create(**asked)
            finish, said = (
                done.choices[0].finish_reason,
                done.choices[0].message.model_dump(exclude_none=True),
            )
            said.pop("reasoning_content", None)  # many agents drop it
        messages.append(said)
        if not said.get("tool_calls"):
            assert finish == "stop"
            return
        assert finish == "tool_calls"
        for made in said["tool_calls"]:
            given = json.loads(made["function"]["arguments"])
            made["function"]["arguments"] = json.dumps(given, indent=1)  # many agents write it again
            messages.append({"role": "tool", "tool_call_id": made["id"], "content": RESULT})


async def responses(at: Stage, stream: bool, chained: bool = False) -> None:
    client, items = at.openai(), [{"role": "user", "content": TASK}]
    tool = {"type": "function", "strict": False, **SEARCH["function"]}
    before: dict[str, Any] = {}
    while True:
        asked: dict[str, Any] = {"model": "policy", "input": items, "tools": [tool], **before}
        if stream:
            async with client.responses.stream(**asked) as events:
                kinds = [event.type async for event in events]
                done = await events.get_final_response()
            assert kinds[0] == "response.created"
            assert kinds[-1] == "response.completed"
        else:
            done = await client.responses.create(**asked)
        assert done.status == "completed"
        items += [item.model_dump(exclude_none=True) for item in done.output]
        calls = [item for item in done.output if item.type == "function_call"]
        results = [
            {"type": "function_call_output", "call_id": made.call_id, "output": RESULT} for made in calls
        ]
        if chained:
            items, before = [], {"previous_response_id": done.id}
        items += results
        if not calls:
            assert done.output_text == "A gem is a stone. "
            return


async def anthropic(at: Stage, stream: bool, thinking: bool = False) -> None:
    client, messages = at.anthropic(), [{"role": "user", "content": TASK}]
    tool = {
        "name": "search",
        "description": SEARCH["function"]["description"],
        "input_schema": SEARCH["function"]["parameters"],
    }
    more = {"thinking": {"type": "enabled", "budget_tokens": 1024}} if thinking else {}
    while True:
        asked: dict[str, Any] = {"model": "policy", "max_tokens": 2000, "messages": messages, "tools": [tool]}
        asked |= more
        if stream:
            async with client.messages.stream(**asked) as events:
                done = await events.get_final_message()
        else:
            done = await client.messages.create(**asked)
        blocks = [block.model_dump(exclude_none=True) for block in done.content]
        assert any(block["type"] == "thinking" for block in blocks) == (thinking and len(messages) == 1)
        messages.append({"role": "assistant", "content": blocks})
        calls = [block for block in blocks if block["type"] == "tool_use"]
        if not calls:
            assert done.stop_reason == "end_turn"
            return
        assert done.stop_reason == "tool_use"
        results = [
            {"type": "tool_result", "tool_use_id": made["id"], "content": [{"type": "text", "text": RESULT}]}
            for made in calls
        ]
        messages.append({"role": "user", "content": results})


DRIVERS = {
    "chat": (chat, False),
    "chat, streamed": (chat, True),
    "responses": (responses, False),
    "responses, streamed": (responses, True),
    "responses, chained": (lambda at, stream: responses(at, stream, chained=True), False),
    "anthropic": (anthropic, False),
    "anthropic, streamed": (anthropic, True),
    "anthropic, with thoughts": (lambda at, stream: anthropic(at, stream, thinking=True), True),
}


@pytest.mark.parametrize("driver", DRIVERS)
def test_each_api_gives_one_exact_row(driver: str) -> None:
    sdk = "anthropic" if driver.startswith("anthropic") else "openai"
    pytest.importorskip(sdk, reason=f"needs the package {sdk}")
    drive, stream = DRIVERS[driver]

    async def main() -> None:
        async with stage(ANSWERS) as at:
            await drive(at, stream)
            await asyncio.sleep(0.05)  # the gateway notes that its last answer has arrived
            episode = at.episode()
            assert (at.session.counts.recognized, at.session.counts.foreign) == (3, 0)
        assert len(episode.turns) == 3
        assert episode.context_mode == "append"  # each prompt extends the tokens before it
        (row,) = episode.rows()
        last_prompt, last_response = at.policy.sampled[-1]
        assert row.token_ids == [*last_prompt, *last_response]
        assert row.logprobs is not None
        assert sum(row.response_mask) == sum(len(response) for _, response in at.policy.sampled)
        assert {request_id for _, request_id in at.policy.requests} == {"episode"}
        assert episode.turns[1].observation == RESULT
        # What a tool returns spells no special token.
        eos = at.policy._tokenizer.eos_token_id
        shown = at.policy._tokenizer.encode("<|im_end|>")
        assert shown == [eos]
        assert episode.turns[1].context_ids.count(eos) <= 2

    asyncio.run(main())
