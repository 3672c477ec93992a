"""What agents do that would cost tokens, turns, or rewards: each test is one such thing."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")
pytest.importorskip("jinja2", reason="needs jinja2, of the extra 'train'")

import aiohttp

from gem_agents import _pages
from gem_agents._gateway import GatewayLimits
from gem_chat import AppendContext
from gem_core.rollout import Generation
from gem_core.rollout._dialogue import TokenLimits
from tests.agents.stage import SEARCH, THINKING, Script, Stage, call, stage, tokenizer

TASK = {"role": "user", "content": "What is a gem?"}
OTHER = {**SEARCH, "function": {**SEARCH["function"], "name": "browse"}}


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


async def post(
    at: Stage, page: str, body: Any, base: str | None = None, **options: Any
) -> tuple[int, dict[str, Any]]:
    url = f"{base or at.base}/{page}"
    async with aiohttp.ClientSession() as http, http.post(url, json=body, **options) as answer:
        return answer.status, await answer.json(content_type=None)


async def text_of(at: Stage, page: str, body: Any) -> tuple[int, str]:
    async with aiohttp.ClientSession() as http, http.post(f"{at.base}/{page}", json=body) as answer:
        return answer.status, await answer.text()


async def ask(at: Stage, *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the message of an answer."""
    status, body = await post(at, "v1/chat/completions", {"model": "m", "messages": [*messages], **more})
    assert status == 200, body
    return dict(body["choices"][0]["message"])


async def refusal(at: Stage, body: Any, page: str = "v1/chat/completions") -> tuple[int, str]:
    status, answer = await post(at, page, body)
    return status, str(answer["error"].get("code", answer["error"]["message"]))


async def settle() -> None:
    """Let the gateway note that its last answer has arrived."""
    await asyncio.sleep(0.05)


def test_an_agent_may_continue_any_of_several_equal_answers() -> None:
    async def main() -> None:
        thoughts = [f"<think>{word}</think>\nSure." for word in ("one", "two", "six")]
        async with stage([*thoughts, "a", "b"]) as at:
            answers = [await ask(at, TASK) for _ in range(3)]
            assert [answer["content"] for answer in answers] == ["Sure."] * 3
            more = {"role": "user", "content": "Go on."}
            await ask(at, TASK, answers[0], more)  # with its thoughts
            await ask(at, TASK, said("Sure."), more)  # without them: the newest
            await settle()
            at.episode()
        texts = [tokenizer().decode(prompt) for prompt, _ in at.policy.sampled]
        assert "one" in texts[3]
        assert "six" in texts[4]

    asyncio.run(main())


def test_equal_requests_at_once_are_samples_of_their_own() -> None:
    async def main() -> None:
        async with stage(lambda number: f"answer {number}", seconds=0.05) as at:
            answers = await asyncio.gather(*(ask(at, TASK) for _ in range(4)))
            assert len({answer["content"] for answer in answers}) == 4
            assert len({request_id for _, request_id in at.policy.requests}) == 4  # none is open twice
            await settle()
            assert len(at.episode().turns) == 4

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_a_lost_answer_is_given_to_the_next_equal_request(stream: bool) -> None:
    async def main() -> None:
        async with stage(["first", "second"], seconds=0.3) as at:
            body = {"model": "m", "messages": [TASK], "stream": stream}
            with pytest.raises(asyncio.TimeoutError):
                await post(at, "v1/chat/completions", body, timeout=aiohttp.ClientTimeout(total=0.1))
            await asyncio.sleep(0.1)
            assert (await ask(at, TASK))["content"] == "first"  # also if it is no stream this time
            assert (await ask(at, TASK))["content"] == "second"
            await settle()
            assert [turn.action for turn in at.episode().turns] == ["first", "second"]
            assert at.session.counts.replayed == 1

    asyncio.run(main())


