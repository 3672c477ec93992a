"""The comparison finds every fault in OpenRLHF's adapter, on the shared step in this process.

`ScriptedWorker` replaces OpenRLHF's rollout worker behind its own interface.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from gem_openrlhf import _executor
from gem_openrlhf._executor import GemExecutor
from gem_openrlhf._labels import openrlhf_row, played_of
from vllm import SamplingParams
from vllm.logprobs import Logprob
from vllm.outputs import CompletionOutput, RequestOutput

from gem_core.trainers import _estimators as kit_estimators
from gem_lab.consistency import Played
from tests.consistency import faults, scenario
from tests.consistency.scenario import Scenario
from tests.trainers.openrlhf import args
from tests.trainers.spies.gem_script import Script


class ScriptedWorker:
    """Answers from the script."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def generate(self, prompt_ids: list[int], params: SamplingParams) -> RequestOutput:
        answer = self._script.answer(prompt_ids, params.max_tokens)
        pairs = zip(answer.token_ids, answer.logprobs, strict=True)
        sample = CompletionOutput(
            index=0,
            text="",
            token_ids=answer.token_ids,
            cumulative_logprob=None,
            logprobs=[{token: Logprob(logprob)} for token, logprob in pairs],
            finish_reason=answer.finish_reason,
        )
        return RequestOutput("", None, prompt_ids, None, [sample], finished=True)


def step(made: Scenario, tokenizer: Any) -> list[Played]:
    """Run the agent, make OpenRLHF's experiences of its results in micro-batches, and compute advantages."""
    worker = ScriptedWorker(Script(made.script))
    agent = GemExecutor({"max_turns": scenario.MAX_TURNS, "wrappers": "named"})

    async def play() -> list[dict[str, Any]]:
        return [
            await agent.execute(
                prompt=row["input"],
                label=row["label"],
                sampling_params=SamplingParams(max_tokens=scenario.TOKENS_PER_TURN, min_tokens=1, logprobs=1),
                max_length=scenario.TOKENS,
                hf_tokenizer=tokenizer,
                llm_engine=worker,
            )
            for row in map(openrlhf_row, scenario.tasks())
            for _ in range(scenario.SAMPLES)
        ]

    responses = asyncio.run(play())
    batches = [args.experiences(responses[n : n + 3], first=n) for n in range(0, len(responses), 3)]
    maker = args.experience_maker("--algo.advantage.gamma", str(scenario.GAMMA))
    maker.compute_advantages_and_returns(batches)
    masks = [row for batch in batches for row in batch.action_mask.tolist()]
    advantages = [row for batch in batches for row in batch.advantages.tolist()]
    labels = [label for batch in batches for label in batch.labels]
    result = []
    for response, mask, row, label in zip(responses, masks, advantages, labels, strict=True):
        tokens, played = response["observation_tokens"], played_of(label)
        assert played is not None
        rewards = [0.0] * len(tokens)
        for (_, end), reward in zip(played.spans, played.episode.rewards, strict=False):
            rewards[end - 1] = reward
        last = len(tokens) - 1  # column j of OpenRLHF is for token j + 1
        result.append(faults.read_row(played.episode, tokens, [0, *mask[:last]], rewards, [0.0, *row[:last]]))
    return result


def test_the_step_matches_gem_core(shared_step: Scenario, shared_tokenizer: Any) -> None:
    assert faults.findings(shared_step, lambda: step(shared_step, shared_tokenizer)) == set()


@pytest.mark.parametrize("fault", faults.SEEN)
def test_a_fault_is_found(
    fault: str, shared_step: Scenario, shared_tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    patches = {
        **faults.estimator_patches(kit_estimators),
        "mask shifted by one": faults.argument_patch(_executor, "lay_out", faults.shifted),
        "last reward dropped": faults.argument_patch(_executor, "lay_out", faults.unpaid),
        "response re-tokenized": faults.retokenized(_executor.EnginePolicy, shared_tokenizer),
        "group with different seeds": faults.own_seeds(_executor),
    }
    patches[fault](monkeypatch)
    assert faults.findings(shared_step, lambda: step(shared_step, shared_tokenizer)) >= faults.SEEN[fault]
