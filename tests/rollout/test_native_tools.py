"""Native tool calls: a server that is as strict as OpenAI, the openai client, and whole episodes."""

from __future__ import annotations

import asyncio
import json

import pytest

import gem_core
from gem_chat import MessagesContext
from gem_chat._calls.formats import FORMATS
from gem_chat._calls.native import native_text
from gem_chat.tools import Tool, ToolResult
from gem_core import Env
from gem_core.rollout import EpisodeLimits, episode_metrics, read_traces, run_episode
from gem_envs.tools import Tools
from gem_lab import main
from gem_lab._engines.endpoint import Endpoint
from gem_lab._engines.patience import Patience
from tests.engines.stub import StubEndpoint, completion
from tests.support import needs

pytestmark = needs("openai", "eval")


def strict(answer):
    """Return a server's rule that rejects every conversation that OpenAI rejects."""

    def serve(request):
        waiting: list[str] = []
        for message in request["messages"]:
            if message["role"] == "tool":
                if not waiting or message["tool_call_id"] != waiting.pop(0):
                    return 400, {"error": {"message": "a tool message answers no call"}}
                assert isinstance(message["content"], str)
                assert message["content"]
            elif waiting:
                return 400, {"error": {"message": f"tool_call_ids without a response: {waiting}"}}
            else:
                waiting = [call["id"] for call in message.get("tool_calls", ())]
                assert waiting or message["content"]
        for tool in request.get("tools", ()):
            assert tool["type"] == "function"
            assert tool["function"]["parameters"]["type"] == "object"
        said = answer(request)
        if isinstance(said, str):
            return said
        text, calls = said
        body = completion(request, None)
        entries = [
            {"id": f"call-{len(request['messages'])}-{index}", "type": "function",
             "function": {"name": name, "arguments": arguments}}
            for index, (name, arguments) in enumerate(calls)
        ]  # fmt: skip
        body["choices"][0] |= {
            "message": {"role": "assistant", "content": text, "tool_calls": entries},
            "finish_reason": "tool_calls",
        }
        return 200, body

    return serve


def play(env: Env, answer, *, native_tools=True, seed=0, **limits):
    """Play an episode with a server that answers by a rule; return it and the requests."""
    requests = []

    def record(request):
        requests.append(request)
        return answer(request)

    async def once():
        endpoint = Endpoint("m", base_url=stub.url, api_key="k", patience=Patience(1))
        try:
            context = MessagesContext(native_tools=native_tools)
            return await run_episode(
                env, endpoint, context, EpisodeLimits(max_tokens_per_turn=500, **limits), seed=seed
            )
        finally:
            await endpoint.close()

    with StubEndpoint(strict(record)) as stub:
        return asyncio.run(once()), requests


def oracle_of(env: Env):
    """Return a rule that answers with the oracle of `env`, with its calls as native calls."""

    def answer(request):
        text = env.oracle_action()
        for reader in env.call_readers if "tools" in request else ():
            if calls := reader.format.parse(text, reader.tools):
                return None, [(call.name, json.dumps(dict(call.arguments))) for call in calls]
        return text

    return answer


@pytest.mark.parametrize("id", ["service:Shop-v0", "math:FileArithmetic-v0-python", "database:Shop-v0"])
def test_an_oracle_with_native_calls_plays_the_same_episode(id):
    with gem_core.make(id) as env:
        written, _ = play(env, oracle_of(env), native_tools=False)
    with gem_core.make(id) as env:
        native, requests = play(env, oracle_of(env))
    assert native.success
    assert [turn.action for turn in native.turns] == [turn.action for turn in written.turns]
    assert native.rewards == written.rewards
    called = [turn for turn in native.turns if turn.info.get("use_tool")]
    assert called
    assert all(turn.info["reply"]["tool_calls"] for turn in called)
    names = {call["name"] for turn in called for call in turn.info["reply"]["tool_calls"]}
    for request in requests:
        assert names <= {tool["function"]["name"] for tool in request["tools"]}
        assert "<tool_call>" not in request["messages"][0]["content"]  # the schemas explain the tools
    if len(requests) > 1:  # the result is in the message of its call
        last = [message for message in requests[-1]["messages"] if message["role"] == "tool"][-1]
        texts = [turn.observation for turn in native.turns]
        assert any(last["content"] in text and text != last["content"] for text in texts)


