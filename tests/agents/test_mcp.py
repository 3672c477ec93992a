"""The environment as an MCP server: a reward for each call, which the agent never sees."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")
pytest.importorskip("jinja2", reason="needs jinja2, of the extra 'train'")

import aiohttp

from gem_agents._steps import Steps
from gem_core import Env
from gem_core.rollout._calls import EnvCalls
from tests.agents.stage import Stage, stage
from tests.agents.test_traps import TASK, ask, post, settle

ACT = {
    "type": "function",
    "function": {
        "name": "mcp__gem__act",
        "description": "Acts.",
        "parameters": {
            "type": "object",
            "properties": {"action": {"type": "string"}},
            "required": ["action"],
        },
    },
}


def acts(*actions: str) -> str:
    """Return the calls of a model."""
    calls = [json.dumps({"name": "mcp__gem__act", "arguments": {"action": action}}) for action in actions]
    return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)


class Values(Env):
    """Each action is its reward; 0 ends the episode."""

    slow = 0.0

    def new_task(self) -> None:
        self.played: list[str] = []

    def prompt(self) -> str:
        return "Say numbers."

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.played.append(action)
        return f"You said {action}.", float(action), action == "0", False, {"said": action}

    async def astep(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        await asyncio.sleep(self.slow)
        return self.step(action)


async def open_env(at: Stage) -> Values:
    env = Values()
    calls = EnvCalls(env, None, None)
    await calls.reset(0, None)
    at.session.steps = Steps(calls, asyncio.get_running_loop(), "invalid")
    return env


async def play(at: Stage, action: str, **meta: str) -> dict[str, Any]:
    params = {"name": "act", "arguments": {"action": action}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    status, answer = await post(at, "mcp", body)
    assert (status, answer["id"]) == (200, 7)
    return dict(answer["result"])


def test_the_official_client_plays_an_environment() -> None:
    sdk = pytest.importorskip("gem_envs.tools.mcp._sdk", reason="needs mcp, of the extra 'mcp'")

    async def main() -> None:
        async with stage([acts("3")]) as at:
            env = await open_env(at)
            await ask(at, TASK, tools=[ACT])
            await settle()
            transport = sdk.streamable_http_client(f"{at.base}/mcp")
            async with sdk.open_session(transport, lambda: None) as session:
                (tool,) = await sdk.list_tools(session)
                assert tool.name == "act"
                result = await session.call_tool("act", {"action": "3"})
                assert result.content[0].text == "You said 3."
                assert "reward" not in str(result).lower()
            assert env.played == ["3"]
            assert [turn.reward for turn in at.episode().turns] == [3.0]

    asyncio.run(main())


@pytest.mark.parametrize("key", ["claudecode/toolUseId", "callId", None])
def test_the_reward_goes_to_the_turn_that_made_the_call(key: str | None) -> None:
    async def main() -> None:
        async with stage([acts("1", "2"), acts("2"), acts("5")]) as at:
            await open_env(at)
            answers = [await ask(at, TASK, tools=[ACT]) for _ in range(3)]  # three agents at once
            await settle()
            ids = [[call["id"] for call in answer["tool_calls"]] for answer in answers]
            order = [("2", ids[0][1]), ("2", ids[1][0]), ("5", ids[2][0]), ("1", ids[0][0])]
            for action, id in order:
                meta = {} if key is None else {key: id}
                assert (await play(at, action, **meta))["isError"] is False
            assert [turn.reward for turn in at.episode().turns] == [3.0, 2.0, 5.0]

    asyncio.run(main())


def test_the_end_of_the_environment_ends_the_episode() -> None:
    async def main() -> None:
        async with stage([acts("0")]) as at:
            env = await open_env(at)
            await ask(at, TASK, tools=[ACT])
            await settle()
            shown = await play(at, "0")
            assert shown["content"][0]["text"] == "You said 0.\n\nThe episode is over."
            after = await play(at, "1")
            assert after["isError"] is True
            assert env.played == ["0"]
            status, answer = await post(at, "v1/chat/completions", {"model": "m", "messages": [TASK]})
            assert (status, answer["error"]["code"]) == (400, "episode_over")

    asyncio.run(main())


@pytest.mark.parametrize("named", [True, False])
def test_a_lost_result_is_given_to_the_next_try_and_no_action_is_played_twice(named: bool) -> None:
    async def main() -> None:
        async with stage([acts("3"), acts("3")]) as at:
            env = await open_env(at)
            env.slow = 0.3
            first = await ask(at, TASK, tools=[ACT])
            await ask(at, TASK, tools=[ACT])
            await settle()
            meta = {"callId": first["tool_calls"][0]["id"]} if named else {}
            params = {"name": "act", "arguments": {"action": "3"}, "_meta": meta}
            body = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
            with pytest.raises(asyncio.TimeoutError):
                await post(at, "mcp", body, timeout=aiohttp.ClientTimeout(total=0.1))
            await asyncio.sleep(0.1)
            assert (await play(at, "3", **meta))["content"][0]["text"] == "You said 3."
            assert env.played == ["3"]
            assert [turn.reward for turn in at.episode().turns] == [3.0, 0.0]

    asyncio.run(main())


def test_other_messages_are_answered_as_the_protocol_says() -> None:
    def message(method: str, params: Any = None) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": "a", "method": method, "params": params}

    async def main() -> None:
        async with stage() as at:
            env = await open_env(at)
            for wanted, given in (("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25")):
                begin = message("initialize", {"protocolVersion": wanted, "capabilities": {}})
                _, answer = await post(at, "mcp", begin)
                assert answer["result"]["protocolVersion"] == given
            assert (await post(at, "mcp", message("ping")))[1] == {"jsonrpc": "2.0", "id": "a", "result": {}}
            codes = [
                (await post(at, "mcp", message(method, params)))[1]["error"]["code"]
                for method, params in (
                    ("resources/list", None),
                    ("tools/call", None),
                    ("tools/call", {"name": "act", "arguments": {"action": 3}}),
                    ("tools/call", {"name": "other", "arguments": {"action": "3"}}),
                )
            ]
            assert codes == [-32601, -32602, -32602, -32602]
            async with aiohttp.ClientSession() as http:
                note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
                async with http.post(f"{at.base}/mcp", json=note) as answer:
                    assert answer.status == 202
                async with http.get(f"{at.base}/mcp") as answer:
                    assert answer.status == 405
            early = await play(at, "3")
            assert early["isError"] is True  # the agent has no response yet
            assert env.played == []

    asyncio.run(main())
