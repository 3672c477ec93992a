"""The comparison finds faults in the adapter of rl-square 0.0.2, on the shared step in this process.

RL2's own loop plays the episodes; the script only answers its requests to SGLang. Packages that RL2 imports
for a GPU are replaced by stubs.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gem_rl2 import _estimators as hook
from gem_rl2 import _session
from gem_rl2._estimators import AdvantageHook
from gem_rl2._rows import rl2_row
from gem_rl2._session import Session
from omegaconf import OmegaConf
from RL2.datasets import pack_tensor_dicts

from gem_core.trainers import _estimators
from gem_lab.consistency import Played
from tests.consistency.faults import SEEN, Patch, estimator_patches, findings, own_seeds
from tests.consistency.scenario import GAMMA, MAX_TURNS, SAMPLES, TOKENS_PER_TURN, Scenario, tasks
from tests.trainers.rl2 import harness
from tests.trainers.rl2.configs import gem_config
from tests.trainers.rl2.test_consistency import NOT_CARRIED, WITHOUT_BUDGET, played_of
from tests.trainers.rl2.test_estimators import one_process as one_process
from tests.trainers.spies.gem_script import Answer, Script

pytestmark = pytest.mark.imports("index")  # the newer tree samples through gem_core's own runner
COLUMNS = ("states", "actions", "action_mask", "rewards", "advantages", "llm_logps")


class Engine:
    """Replaces RL2's request to SGLang."""

    def __init__(self, script: Script, tokenizer: Any) -> None:
        self._script, self._tokenizer = script, tokenizer

    def answer(self, states: list[int], limit: int) -> Answer:
        return self._script.answer(states, limit)

    async def __call__(self, url: str, states: list[int], params: dict[str, Any]) -> dict[str, Any]:
        answer = self.answer(states, params["max_new_tokens"])
        pairs = zip(answer.logprobs, answer.token_ids, strict=True)
        return {
            "text": self._tokenizer.decode(answer.token_ids),
            "meta_info": {
                "output_token_logprobs": [(logprob, token, None) for logprob, token in pairs],
                "completion_tokens": len(answer.token_ids),
                "finish_reason": {"type": answer.finish_reason},
            },
        }


@pytest.fixture(scope="module")
def rollout() -> Iterator[Any]:
    """Return the module of RL2's loop."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(harness.CPU))
        import rl2_attention
        import rl2_cpu
        import rl2_sglang

        for name, attributes in (rl2_sglang.MODULES | rl2_attention.MODULES).items():
            rl2_cpu.add_module(name, attributes)
        import RL2.workers.rollout

        yield RL2.workers.rollout


def step(made: Scenario, tokenizer: Any, rollout: Any) -> list[Played]:
    """Run RL2's loop with our environment and RL2's packing, up to the advantages of the loss."""
    config, upstream = gem_config(
        f"adv.gamma={GAMMA}",
        f"actor.model_name={made.model}",
        f"rollout.max_turns={MAX_TURNS}",
        f"rollout.train_sampling_params.max_new_tokens={TOKENS_PER_TURN}",
        "+gem.wrappers=named",
    )
    worker = SimpleNamespace(
        config=config.rollout,
        env=Session(config, upstream),
        tokenizer=tokenizer,
        router_url="",
        train_sampling_params=OmegaConf.to_container(config.rollout.train_sampling_params),
    )

    async def play() -> list[Any]:
        return [
            (await rollout.Rollout.rollout(worker, {"extra_info": rl2_row(task)["extra_info"]}, True))[0]
            for task in tasks()
            for _ in range(SAMPLES)
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollout, "async_generate", Engine(Script(made.script), tokenizer))
        parts = asyncio.run(play())
    packed = pack_tensor_dicts([row for episode_rows in parts for row in episode_rows])
    bounds = torch.tensor([0, *(len(episode_rows) for episode_rows in parts)]).cumsum(0)
    AdvantageHook(upstream, failures_are_nan=True)(config.adv, packed, bounds, 1)
    lengths = (packed["position_ids"].argmax(1) + 1).tolist()
    saved = {
        name: [row[:length].tolist() for row, length in zip(packed[name], lengths, strict=True)]
        for name in COLUMNS
    }
    return played_of({**saved, "logps": saved["llm_logps"]}, tokenizer)


def shifted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inject the fault where the adapter changes RL2's mask, to leave out failed episodes."""
    original = hook.leave_out_failed

    def changed(tensors: dict[str, torch.Tensor], bounds: Any) -> None:
        original(tensors, bounds)
        mask, last = tensors["action_mask"], tensors["states"].shape[1] - 1
        for row in range(len(mask)):
            on = mask[row].nonzero()[:, 0].tolist()
            gaps = [b for a, b in itertools.pairwise(on) if b > a + 1]
            if gaps:
                end = on[on.index(gaps[0]) - 1] + 1  # the first position after the first turn
                assert end < last
                mask[row, on[0]], mask[row, end] = 0, 1
                tensors["actions"][row, end] = tensors["states"][row, end + 1]
                tensors["actions"][row, on[0]] = 0

    monkeypatch.setattr(hook, "leave_out_failed", changed)


def unpaid(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Session.step

    async def changed(self: Session, *args: Any) -> dict[str, Any]:
        answer = await original(self, *args)
        failed = answer["reward"] != answer["reward"]
        return answer | ({"reward": 0.0} if answer["done"] and not failed else {})

    monkeypatch.setattr(Session, "step", changed)


def retokenized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inject the fault into SGLang's answer, because the adapter for this version never holds tokens."""
    original = Engine.answer

    def changed(self: Engine, states: list[int], limit: int) -> Answer:
        answer = original(self, states, limit)
        text = self._tokenizer.decode(answer.token_ids)
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        return Answer(ids, [0.0] * len(ids), answer.finish_reason)

    monkeypatch.setattr(Engine, "answer", changed)


def seen(made: Scenario, words: Any, rollout: Any) -> set[str]:
    options = {"reference": WITHOUT_BUDGET, "not_carried": NOT_CARRIED}
    return findings(made, lambda: step(made, words, rollout), **options)


def test_the_step_matches_gem_core(
    shared_step: Scenario, shared_tokenizer: Any, rollout: Any, one_process: None
) -> None:
    assert seen(shared_step, shared_tokenizer, rollout) == set()


@pytest.mark.parametrize("fault", SEEN)
def test_a_fault_is_found(
    fault: str,
    shared_step: Scenario,
    shared_tokenizer: Any,
    rollout: Any,
    one_process: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patches: dict[str, Patch] = {
        **estimator_patches(_estimators),
        "mask shifted by one": shifted,
        "last reward dropped": unpaid,
        "response re-tokenized": retokenized,
        "group with different seeds": own_seeds(_session),
    }
    patches[fault](monkeypatch)
    assert seen(shared_step, shared_tokenizer, rollout) >= SEEN[fault]