class Echo(Tool):
    name = "echo"
    description = "Repeats a text."
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}  # noqa: RUF012

    async def call(self, arguments, state):
        return ToolResult(arguments["text"], ok=arguments["text"] != "bad")


class Two(Echo):
    name = "two"
    parameters = {"type": "object", "properties": {"a": {}, "b": {"type": "integer"}}, "required": ["b"]}  # noqa: RUF012

    async def call(self, arguments, state):
        return ToolResult(f"two {arguments['b']}")


def tooled(**options):
    return Tools(gem_core.make("math:Arithmetic-v0"), tools=[Echo(), Two()], **options)


@pytest.mark.parametrize("form", FORMATS.names())
@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "</echo> </tool_call> </think> </function>",
        '"quotes" and \\ and {',
        "<echo>x</echo>",
        "",
        "é\n",
    ],
)
def test_any_argument_reaches_the_tool(form, text):
    turns = iter([(None, [("echo", json.dumps({"text": text}))]), "\\boxed{0}"])
    with tooled(format=form) as env:
        episode, requests = play(env, lambda request: next(turns))
    first = episode.turns[0]
    assert first.info["tool_results"] == [{"name": "echo", "ok": True}]
    assert requests[1]["messages"][-1]["role"] == "tool"
    assert requests[1]["messages"][-1]["content"] == (text if text.strip() else "(no answer)")
    with tooled(format=form) as env:  # the recorded action is enough to replay the turn
        env.reset(seed=0)
        assert env.step(first.action)[4]["tool_results"] == first.info["tool_results"]


@pytest.mark.parametrize("form", FORMATS.names())
@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("nothing", "{}", "there is no tool"),
        ("echo", '{"text": "cut', "invalid JSON"),
        ("echo", '{"word": "x"}', "is missing"),
        ("echo", "[1]", "not a JSON object"),
        ("two", '{"b": "many"}', '"b"'),
        ("", "{}", ""),
    ],
)
def test_a_wrong_call_is_answered_with_the_reason(form, name, arguments, reason):
    turns = iter([(None, [(name, arguments)]), (None, [("echo", '{"text": "ok"}')]), "\\boxed{0}"])
    with tooled(format=form) as env:
        episode, requests = play(env, lambda request: next(turns))
    assert episode.turns[0].info["invalid"] == "format"
    assert reason in requests[1]["messages"][-1]["content"]
    assert episode.turns[1].info["tool_results"] == [{"name": "echo", "ok": True}]


@pytest.mark.parametrize("form", FORMATS.names())
def test_several_calls_and_a_text_before_them(form):
    calls = [("echo", '{"text": "one"}'), ("two", '{"b": 2}'), ("echo", '{"text": "three"}')]
    turns = iter([("I look <echo>no</echo>.", calls), "\\boxed{0}"])
    with tooled(format=form, max_calls=2) as env:
        episode, requests = play(env, lambda request: next(turns))
    assert [result["name"] for result in episode.turns[0].info["tool_results"]] == ["echo", "two"]
    said, *results = requests[1]["messages"][-4:]
    assert (said["content"], len(said["tool_calls"])) == ("I look <echo>no</echo>.", 3)
    assert [message["content"] for message in results[:2]] == ["one", "two 2"]
    assert "not made" in results[2]["content"]


def test_the_announcement_of_the_last_use_and_calls_after_it():
    turns = iter([(None, [("echo", '{"text": "one"}')]), (None, [("echo", '{"text": "two"}')]), "\\boxed{0}"])
    env = Tools(gem_core.make("math:Arithmetic-v0-retry"), tools=Echo(), max_tool_uses=1)
    with env:
        episode, requests = play(env, lambda request: next(turns), max_turns=3)
    assert "That was the last use of a tool" in requests[1]["messages"][-1]["content"]
    assert episode.turns[1].info["invalid"] == "format"  # the environment got the call
    assert [message["role"] for message in requests[2]["messages"][-3:]] == ["assistant", "tool", "user"]