def test_a_marked_request_gets_the_answer_again() -> None:
    async def main() -> None:
        async with stage(["first", "second"]) as at:
            body = {"model": "m", "messages": [TASK]}
            answers = [
                await post(at, "v1/chat/completions", body, headers={"x-stainless-retry-count": count})
                for count in ("0", "1", "0")
            ]
            texts = [answer["choices"][0]["message"]["content"] for _, answer in answers]
            assert texts == ["first", "first", "second"]

    asyncio.run(main())


def test_an_agent_that_hangs_up_after_the_last_event_has_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hung_up(self: Any) -> None:
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    async def main() -> None:
        async with stage(["first"]) as at:
            with monkeypatch.context() as patch:
                patch.setattr(aiohttp.web.StreamResponse, "write_eof", hung_up)
                with pytest.raises(aiohttp.ClientPayloadError):  # there is no end of the body
                    await text_of(at, "v1/responses", {"model": "m", "input": "hi", "stream": True})
            await settle()
            assert [turn.action for turn in at.episode().turns] == ["first"]
            assert at.session.counts.lost == 0

    asyncio.run(main())


def test_an_answer_that_the_agent_sends_back_was_delivered_whatever_its_connection_did() -> None:
    async def main() -> None:
        async with stage(["first", "second"]) as at:
            first = await ask(at, TASK)
            await settle()
            at.session.calls[0].delivered = False
            await ask(at, TASK, first, {"role": "user", "content": "Go on."})
            await settle()
            assert [turn.action for turn in at.episode().turns] == ["first", "second"]

    asyncio.run(main())


def test_an_answer_that_nobody_got_is_no_turn_and_opens_no_row() -> None:
    async def main() -> None:
        async with stage(["first", "never read", "second"], seconds=0.2) as at:
            first = await ask(at, TASK)
            more = {"role": "user", "content": "Stop."}
            body = {"model": "m", "messages": [TASK, first, more]}
            with pytest.raises(asyncio.TimeoutError):
                await post(at, "v1/chat/completions", body, timeout=aiohttp.ClientTimeout(total=0.1))
            await asyncio.sleep(0.3)
            await ask(at, TASK, first, {"role": "user", "content": "Go on."})
            await settle()
            assert [turn.action for turn in at.episode().turns] == ["first", "second"]

    asyncio.run(main())


def test_calls_in_parallel_on_one_history_each_have_a_row() -> None:
    async def main() -> None:
        async with stage(lambda number: f"answer {number}", seconds=0.02) as at:
            first = await ask(at, TASK)
            asked = [
                ask(at, TASK, first, {"role": "user", "content": f"Part {number}."}) for number in range(8)
            ]
            await asyncio.gather(*asked)
            await settle()
            episode = at.episode()
            assert episode.context_mode == "rebuild"
            assert len(episode.turns) == 9
            assert sorted({request_id for _, request_id in at.policy.requests}) == sorted(
                ["episode", *(f"episode/{number}" for number in range(1, 8))]
            )
            start = len(at.policy.sampled[0][0]) + len(at.policy.sampled[0][1])
            whole = [*at.policy.sampled[0][0], *at.policy.sampled[0][1]]
            assert all(prompt[:start] == whole for prompt, _ in at.policy.sampled[1:])

    asyncio.run(main())


def space(name: str) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "tools": [{"type": "function", **SEARCH["function"]}]}


def test_a_call_of_a_tool_in_a_namespace_names_the_namespace() -> None:
    async def main() -> None:
        async with stage([call("x"), "done"]) as at:
            body: dict[str, Any] = {"model": "m", "input": [TASK]}
            body["tools"] = [space("mcp__web"), {"type": "function", **OTHER["function"]}]
            _, answer = await post(at, "v1/responses", body)
            (item,) = answer["output"]
            assert (item["name"], item["namespace"]) == ("search", "mcp__web")
            result = {"type": "function_call_output", "call_id": item["call_id"], "output": "y"}
            body["input"] = [*body["input"], item, result]
            _, answer = await post(at, "v1/responses", body)
            assert answer["output"][0]["content"][0]["text"] == "done"
            assert (at.session.counts.recognized, at.session.counts.foreign) == (1, 0)

    asyncio.run(main())


