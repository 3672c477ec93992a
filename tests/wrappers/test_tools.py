from __future__ import annotations

import asyncio
import json
import time
from typing import ClassVar

import pytest

import gem_core
from gem_chat import _tools as base
from gem_chat.tools import Tool, ToolResult, register_tool
from gem_core.errors import ConfigError, ResetNeeded, UnknownName
from gem_envs.tools import Tools
from gem_envs.tools._wrapper import LAST_USE
from gem_lab import check_env
from tests.support import ScriptedEnv

TEXT: dict = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class Upper(Tool):
    name = "upper"
    description = "Writes a text in capitals; rejects an empty one."
    parameters: ClassVar = TEXT

    def __init__(self, name="upper", delay=0.0):
        self.name, self.delay = name, delay
        self.ended, self.closed = [], 0

    async def call(self, arguments, state):
        await asyncio.sleep(self.delay)
        state.data["calls"] = [*state.data.get("calls", []), arguments["text"]]
        state.live = state.live or object()
        if arguments["text"] == "raise":
            raise RuntimeError("the tool\nbroke")
        if not arguments["text"]:
            return ToolResult("nothing to write", ok=False)
        return ToolResult(arguments["text"].upper(), metadata={"calls": len(state.data["calls"])})

    def end(self, state):
        self.ended.append(state)

    def close(self):
        self.closed += 1


def make(tools=None, rewards=None, **kwargs):
    return Tools(ScriptedEnv(rewards or [0.0, 1.0]), tools=tools or Upper(), **kwargs)


def test_a_call_is_answered_without_the_environment():
    env = make(tool_reward=0.05, tool_success_reward=0.25, tool_error_reward=-0.5)
    observation, info = env.reset(seed=0)
    assert observation.startswith("seed 0")
    assert "<upper>...</upper>" in observation
    assert info == {
        "use_tool": False, "tool_use_counter": 0, "tool_success_counter": 0,
        "prev_ep_tool_use_counter": 0, "prev_ep_tool_success_counter": 0,
    }  # fmt: skip
    observation, reward, terminated, truncated, info = env.step("so: <upper>abc</upper> and more")
    assert (observation, terminated, truncated) == ("Result of upper:\nABC", False, False)
    assert reward == pytest.approx(0.3)
    assert info == {
        "parsed_action": "so: <upper>abc</upper>", "tool_type": "upper", "use_tool": True,
        "tool_results": [{"name": "upper", "ok": True, "calls": 1}],
        "tool_use_counter": 1, "tool_success_counter": 1,
    }  # fmt: skip
    assert env.unwrapped.actions == []
    _, reward, *_, info = env.step("<upper></upper>")
    assert reward == pytest.approx(-0.45)
    assert info["tool_error"] == "nothing to write"
    assert (info["tool_use_counter"], info["tool_success_counter"]) == (2, 1)
    observation, reward, *_, info = env.step("no call")
    assert (reward, info["use_tool"], info["tool_use_counter"]) == (0.0, False, 2)
    assert env.unwrapped.actions == ["no call"]
    assert env.step("end")[2] is True
    with pytest.raises(ResetNeeded):
        env.step("<upper>abc</upper>")
    assert env.reset(seed=1)[1]["prev_ep_tool_use_counter"] == 2


def test_the_last_use_says_so_and_later_calls_go_to_the_environment():
    env = make(max_tool_uses=2)
    env.reset(seed=0)
    assert LAST_USE not in env.step("<upper>a</upper>")[0]
    assert env.step("<upper>a</upper>")[0].endswith(LAST_USE)
    assert env.step("<upper>b</upper>")[4]["use_tool"] is False
    assert env.unwrapped.actions == ["<upper>b</upper>"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "Make one call per response, and use tools at most 10 times."),
        ({"max_tool_uses": 1, "max_calls": 2}, "Make at most 2 calls per response, and use tools once."),
        ({"max_tool_uses": None}, "Make one call per response."),
    ],
)
def test_the_instructions_state_the_limits(options, sentence):
    assert make(**options).reset(seed=0)[0].endswith(f"\n{sentence}")


def test_a_second_call_in_one_response_is_answered():
    env = make()
    env.reset(seed=0)
    observation = env.step("<upper>a</upper> <upper>b</upper> <upper>c</upper>")[0]
    assert observation.startswith("Result of upper:\nA\n")
    assert observation.endswith("2 other calls in the same response were not made: the limit is one call.")
    assert "not made" not in env.step("<upper>b</upper>")[0]