def test_a_wrapper_that_rewrites_observations_gets_its_own_message():
    turns = iter([(None, [("echo", '{"text": "one"}')]), "\\boxed{0}"])
    with gem_core._registration.wrap(tooled(), "concat_with_action") as env:
        _, requests = play(env, lambda request: next(turns))
    tool, user = requests[1]["messages"][-2:]
    assert (tool["role"], tool["content"], user["role"]) == ("tool", "See the next message.", "user")
    assert "Result of echo:\none" in user["content"]


def test_calls_to_an_inner_wrapper_with_another_format():
    turns = iter([(None, [("two", '{"b": 3}')]), (None, [("echo", '{"text": "one"}')]), "\\boxed{0}"])
    inner = Tools(gem_core.make("math:Arithmetic-v0"), tools=Two())
    with Tools(inner, tools=Echo(), format="hermes") as env:
        episode, requests = play(env, lambda request: next(turns))
    assert [tool["function"]["name"] for tool in requests[0]["tools"]] == ["echo", "two"]
    assert [turn.info["tool_type"] for turn in episode.turns[:2]] == ["two", "echo"]
    assert [requests[number]["messages"][-1]["content"] for number in (1, 2)] == ["two 3", "one"]


def test_without_native_tools_a_server_that_reads_calls_itself_is_played_too():
    turns = iter([(None, [("echo", '{"text": "one"}')]), "\\boxed{0}"])
    with tooled() as env:
        episode, requests = play(env, lambda request: next(turns), native_tools=False)
    assert "tools" not in requests[0]
    assert episode.turns[0].action == "<echo>one</echo>"
    assert requests[1]["messages"][-2:] == [
        {"role": "assistant", "content": "<echo>one</echo>"},
        {"role": "user", "content": "Result of echo:\none"},
    ]


def test_a_call_without_any_tool_is_reported_once_and_kept_in_the_trace(caplog):
    env = gem_core.make("math:Arithmetic-v0-retry")
    answers = (None, [("calculator", '{"x": 1}')])
    with env:
        episode, requests = play(env, lambda request: answers, max_turns=2)
    assert "tools" not in requests[0]
    assert caplog.text.count("has no tools, but the model called calculator") == 1
    first = episode.turns[0].info
    assert first["invalid"] == "format"
    assert first["reply"]["tool_calls"] == [{"name": "calculator", "arguments": '{"x": 1}'}]


def test_the_command_records_what_rescoring_replays(tmp_path, capsys):
    def answer(request):
        if any(message["role"] == "tool" for message in request["messages"]):
            return "\\boxed{0}"
        return None, [("python", '{"code": "print(6 * 7)"}')]

    words = ["--env", "math:FileArithmetic-v0-python", "--episodes", "2", "--out", str(tmp_path / "run")]
    with StubEndpoint(strict(answer)) as stub:
        assert main(["eval", "--model", "m", "--base-url", stub.url, "--native-tools", *words]) == 0
    episodes = list(read_traces(tmp_path / "run" / "episodes.jsonl"))
    assert episode_metrics(episodes)["gem/tool_calls"] == 1
    assert episode_metrics(episodes)["gem/format_error_rate"] == 0
    capsys.readouterr()
    assert main(["eval", "--rescore", str(tmp_path / "run"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["scored"], result["differences"], result["unscored"]) == (2, [], [])
    assert main(["eval", "--model", "random", "--native-tools", *words]) == 2
    assert "native_tools is for a model in a folder or at an endpoint" in capsys.readouterr().err


def test_a_call_that_no_format_can_hold_is_still_written():
    (reader,) = tooled(format="llama").call_readers
    message = {"content": "So:", "tool_calls": [{"function": {"name": "a b", "arguments": "no JSON"}}]}
    assert "a b" in native_text(message, [reader])
