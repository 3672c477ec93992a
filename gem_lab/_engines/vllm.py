"""vLLM's engines as token policies."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from gem_core._util.seeds import derive_int
from gem_core.errors import ModelError
from gem_core.rollout import Generation
from gem_lab._engines.draws import Draws


def vllm_generation(output: Any, stop_ids: Collection[int] | None = None) -> Generation:
    """Convert a vLLM `RequestOutput`, which must hold one sample, to a generation.

    An aborted response counts as cut.

    Args:
        output: The output.
        stop_ids: Tokens that end a response. Some versions of vLLM report "length" for a response that ends
            with one of them and has just as many tokens as the limit allows; it is complete.
    """
    (sample,) = output.outputs
    ids = list(sample.token_ids)
    logprobs = None
    if sample.logprobs is not None:
        logprobs = [float(step[token].logprob) for token, step in zip(ids, sample.logprobs, strict=True)]
    ended = sample.finish_reason == "length" and bool(ids) and ids[-1] in (stop_ids or ())
    return Generation(ids, logprobs, "stop" if ended or sample.finish_reason == "stop" else "length")


class VllmPolicy:
    """vLLM's asynchronous engine as a `gem_core.rollout.Policy`.

    Args:
        engine: A ``vllm.v1.engine.async_llm.AsyncLLM``.
        stop_ids: Tokens at which to stop, in addition to those of the engine.
        temperature: Sampling temperature.
        top_p: Nucleus sampling: sample from the smallest set of tokens with this probability; 1 keeps all.
        seed: Random seed; with the name of the request (`Draws`) it determines a response.
    """

    takes_stop = True

    def __init__(
        self,
        engine: Any,
        *,
        stop_ids: Iterable[int] = (),
        temperature: float = 1.0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> None:
        self._engine = engine
        self._stop_ids = sorted(stop_ids)
        self._temperature = temperature
        self._top_p = top_p
        self._seed = seed
        self._draws = Draws()
        self._numbers = itertools.count()

    async def generate(
        self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str, stop: Sequence[str] = ()
    ) -> Generation:
        """Sample one response."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=self._temperature,
            top_p=self._top_p,
            max_tokens=max_tokens,
            seed=derive_int(self._seed, self._draws.name(request_id, len(prompt_ids)), sep="/"),
            stop=list(stop),
            stop_token_ids=self._stop_ids,
            logprobs=1,
            detokenize=bool(stop),  # vLLM needs the text to find stop strings
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        last = None
        prompt = {"prompt_token_ids": list(prompt_ids)}
        async for output in self._engine.generate(prompt, params, f"{request_id}/{next(self._numbers)}"):
            last = output
        if last is None:
            raise ModelError("the vLLM engine stopped without a response")
        return vllm_generation(last, self._stop_ids)

    def forget_request(self, request_id: str) -> None:
        """Forget the requests of an episode that has ended."""
        self._draws.forget(request_id)

    async def close(self) -> None:
        """Stop the engine's processes."""
        engine, self._engine = self._engine, None  # leave no reference at interpreter exit
        engine.shutdown()


class SteppedVllmPolicy:
    """vLLM's synchronous engine as a policy: each turn is a request, and the engine steps while any is
    pending.

    Args:
        engine: A ``vllm.LLMEngine``, such as the engine of a ``vllm.LLM``; nothing else may use it meanwhile.
        sampling: Arguments of ``vllm.SamplingParams``.
        seed: Random seed; with the name of the request (`Draws`) it determines a response.
    """

    takes_stop = True

    def __init__(self, engine: Any, sampling: Mapping[str, Any], *, seed: int = 0) -> None:
        self._engine = engine
        self._sampling = {"logprobs": 0, **sampling}
        self._seed = seed
        self._draws = Draws()
        self._open: dict[str, asyncio.Future[Generation]] = {}
        self._stepping: asyncio.Task[None] | None = None

    async def generate(
        self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str, stop: Sequence[str] = ()
    ) -> Generation:
        """Sample one response; an error of the engine is raised in every pending request."""
        from vllm import SamplingParams

        name = self._draws.name(request_id, len(prompt_ids))
        seed = derive_int(self._seed, name, sep="/")
        stops = _several(self._sampling.get("stop")) + list(stop)
        # vLLM needs the text to find stop strings.
        given = {**self._sampling, "max_tokens": max_tokens, "seed": seed}
        given |= {"stop": stops, "detokenize": True} if stops else {"detokenize": False}
        if "min_tokens" in given:  # vLLM rejects more than the room that is left
            given["min_tokens"] = min(given["min_tokens"], max_tokens)
        params = SamplingParams(**given)
        self._engine.add_request(name, {"prompt_token_ids": list(prompt_ids)}, params)
        answer: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        self._open[name] = answer
        if self._stepping is None or self._stepping.done():
            self._stepping = asyncio.ensure_future(self._step())
        try:
            return await answer
        finally:
            if self._open.pop(name, None) is not None:  # the caller was canceled
                self._engine.abort_request([name])

    def forget_request(self, request_id: str) -> None:
        """Forget the requests of an episode that has ended."""
        self._draws.forget(request_id)

    async def _step(self) -> None:
        await asyncio.sleep(0)  # until the other episodes have added their requests
        try:
            while self._open:
                for output in self._engine.step():
                    if output.finished and output.request_id in self._open:
                        answer = self._open.pop(output.request_id)
                        if not answer.done():  # canceled, and not told so yet
                            stops = self._sampling.get("stop_token_ids")
                            answer.set_result(vllm_generation(output, stops))
                await asyncio.sleep(0)  # the episodes continue and may add requests
        except BaseException as error:
            failure = error
            if not isinstance(error, Exception):  # a cancel or an interrupt: the engine still works
                failure = ModelError(f"sampling was stopped: {error!r}")
                self._engine.abort_request(list(self._open))
            for answer in self._open.values():
                if not answer.done():
                    answer.set_exception(failure)
            self._open.clear()
            if failure is not error:
                raise


def _several(stop: str | Sequence[str] | None) -> list[str]:
    return [stop] if isinstance(stop, str) else list(stop or ())
