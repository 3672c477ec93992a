"""The comparison finds faults in ROLL's adapter, on the shared step in this process.

`ScriptedProxy` replaces ROLL's engine behind the interface of its LLM proxies.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gem_roll import _managers
from gem_roll._failures import FAILED, played_only
from gem_roll._managers import GemTrajEnvManager
from gem_roll._options import GemOptions
from gem_roll._pipeline import ReBNAgenticPipeline, use_advantages
from gem_roll._rows import EPISODE_JSON
from roll.distributed.scheduler.protocol import DataProto
from roll.pipeline.agentic.llm_proxy import BaseLLMProxy, register_llm_proxy
from tensordict import TensorDict

from gem_core.rollout import Episode
from gem_core.rollout._sources import SourceLedger
from gem_core.trainers import _estimators
from gem_lab.consistency import Played
from tests.consistency.faults import (
    SEEN,
    Patch,
    argument_patch,
    estimator_patches,
    findings,
    read_row,
    retokenized,
    shifted,
    unpaid,
)
from tests.consistency.scenario import Scenario
from tests.trainers.roll.configs import small_config
from tests.trainers.roll.test_consistency import shared_config
from tests.trainers.roll.test_rows import Queue, make_manager
from tests.trainers.spies.gem_script import Script


@register_llm_proxy("scripted")
class ScriptedProxy(BaseLLMProxy):  # type: ignore[misc]
    """Answers from the script."""

    script: Script

    def generate(self, messages: Any, lm_input: Any, generation_config: dict[str, Any]) -> Any:
        prompt = lm_input.batch["input_ids"][0].tolist()
        answer = self.script.answer(prompt, generation_config["max_new_tokens"])
        tensors = {
            "responses": torch.tensor([answer.token_ids]),
            "infer_logprobs": torch.tensor([answer.logprobs]),
        }
        return DataProto(batch=TensorDict(tensors, batch_size=1))


def step(made: Scenario, tokenizer: Any, folder: Path) -> list[Played]:
    """Run the env managers and the pipeline around ROLL's own batch filling, up to the inputs of the loss."""
    ScriptedProxy.script = Script(made.script)
    changed = shared_config(folder)
    changed["train_env_manager"]["llm_proxy"] = {"proxy_type": "scripted"}
    config = small_config(folder, changed)
    rollouts = []
    environments = [
        env for worker_envs in config.train_env_manager.env_configs.values() for env in worker_envs.values()
    ]
    for environment in sorted(environments, key=lambda env: (env["group_id"], env["env_id"])):
        queue = Queue(1)
        manager = make_manager(GemTrajEnvManager, config, environment, tokenizer, queue)
        manager.current_step = 0
        manager.run_rollout_loop(DataProto(meta_info={"seed": 1}))
        rollouts += queue.rollouts[:-1]
    data = DataProto.concat(played_only(rollouts, True, "step 0"))
    failed = [Episode.from_dict(json.loads(text)) for text in data.meta_info[FAILED]]
    outlines = [Episode.from_dict(json.loads(text)) for text in data.non_tensor_batch[EPISODE_JSON]]
    rewards = data.batch["scores"].tolist()
    made_pipeline: Any = ReBNAgenticPipeline.__new__(ReBNAgenticPipeline)
    made_pipeline._ledger = SourceLedger()
    made_pipeline.gem_options, made_pipeline.pipeline_config = GemOptions.from_config(config), config
    made_pipeline.actor_train = SimpleNamespace(dp_size=1)
    data = made_pipeline.adjust_batch(data)
    use_advantages(data, None)
    found = [read_row(outline, [], [], [], []) for outline in failed]
    for index, outline in enumerate(outlines):
        size = int(data.batch["attention_mask"][index].sum())
        tokens = data.batch["input_ids"][index, :size].tolist()
        mask = data.batch["response_mask"][index, :size].tolist()
        advantages = [0.0, *data.batch["advantages"][index, : size - 1].tolist()]
        found.append(read_row(outline, tokens, mask, rewards[index][:size], advantages))
    return found


def own_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each environment of a group play its own seed."""
    original, seen = _managers.table_of, set()

    def table_of(*arguments: Any) -> Any:
        table = original(*arguments)

        def task(group_id: int, episode_id: int) -> Any:
            chosen = table(group_id, episode_id)
            chosen = {**chosen, "seed": chosen["seed"] + 1_000 * (group_id in seen)}
            seen.add(group_id)
            return chosen

        return task

    monkeypatch.setattr(_managers, "table_of", table_of)


@pytest.fixture(autouse=True)
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_managers, "ray", SimpleNamespace(get=lambda value: value))


def test_the_step_matches_gem_core(shared_step: Scenario, shared_tokenizer: Any, tmp_path: Path) -> None:
    assert findings(shared_step, lambda: step(shared_step, shared_tokenizer, tmp_path)) == set()


@pytest.mark.parametrize("fault", SEEN)
def test_a_fault_is_found(
    fault: str, shared_step: Scenario, shared_tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patches: dict[str, Patch] = {
        **estimator_patches(_estimators),
        "mask shifted by one": argument_patch(_managers, "pack_episode", shifted),
        "last reward dropped": argument_patch(_managers, "pack_episode", unpaid),
        "response re-tokenized": retokenized(_managers.GemTrajEnvManager, shared_tokenizer),
        "group with different seeds": own_seeds,
    }
    patches[fault](monkeypatch)
    assert findings(shared_step, lambda: step(shared_step, shared_tokenizer, tmp_path)) >= SEEN[fault]