def test_tools_of_one_name_in_two_namespaces_are_two_tools() -> None:
    async def main() -> None:
        text = call("x").replace('"search"', '"second__search"')
        async with stage([text, "done"]) as at:
            body: dict[str, Any] = {"model": "m", "input": [TASK]}
            body["tools"] = [space("first"), space("second")]
            _, answer = await post(at, "v1/responses", body)
            (item,) = answer["output"]
            assert (item["name"], item["namespace"]) == ("search", "second")
            shown = tokenizer().decode(at.policy.sampled[0][0])
            assert [f'"{name}"' in shown for name in ("first__search", "second__search", "search")] == [
                True, True, False,
            ]  # fmt: skip
            result = {"type": "function_call_output", "call_id": item["call_id"], "output": "y"}
            body["input"] = [*body["input"], item, result]
            await post(at, "v1/responses", body)
            assert (at.session.counts.recognized, at.session.counts.foreign) == (1, 0)

    asyncio.run(main())


def test_other_tools_are_another_prompt_and_keep_what_was_sampled() -> None:
    async def main() -> None:
        async with stage(["odd words", "b"]) as at:
            first = await ask(at, TASK, tools=[SEARCH])
            await ask(at, TASK, first, {"role": "user", "content": "Go on."}, tools=[SEARCH, OTHER])
            await settle()
            assert at.episode().context_mode == "rebuild"
            _, odd = at.policy.sampled[0]
            later, _ = at.policy.sampled[1]
            assert any(later[place : place + len(odd)] == odd for place in range(len(later)))
            assert at.session.counts.spliced == 1

    asyncio.run(main())


def test_a_summary_of_the_history_begins_a_row_with_the_answers_that_are_left() -> None:
    async def main() -> None:
        async with stage(["first answer", "second answer", "third"]) as at:
            more = {"role": "user", "content": "Go on."}
            first = await ask(at, TASK)
            second = await ask(at, TASK, first, more)
            summary = {"role": "user", "content": "So far, we talked about gems."}
            await ask(at, summary, second, more)
            await settle()
            at.episode()
            prompt, _ = at.policy.sampled[2]
            odd = at.policy.sampled[1][1]
            assert any(prompt[place : place + len(odd)] == odd for place in range(len(prompt)))
            counts = at.session.counts
            assert (counts.recognized, counts.spliced, counts.foreign) == (1, 1, 0)
            assert counts.refused == 0

    asyncio.run(main())


def test_the_key_of_the_agent_sets_no_rewards() -> None:
    async def main() -> None:
        async with stage(["one", call("x")]) as at:
            await ask(at, TASK)
            made = (await ask(at, TASK, tools=[SEARCH]))["tool_calls"][0]["id"]
            await settle()
            reward = {"reward": 1.0}
            assert (await post(at, "reward", reward))[0] == 404
            key = at.base.rpartition("/")[2]
            root = at.grader.rpartition("/")[0]
            assert (await post(at, "reward", reward, base=f"{root}/{key}"))[0] == 401
            assert (await post(at, "v1/chat/completions", {}, base=at.grader))[0] == 404
            assert at.session.calls[0].reward == 0
            assert (await post(at, "reward", reward, base=at.grader))[0] == 200
            body = {"reward": 0.5, "call_id": made, "info": {"reward_components": {"x": 0.5}}}
            assert (await post(at, "reward", body, base=at.grader))[0] == 200
            for wrong in ({"reward": float("nan")}, {"reward": 1, "info": ["x"]}):
                assert (await post(at, "reward", wrong, base=at.grader))[0] == 400
            body = {"reward": 1, "call_id": "call_nothing"}
            assert (await post(at, "reward", body, base=at.grader))[0] == 404
            turns = at.episode().turns
            assert [turn.reward for turn in turns] == [0.0, 1.5]
            assert turns[1].info == {"reward_components": {"x": 0.5}}

    asyncio.run(main())


