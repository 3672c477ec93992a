"""vLLM's synchronous engine as a policy, with a stub of the engine."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gem_core._util.waiting import within
from gem_lab._engines.vllm import SteppedVllmPolicy, vllm_generation


class StubEngine:
    """Stub of ``vllm.LLMEngine``: answers each request with its prompt, one token per step."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at = fails_at
        self.steps = self.most = 0
        self.params: list[Any] = []
        self.open: dict[str, tuple[list[int], Any, int]] = {}

    def add_request(self, request_id: str, prompt: dict[str, list[int]], params: Any) -> None:
        assert request_id not in self.open
        self.open[request_id] = (prompt["prompt_token_ids"], params, 0)
        self.params.append(params)
        self.most = max(self.most, len(self.open))

    def abort_request(self, request_ids: list[str]) -> None:
        for name in request_ids:
            del self.open[name]

    def step(self) -> list[Any]:
        self.steps += 1
        if self.steps == self.fails_at:
            raise RuntimeError("the engine broke")
        outputs = []
        for name, (prompt, params, made) in list(self.open.items()):
            ids = prompt[: made + 1]
            done = len(ids) == min(len(prompt), params.max_tokens)
            self.open[name] = (prompt, params, made + 1)
            reason = ("stop" if len(ids) == len(prompt) else "length") if done else None
            logprobs = [{token: SimpleNamespace(logprob=-0.5)} for token in ids]
            sample = SimpleNamespace(token_ids=ids, logprobs=logprobs, finish_reason=reason)
            outputs.append(SimpleNamespace(request_id=name, finished=done, outputs=[sample]))
            if done:
                del self.open[name]
        return outputs


