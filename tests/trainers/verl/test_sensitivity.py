"""The comparison finds every fault in verl's adapter, on the shared step in this process.

`ScriptedServer` replaces verl's inference servers behind their own interface.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch
from gem_verl import estimators, failures, loop
from gem_verl.loop import GemAgentLoop
from gem_verl.rows import verl_row
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

from gem_core.consistency import Played
from gem_core.rollout import Episode, without_tokens
from gem_core.trainers import estimators as kit_estimators
from gem_core.trainers.facts import unpack_facts
from gem_core.trainers.imports import replaced
from tests.consistency.faults import (
    SEEN,
    argument_patch,
    estimator_patches,
    findings,
    own_seeds,
    read_row,
    retokenized,
    shifted,
    unpaid,
)
from tests.consistency.scenario import (
    GAMMA,
    MAX_TURNS,
    SAMPLES,
    TOKENS,
    TOKENS_PER_TURN,
    Scenario,
    tasks,
)
from tests.trainers.spies.gem_script import Script
from tests.trainers.verl.configs import verl_config

WORDS = (
    "algorithm.adv_estimator=rebn",
    f"algorithm.gamma={GAMMA}",
    f"data.max_response_length={TOKENS}",
    "actor_rollout_ref.rollout.name=vllm",  # verl requires a name; a scripted server replaces the engine
    f"actor_rollout_ref.rollout.max_model_len={TOKENS}",
    f"+gem.max_turns={MAX_TURNS}",
    f"+gem.max_tokens_per_turn={TOKENS_PER_TURN}",
    "+gem.wrappers=named",
)


class ScriptedServer:
    """Answers from the script."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: Any) -> TokenOutput:
        answer = self._script.answer(prompt_ids, sampling_params["max_tokens"])
        return TokenOutput(
            token_ids=answer.token_ids, log_probs=answer.logprobs, stop_reason="completed", extra_fields={}
        )


class Noted(failures.Group):
    """Records failed episodes in this process."""

    def __init__(self) -> None:
        super().__init__(samples=SAMPLES, position_limit=10_000)
        self.episodes: list[Episode] = []

    async def leave_out(self, episode: Episode, key: str) -> None:
        self.episodes.append(without_tokens(episode))


def step(made: Scenario, tokenizer: Any) -> list[Played]:
    """Run the agent loop, store its rows as verl does, and call verl's dispatch of estimators."""
    config, script = verl_config(*WORDS), Script(made.script)
    wrapped = DictConfigWrap(config), ScriptedServer(script), tokenizer, None, RLHFDataset
    keys, rows, noted = [], [], Noted()

    async def play() -> None:
        failures.group.set(noted)
        for task in tasks():
            for sample in range(SAMPLES):
                fields = verl_row(task, "train")
                fields["raw_prompt"] = fields.pop("prompt")
                agent_loop = GemAgentLoop(*wrapped, DictConfigWrap(config.data))
                sampling = {"temperature": 1.0, "logprobs": True}
                uid = str(task["seed"])
                more = {"uid": uid, "session_id": sample, "global_steps": 1}
                made_of_it = await agent_loop.run(sampling, **more, **fields)
                rows.extend(made_of_it)
                keys.extend([f"{uid}_{sample}_0"] * len(made_of_it))

    asyncio.run(play())
    width = max(len(row.response_ids) for row in rows)

    def padded(values: Any) -> torch.Tensor:
        parts = [torch.as_tensor(value, dtype=torch.float32) for value in values]
        return torch.stack([torch.nn.functional.pad(part, (0, width - len(part))) for part in parts])

    stored = [row.as_dict() for row in rows]
    mask = padded(fields["response_mask"] for fields in stored)
    data = DataProto.from_dict(
        tensors={
            "token_level_rewards": padded(fields["rm_scores"] for fields in stored),
            "response_mask": mask,
        },
        non_tensors={"uid": np.array([key.split("_")[0] for key in keys], dtype=object)},
    )
    packed = [row.extra_fields["gem"] for row in rows]
    facts = unpack_facts(packed, keys, [0] * len(keys), lambda: mask)
    with replaced(estimators, "batch_facts", facts):
        data = compute_advantage(data, adv_estimator="rebn", gamma=GAMMA, config=config.algorithm)
    result = [read_row(failed, [], [], [], []) for failed in noted.episodes]
    for number, row in enumerate(rows):
        before, size = [0.0] * len(row.prompt_ids), len(row.response_ids)
        columns = (
            [*before, *data.batch[name][number, :size].tolist()]
            for name in ("response_mask", "token_level_rewards", "advantages")
        )
        outline = Episode.from_dict(row.extra_fields["gem"]["episode"])
        result.append(read_row(outline, row.prompt_ids + row.response_ids, *columns))
    return result


def test_the_step_matches_gem_core(shared_step: Scenario, shared_tokenizer: Any) -> None:
    assert findings(shared_step, lambda: step(shared_step, shared_tokenizer)) == set()


@pytest.mark.parametrize("fault", SEEN)
def test_a_fault_is_found(
    fault: str, shared_step: Scenario, shared_tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    patches = {
        **estimator_patches(kit_estimators),
        "mask shifted by one": argument_patch(loop, "lay_out", shifted),
        "last reward dropped": argument_patch(loop, "lay_out", unpaid),
        "response re-tokenized": retokenized(loop.ServerPolicy, shared_tokenizer),
        "group with different seeds": own_seeds(loop),
    }
    patches[fault](monkeypatch)
    assert findings(shared_step, lambda: step(shared_step, shared_tokenizer)) >= SEEN[fault]