def test_a_call_that_is_open_at_the_end_is_answered_and_adds_no_turn() -> None:
    async def main() -> None:
        async with stage(["first", "late"]) as at:
            await ask(at, TASK)
            at.policy.gate = asyncio.Event()
            late = asyncio.ensure_future(refusal(at, {"messages": [TASK]}))
            await asyncio.sleep(0.2)
            await at.gateway.end(at.session, "terminated")
            assert await late == (400, "episode_over")
            assert await refusal(at, {"messages": [TASK]}) == (400, "episode_over")
            await settle()
            assert len(at.episode().turns) == 1

    asyncio.run(main())


def test_streams_stay_alive_while_the_model_samples() -> None:
    async def main() -> None:
        limits = GatewayLimits(heartbeat=0.05)
        async with stage(["slow"] * 3, seconds=0.4, limits=limits) as at:
            texts = []
            for page, body in (
                ("chat/completions", {"messages": [TASK]}),
                ("messages", {"messages": [TASK], "max_tokens": 100}),
                ("responses", {"input": "hi"}),
            ):
                status, text = await text_of(at, f"v1/{page}", {**body, "stream": True})
                assert status == 200
                texts.append(text)
            signs = (": ping", "event: ping", "event: response.in_progress")
            assert [text.count(sign) >= 4 for text, sign in zip(texts, signs, strict=True)] == [True] * 3
            await settle()
            assert len(at.episode().turns) == 3

    asyncio.run(main())


def test_the_ids_of_a_stream_do_not_change_after_a_heartbeat() -> None:
    pytest.importorskip("openai", reason="needs the package openai")

    async def main() -> None:
        slow = stage(["slow"], seconds=0.3, limits=GatewayLimits(heartbeat=0.05))
        async with slow as at, at.openai().responses.stream(model="m", input="hi") as events:
            ids = {event.response.id async for event in events if hasattr(event, "response")}
        assert len(ids) == 1

    asyncio.run(main())


def test_an_engine_that_blocks_the_loop_of_the_trainer_does_not_block_the_gateway() -> None:
    class Blocking(Script):
        async def generate(self, *args: Any, **options: Any) -> Generation:
            time.sleep(1.0)
            return await super().generate(*args, **options)

    async def main() -> float:
        async with stage(policy=Blocking(["x"], tokenizer())) as at:

            def models() -> float:
                import urllib.request

                time.sleep(0.3)
                began = time.monotonic()
                with urllib.request.urlopen(f"{at.base}/v1/models", timeout=5) as answer:
                    assert answer.status == 200
                return time.monotonic() - began

            asking = asyncio.get_running_loop().run_in_executor(None, models)
            await ask(at, TASK)
            return await asking

    assert asyncio.run(main()) < 0.6


def test_a_prompt_that_is_too_long_is_refused_in_the_words_that_agents_know() -> None:
    async def main() -> None:
        async with stage(["a"], tokens=TokenLimits(50, 100)) as at:
            long = {"role": "user", "content": "x " * 200}
            assert await refusal(at, {"messages": [long]}) == (400, "context_length_exceeded")
            status, text = await refusal(at, {"messages": [long], "max_tokens": 9}, "v1/messages")
            assert (status, text[:19]) == (400, "prompt is too long:")
            assert at.session.full
            await ask(at, TASK)  # the agent goes on with a shorter one
            assert not at.session.full

    asyncio.run(main())


def test_the_episode_ends_after_the_last_call() -> None:
    async def main() -> None:
        async with stage(["a", "b", "c"], calls=2) as at:
            await ask(at, TASK)
            await ask(at, TASK)
            assert await refusal(at, {"messages": [TASK]}) == (400, "episode_over")

    asyncio.run(main())


def test_a_template_without_calls_is_refused_by_name() -> None:
    class Plain(type(tokenizer())):  # type: ignore[misc]
        chat_template = None

        def __init__(self) -> None:
            super().__init__("", ["<|im_end|>"])
            self.chat_template = None

    async def main() -> None:
        words = Plain()
        async with stage(policy=Script(["a"], words)) as at:
            at.session._conversations = AppendContext(words).conversations
            status, body = await post(at, "v1/chat/completions", {"messages": [TASK], "tools": [SEARCH]})
            assert status == 400
            assert "chat template" in body["error"]["message"]
            assert not at.policy.requests

    asyncio.run(main())