def test_no_tool_hides_the_result_of_another():
    tools = [Upper(), Upper("shout")]
    env = make(tools, max_calls=3)
    env.reset(seed=0)
    observation, *_, info = env.step("<upper></upper> <shout>b</shout> <upper>c</upper> <upper>d</upper>")
    assert observation == (
        "Result of upper:\nnothing to write\nResult of shout:\nB\nResult of upper:\nC\n\n"
        "Another call in the same response was not made: the limit is 3 calls."
    )
    assert info["tool_type"] == "upper,shout,upper"
    assert info["tool_error"] == "nothing to write"
    assert info["parsed_action"].endswith("<upper>c</upper>")
    assert [result["ok"] for result in info["tool_results"]] == [False, True, True]


def test_a_malformed_call_and_a_broken_tool_are_reported_to_the_model():
    env = make()
    env.reset(seed=0)
    observation, *_, info = env.step("<upper>abc")
    assert observation == "Result of upper:\nThe call was not made: <upper> is not closed with </upper>."
    assert info["tool_error"].startswith("The call was not made")
    assert info["invalid"] == "format"
    observation, *_, info = env.step("<upper>raise</upper>")
    assert observation == "Result of upper:\nupper failed: RuntimeError: the tool broke"
    assert info["tool_success_counter"] == 0


def test_a_call_that_cannot_be_read_pays_like_any_format_error():
    env = Tools(gem_core.make("game:GuessTheNumber-v0-easy"), tools=Upper(), tool_reward=0.5)
    env.reset(seed=0)
    assert env.step("<upper>abc")[1] == env.format_error_reward == -0.1
    assert env.step("<upper></upper>")[1] == 0.5


def test_a_slow_tool_costs_its_time_only():
    env = make(Upper(delay=60), timeout=0.05)
    env.reset(seed=0)
    assert env.step("<upper>a</upper>")[0].endswith("upper did not answer within 0.05 seconds.")


def test_a_long_result_loses_its_middle():
    env = make(max_result_chars=10)
    env.reset(seed=0)
    shown = env.step(f"<upper>{'a' * 50}z</upper>")[0]
    assert shown == "Result of upper:\nAAAAA\n... (41 characters left out) ...\nAAAAZ"
    env = make(max_result_chars=None)  # the default is 8,000
    env.reset(seed=0)
    assert env.step(f"<upper>{'a' * 9000}</upper>")[0] == f"Result of upper:\n{'A' * 9000}"


class Meeting(Upper):
    """A tool whose calls end only after `size` of them have begun."""

    def __init__(self, size):
        super().__init__()
        self.missing, self.all_here = size, asyncio.Event()

    async def call(self, arguments, state):
        self.missing -= 1
        if not self.missing:
            self.all_here.set()
        await asyncio.wait_for(self.all_here.wait(), 30)
        return await super().call(arguments, state)


def test_calls_of_one_response_may_run_together():
    env = make(Meeting(8), max_calls=8, together=True)
    env.reset(seed=0)
    observation = env.step("<upper>a</upper>" * 8)[0]
    assert observation.count("A") == 8


def test_episodes_on_one_loop_wait_for_their_tools_at_the_same_time():
    async def play(env):
        await env.areset(seed=0)
        return (await env.astep("<upper>abc</upper>"))[0]

    async def play_all():
        return await asyncio.gather(*(play(make(Upper(delay=0.2))) for _ in range(50)))

    start = time.monotonic()
    assert set(asyncio.run(play_all())) == {"Result of upper:\nABC"}
    assert time.monotonic() - start < 50 * 0.2


def test_the_state_holds_counters_and_what_tools_keep():
    env = make()
    env.reset(seed=0)
    env.step("<upper>a</upper>")
    saved = json.loads(json.dumps(env.get_state()))
    env.step("<upper>b</upper>")
    env.set_state(saved)
    assert env.step("<upper>c</upper>")[4]["tool_results"] == [{"name": "upper", "ok": True, "calls": 2}]
    twin = env.spawn(same_state=True)
    assert twin.step("<upper>c</upper>")[4]["tool_use_counter"] == 3
    fresh = make()
    fresh.reset(seed=5, options={"state": saved})
    assert fresh.step("<upper>c</upper>")[4]["tool_use_counter"] == 2


def test_resources_of_tools_are_released_with_the_episode():
    tool = Upper()
    env = make(tool)
    env.reset(seed=0)
    env.step("<upper>a</upper>")
    env.step("one")
    assert tool.ended == []
    env.step("two")
    assert len(tool.ended) == 1
    env.reset(seed=0)
    env.step("<upper>a</upper>")
    env.reset(seed=0)
    assert len(tool.ended) == 2
    env.step("<upper>a</upper>")
    env.close()
    assert (len(tool.ended), tool.closed) == (3, 0)  # the creator of the tool closes it