@pytest.fixture(autouse=True)
def stub_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stub of the package, with the class of the sampling parameters."""
    module = ModuleType("vllm")
    module.SamplingParams = SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", module)


def play(engine: StubEngine, seed: int = 0, **sampling: Any) -> list[Any]:
    policy = SteppedVllmPolicy(engine, {"temperature": 0.5, "min_p": 0.1, **sampling}, seed=seed)

    async def episode(number: int) -> Any:
        prompt = [number, 2, 3][: number + 1]
        first = await policy.generate(prompt, max_tokens=2, request_id=str(number))
        prompt += [*first.token_ids, 9]
        return first, await policy.generate(prompt, max_tokens=5, request_id=str(number))

    async def everything() -> list[Any]:
        return await asyncio.gather(*map(episode, range(3)), return_exceptions=True)

    return asyncio.run(everything())


def test_the_turns_of_all_episodes_share_the_engine() -> None:
    engine = StubEngine()
    answers = play(engine, stop_token_ids=[7], seed=3)
    assert [first.token_ids for first, _ in answers] == [[0], [1, 2], [2, 2]]
    assert [first.finish_reason for first, _ in answers] == ["stop", "stop", "length"]
    assert [second.token_ids for _, second in answers] == [[0, 0, 9], [1, 2, 1, 2, 9], [2, 2, 3, 2, 2]]
    assert answers[0][0].logprobs == [-0.5]
    assert engine.most == 3
    assert engine.steps == 7  # an episode continues while others still wait for their first turn
    first = engine.params[0]
    assert (first.temperature, first.min_p, first.stop_token_ids, first.max_tokens) == (0.5, 0.1, [7], 2)
    assert len({params.seed for params in engine.params}) == 6


def test_the_same_seed_gives_the_same_requests() -> None:
    engines = [StubEngine(), StubEngine(), StubEngine()]
    for engine, seed in zip(engines, (3, 3, 4), strict=True):
        play(engine, seed=seed)
    seeds = [sorted(params.seed for params in engine.params) for engine in engines]
    assert seeds[0] == seeds[1] != seeds[2]


def test_stop_strings_need_the_text_of_a_response() -> None:
    engines = [StubEngine(), StubEngine()]
    for engine, sampling in zip(engines, ({}, {"stop": ["\n"]}), strict=True):
        play(engine, **sampling)
    assert [engine.params[0].detokenize for engine in engines] == [False, True]
    assert engines[1].params[0].stop == ["\n"]


def test_a_request_can_name_further_stop_strings() -> None:
    engine = StubEngine()
    policy = SteppedVllmPolicy(engine, {"stop": "\n"})

    async def main() -> None:
        await policy.generate([1, 2], max_tokens=2, request_id="a", stop=["Observation:"])
        await policy.generate([1, 2], max_tokens=2, request_id="b")

    asyncio.run(main())
    assert [params.stop for params in engine.params] == [["\n", "Observation:"], ["\n"]]
    assert all(params.detokenize for params in engine.params)


def test_several_requests_of_an_episode_may_be_open_at_once() -> None:
    engine = StubEngine()
    policy = SteppedVllmPolicy(engine, {})

    async def main() -> list[Any]:
        asked = [policy.generate([n, 2, 3], max_tokens=3, request_id="episode") for n in range(4)]
        return await within(5, asyncio.gather(*asked))

    assert [answer.token_ids[0] for answer in asyncio.run(main())] == [0, 1, 2, 3]
    assert engine.most == 4
    assert len({params.seed for params in engine.params}) == 4

    def seeds() -> list[int]:
        return [params.seed for params in engine.params[-4:]]

    once = seeds()
    policy.forget_request("episode")
    asyncio.run(main())
    assert seeds() == once  # an episode that is played again draws the same numbers


def test_an_error_of_the_engine_reaches_every_episode() -> None:
    assert [str(answer) for answer in play(StubEngine(fails_at=1))] == ["the engine broke"] * 3


@pytest.mark.parametrize("turns", range(1, 8))
def test_a_canceled_episode_leaves_the_engine_and_the_others_alone(turns: int) -> None:
    engine = StubEngine()
    policy = SteppedVllmPolicy(engine, {})

    async def main() -> list[Any]:
        asked = [
            asyncio.ensure_future(policy.generate([number, 2, 3, 4], max_tokens=4, request_id=str(number)))
            for number in range(3)
        ]
        for _ in range(turns):
            await asyncio.sleep(0)
        asked[1].cancel()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for _ in range(2):
            await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1
        return answers

    first, second, third = asyncio.run(main())
    assert (first.token_ids, third.token_ids) == ([0, 2, 3, 4], [2, 2, 3, 4])
    assert isinstance(second, asyncio.CancelledError) or second.token_ids == [1, 2, 3, 4]
    assert not engine.open


def test_all_episodes_that_are_canceled_leave_an_empty_engine() -> None:
    engine = StubEngine()
    policy = SteppedVllmPolicy(engine, {})

    async def main() -> None:
        asked = [
            asyncio.ensure_future(policy.generate([number, 2, 3, 4], max_tokens=4, request_id=str(number)))
            for number in range(3)
        ]
        for _ in range(3):
            await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:  # also the one that steps the engine
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    asyncio.run(main())
    assert engine.steps >= 1
    assert not engine.open


@pytest.mark.parametrize(("reason", "finish"), [("stop", "stop"), ("length", "length"), ("abort", "length")])
def test_only_stop_is_a_response_that_ended(reason: str, finish: str) -> None:
    sample = SimpleNamespace(token_ids=[1], logprobs=None, finish_reason=reason)
    assert vllm_generation(SimpleNamespace(outputs=[sample])).finish_reason == finish


@pytest.mark.parametrize(
    ("token", "reason", "finish"),
    [(7, "length", "stop"), (8, "length", "length"), (7, "abort", "length"), (7, "stop", "stop")],
)
def test_a_response_that_ends_at_the_limit_is_complete(token: int, reason: str, finish: str) -> None:
    """vLLM 0.8 looks at the limit first."""
    output = SimpleNamespace(
        outputs=[SimpleNamespace(token_ids=[1, token], logprobs=None, finish_reason=reason)]
    )
    assert vllm_generation(output, [7]).finish_reason == finish
    output.outputs[0].token_ids = []
    assert vllm_generation(output, [7]).finish_reason == ("stop" if reason == "stop" else "length")


def test_a_minimum_length_is_at_most_the_room_that_is_left() -> None:
    """vLLM rejects a larger one, and the run would end."""
    engine = StubEngine()
    play(engine, min_tokens=4)
    assert {(params.max_tokens, params.min_tokens) for params in engine.params} == {(2, 2), (5, 4)}