def test_stop_strings_end_a_response_with_the_token_that_completes_them() -> None:
    async def main() -> None:
        async with stage(["Thought: no\nObservation: made up", "x"]) as at:
            body = {"model": "m", "messages": [TASK], "stop": ["\nObservation:"]}
            _, answer = await post(at, "v1/chat/completions", body)
            choice = answer["choices"][0]
            assert (choice["finish_reason"], choice["message"]["content"]) == ("stop", "Thought: no")
            await settle()
            turns = at.session.delivered()
            assert tokenizer().decode(list(turns[0].generation.token_ids)) == "Thought: no\nObservation:"
            assert len(turns[0].generation.logprobs or []) == len(turns[0].generation.token_ids)
            more = {"role": "user", "content": "Observation: none"}
            await ask(at, TASK, said("Thought: no"), more)
            assert at.policy.sampled[1][0][: len(turns[0].tokens)] == turns[0].tokens

    asyncio.run(main())


def test_a_policy_that_can_stop_gets_the_stop_strings() -> None:
    class Stopping(Script):
        takes_stop = True
        asked: tuple[str, ...] = ()

        async def generate(self, *args: Any, stop: Any = (), **options: Any) -> Generation:
            self.asked = tuple(stop)
            return await super().generate(*args, **options)

    async def main() -> None:
        policy = Stopping(["a"], tokenizer())
        async with stage(policy=policy) as at:
            body = {"max_tokens": 9, "messages": [TASK], "stop_sequences": ["END"]}
            assert (await post(at, "v1/messages", body))[0] == 200
        assert policy.asked == ("END",)

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_of_the_engine_ends_the_episode(stream: bool) -> None:
    class Broken(Script):
        async def generate(self, *args: Any, **options: Any) -> Generation:
            await asyncio.sleep(0.2)
            raise RuntimeError("out of memory")

    async def main() -> None:
        policy = Broken(["a"], tokenizer())
        async with stage(policy=policy, limits=GatewayLimits(heartbeat=0.05)) as at:
            body = {"model": "m", "messages": [TASK], "stream": stream}
            status, text = await text_of(at, "v1/chat/completions", body)
            assert status == (200 if stream else 400)
            assert "the policy failed" in text
            assert str(at.session.failure) == "out of memory"
            assert await refusal(at, {"messages": [TASK]}) == (400, "episode_over")
            assert not at.session.calls

    asyncio.run(main())


def test_a_call_that_cannot_be_read_stays_text() -> None:
    async def main() -> None:
        bad = '<tool_call>\n{"name": "search", "arguments": {"query": \n</tool_call>'
        unknown = '<tool_call>\n{"name": "nothing", "arguments": {"query": "x"}}\n</tool_call>'
        async with stage([bad, unknown]) as at:
            answer = await ask(at, TASK, tools=[SEARCH])
            assert (answer["content"], "tool_calls" in answer) == (bad, False)
            answer = await ask(at, TASK, tools=[SEARCH])
            assert answer["tool_calls"][0]["function"]["name"] == "nothing"  # the agent says that it has none
            await settle()
            assert [turn.info for turn in at.episode().turns] == [{"malformed": True}, {}]

    asyncio.run(main())


def test_hidden_tools_are_not_called() -> None:
    async def main() -> None:
        async with stage([call("x")]) as at:
            answer = await ask(at, TASK, tools=[SEARCH], tool_choice="none")
            assert "tool_calls" not in answer
            assert "SCHEMAS" not in tokenizer().decode(at.policy.sampled[0][0])

    asyncio.run(main())