def test_wrappers_with_tools_stack():
    env = Tools(Tools(ScriptedEnv(), tools=Upper(), format="hermes"), tools=Upper("shout"), format="hermes")
    env.reset(seed=0)

    def call(name):
        return env.step(f'<tool_call>{{"name": "{name}", "arguments": {{"text": "a"}}}}</tool_call>')

    assert call("shout")[4]["tool_use_counter"] == 1
    observation, *_, info = call("upper")
    assert (observation, info["tool_use_counter"]) == ("<tool_response>\nA\n</tool_response>", 2)
    assert "there is no tool" in call("whisper")[0]
    assert env.unwrapped.actions == []


def test_instructions_may_be_omitted_or_replaced():
    assert "upper" not in make(instructions=False).reset(seed=0)[0]
    assert make(instructions="Use <upper>.").reset(seed=0)[0].endswith("\nUse <upper>.")


def test_options_that_make_no_sense_are_rejected():
    for wrong in ({"max_tool_uses": 0}, {"max_calls": None}, {"max_result_chars": -1}, {"timeout": 0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            make(**wrong)
    with pytest.raises(ConfigError, match="at least one tool"):
        Tools(ScriptedEnv(), tools="")
    with pytest.raises(UnknownName, match="unknown call format"):
        make(format="xml")


def test_max_return_is_known_only_where_tools_pay_nothing():
    inner = ScriptedEnv()
    inner.max_return = 1.5
    assert Tools(inner, tools=Upper()).max_return == 1.5
    assert Tools(inner, tools=Upper(), tool_reward=0.1).max_return is None


def test_the_wrapper_goes_by_name(monkeypatch):
    monkeypatch.setattr(base._tools, "_values", base._tools.registered())
    made = []
    register_tool("upper", lambda name="upper": made.append(Upper(name)) or made[-1])
    env = gem_core.make(
        "game:GuessTheNumber-v0-easy",
        wrappers="tools(tools='upper, upper(name=\\'shout\\')', format='hermes'), time_limit(max_turns=3)",
    )
    env.reset(seed=0)
    assert env.step('<tool_call>{"name": "shout", "arguments": {"text": "a"}}</tool_call>')[4]["use_tool"]
    again = gem_core.make(gem_core.EnvSpec.from_json(env.spec.to_json()))
    assert again.tool_names == ("upper", "shout")
    env.close()
    assert [tool.closed for tool in made] == [1, 1, 0, 0]


@pytest.mark.once
def test_a_game_under_the_wrapper_still_passes_the_checker():
    env = Tools(gem_core.make("game:GuessTheNumber-v0-easy"), tools=Upper())
    check_env(env)


def test_tools_with_the_same_key_share_the_state_of_an_episode():
    tools = [Upper("one"), Upper("two"), Upper("own")]
    tools[0].state_key = tools[1].state_key = "server"
    env = make(tools=tools)
    env.reset(seed=0)
    for name in ("one", "two", "own"):
        env.step(f"<{name}>a</{name}>")
    assert env.get_state()["fields"]["tool_data"] == {
        "server": {"calls": ["a", "a"]},
        "own": {"calls": ["a"]},
    }
    env.reset(seed=0)
    assert sorted(len(tool.ended) for tool in tools) == [0, 1, 1]  # a shared state ends once


class Peek(Tool):
    name = "peek"
    description = "Shows the number of steps, and pays for each call."
    parameters: ClassVar = {"type": "object", "properties": {"pay": {"type": "number"}}, "required": ["pay"]}

    async def call(self, arguments, state):
        state.env.peeks = getattr(state.env, "peeks", 0) + 1
        return ToolResult(f"{len(state.env.actions)} steps", reward=arguments["pay"])


def test_a_tool_sees_the_environment_below_all_wrappers_and_rewards_its_calls():
    inner = gem_core._registration.wrap(ScriptedEnv([0.0, 1.0]), "time_limit(max_turns=5)")
    env = Tools(Tools(inner, tools=Upper()), tools=Peek(), format="hermes", max_calls=2, tool_reward=0.5)
    env.reset(seed=0)
    call = '<tool_call>{"name": "peek", "arguments": {"pay": %s}}</tool_call>'
    observation, reward, *_ = env.step(call % 0.25 + call % -1)
    assert observation.count("0 steps") == 2
    assert reward == pytest.approx(0.5 + 0.25 - 1)
    assert env.unwrapped.peeks == 2
    env.step("a move")
    assert "1 steps" in env.step(call % 0)[0]
    twin = env.spawn(same_state=True)
    twin.step(call % 0)
    assert (env.unwrapped.peeks, twin.unwrapped.peeks) == (3, 1)  # its own environment, not its sibling's