def test_several_answers_at_once_are_turns_with_one_prompt() -> None:
    async def main() -> None:
        async with stage(lambda number: f"answer {number}") as at:
            _, body = await post(at, "v1/chat/completions", {"messages": [TASK], "n": 3})
            assert len({choice["message"]["content"] for choice in body["choices"]}) == 3
            await settle()
            assert len(at.episode().turns) == 3

    asyncio.run(main())


def test_episodes_with_equal_texts_share_nothing() -> None:
    async def main() -> None:
        async with stage(["secret <think>", "a"]) as one, stage(["b"]) as two:
            first = await ask(one, TASK)
            await ask(two, TASK, first, {"role": "user", "content": "Go on."})
            assert two.session.counts.foreign == 1
            assert one.policy.sampled[0][1] != two.policy.sampled[0][1]
            key = one.base.rpartition("/")[2]
            assert (await post(two, "v1/chat/completions", {}, base=two.base[:-3] + "xyz"))[0] == 401
            assert (await post(two, "v1/chat/completions", {}, base=f"{two.base[: -len(key)]}{key}"))[
                0
            ] == 401
            with pytest.raises(aiohttp.ClientError):
                await post(two, "v1/models", {}, base="http://127.0.0.1:1/e/x")

    asyncio.run(main())


def test_whatever_a_body_holds_is_answered_with_what_is_wrong() -> None:
    bodies: list[Any] = [
        [], "x", None, {}, {"messages": "x"}, {"messages": [1]}, {"messages": [{"role": "pirate"}]},
        {"messages": [TASK], "tools": [{"type": "function"}]}, {"messages": [TASK], "n": -1},
        {"messages": [TASK], "stop": 3}, {"messages": [TASK], "stream_options": 7},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"id": 1}]}]}, {"input": 5}, {"input": [[]]},
        {"messages": [TASK], "max_tokens": 10**400}, {"input": "x", "text": 9},
        {"input": [{"role": "x"}]}, {"input": "x", "previous_response_id": "resp_of_another"},
    ]  # fmt: skip

    async def main() -> None:
        async with stage(limits=GatewayLimits(max_body=10_000)) as at:
            statuses = set()
            for page in ("chat/completions", "messages", "responses", "messages/count_tokens"):
                for body in bodies:
                    if page == "responses" and isinstance(body, dict) and body.get("input") in ("x",):
                        body = {**body, "tools": 1}
                    if page.startswith("messages") and isinstance(body, dict) and "messages" in body:
                        body = {**body, "tools": 1}
                    status, answer = await post(at, f"v1/{page}", body)
                    statuses.add(status)
                    assert "error" in answer
            assert statuses == {400}
            big = {"messages": [{"role": "user", "content": "x" * 20_000}]}
            assert (await post(at, "v1/chat/completions", big))[0] == 413
            assert (await post(at, "v1/embeddings", {}))[0] == 404
            assert not at.policy.requests

    asyncio.run(main())


def test_many_agents_wait_instead_of_being_refused() -> None:
    async def main() -> None:
        async with stage(
            lambda number: f"answer {number}", calls=300, seconds=0.01, limits=GatewayLimits(open_calls=5)
        ) as at:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

                async def one(number: int) -> int:
                    content = {"role": "user", "content": f"Task {number}"}
                    async with http.post(
                        f"{at.base}/v1/chat/completions", json={"messages": [content]}
                    ) as answer:
                        return answer.status

                assert set(await asyncio.gather(*map(one, range(200)))) == {200}
            await settle()
            assert len(at.episode().turns) == 200

    asyncio.run(main())


def test_thoughts_are_fields_and_not_text() -> None:
    async def main() -> None:
        async with stage([f"{THINKING}A stone."]) as at:
            answer = await ask(at, TASK)
            assert (answer["content"], answer["reasoning_content"]) == ("A stone.", "Which one?")

    asyncio.run(main())


def test_what_has_no_effect_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_pages, "_reported", set())
    for names in (("temperature", "top_p"), ("top_p",), ("seed", "temperature")):
        _pages._report(names)
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        "agents ask for temperature", "agents ask for seed",
    ]  # fmt: skip
    assert "top_p" in caplog.records[0].getMessage()
