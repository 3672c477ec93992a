"""ROLL takes the shared step of all trainers with the tokens, advantages, and gradient of gem_core."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from gem_roll._advantages import compute_advantages
from gem_roll._pipeline import ADVANTAGES, RETURNS, use_advantages
from gem_roll._rows import object_array, pack_episode
from roll.distributed.scheduler.protocol import DataProto
from roll.pipeline.agentic.utils import agentic_compute_advantage, compute_response_level_rewards
from roll.utils.functionals import compute_token_reward
from roll.utils.kl_controller import get_kl_controller

from gem_core.tasks import EnvChoice
from gem_core.trainers import read_estimator
from gem_lab.consistency import Played
from gem_lab.consistency._compare import ADVANTAGE_TOLERANCE
from tests.consistency import assemble
from tests.consistency.cases import CASES, REBN, Case, judge_cases, judge_stock
from tests.consistency.scenario import (
    GAMMA,
    MAX_TURNS,
    SAMPLES,
    SEED,
    TASKS,
    TOKENS,
    TOKENS_PER_TURN,
    scenario,
    tasks,
)
from tests.trainers.roll import harness, spied
from tests.trainers.roll.configs import small_config


def shared_config(folder: Path) -> dict[str, Any]:
    """Return a config with a tag per environment; each has as many groups as tasks."""
    table = folder / "tasks.jsonl"
    table.write_text("".join(json.dumps(task) + "\n" for task in tasks()))
    envs = [EnvChoice.of(task) for task in tasks()]
    groups = Counter(env.label for env in envs)
    by_label = {env.label: env for env in envs}
    tags = {f"Tag{index}": by_label[label] for index, label in enumerate(groups)}
    section = {"tags": list(tags), "num_groups_partition": list(groups.values())}
    tagged = {
        "env_manager_cls": "gem_roll.GemTrajEnvManager",
        "max_steps": MAX_TURNS,
        "max_tokens_per_step": TOKENS_PER_TURN,
        "agent_system_template": None,
        "agent_template": "{observation}",
    }
    return {
        "pipeline_cls": "roll_carried.NotingPipeline",
        "seed": SEED,
        "gamma": GAMMA,
        "max_steps": 1,
        "rollout_batch_size": TASKS * SAMPLES,
        "val_batch_size": TASKS,
        "sequence_length": TOKENS,
        "actor_train": {
            "training_args": {
                "per_device_train_batch_size": TASKS * SAMPLES,
                "gradient_accumulation_steps": 1,
            },
        },
        "train_env_manager": {**section, "num_env_groups": TASKS, "group_size": SAMPLES},
        "val_env_manager": {**section, "num_env_groups": TASKS, "group_size": 1},
        "custom_envs": {
            "gem": {"tasks": str(table)},
            **{
                tag: {
                    **tagged,
                    "env_type": f"gem_core:{env.env_id}",
                    "env_config": {**env.env_kwargs, "wrappers": "named"},
                }
                for tag, env in tags.items()
            },
        },
    }


@pytest.mark.skipif(not os.environ.get("GEM_CORE_ROLL"), reason="runs the pipeline: `nox -s roll` does")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("several", [False, pytest.param(True, marks=pytest.mark.full)])
def test_the_shared_step(several: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With several rows per episode, the loss is a mean over rows."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    shared = scenario()
    monkeypatch.setenv("GEM_SCRIPT", str(shared.rows_script if several else shared.script))
    config = shared_config(tmp_path)
    gem = config["custom_envs"].pop("gem")
    if several:
        gem |= {"context": "template", "chat_template": str(shared.rows_template)}
        config["loss_agg_mode"] = "seq-mean-token-mean"
        config["actor_train"]["training_args"]["gradient_accumulation_steps"] = 2  # of 20 rows and 12 copies
        for tag in config["custom_envs"].values():
            tag["env_manager_cls"] = "gem_roll.GemStepEnvManager"
    config["custom_envs"]["gem"] = gem
    run = harness.run_roll(tmp_path, shared.model, config).check()
    (update,) = spied.updates(run.spy)
    carried, name, reference = assemble.carried_episodes(run.spy), "roll", "core"
    if several:
        tokenizer = AutoTokenizer.from_pretrained(shared.model)
        episodes = assemble.from_row_means(update.rows, carried, tokenizer)
        name, reference = "roll-rows", "core-rows"
    else:
        episodes = assemble.from_rows(update.rows, carried)
    model = AutoModelForCausalLM.from_pretrained(shared.model, attn_implementation="eager").float()
    gradient = assemble.gradient_difference(update, shared.core(reference), model, episode_means=several)
    gem["tasks"] = "tasks.jsonl"
    comparison = assemble.judge(
        shared, name, ["torch"], json.dumps(config), episodes, gradient,
        reference=reference, checkout={"ROLL": release()},
    )  # fmt: skip
    assert comparison.equal, comparison


def release() -> str:
    """Return the version of the checkout in ROLL_HOME."""
    found = re.search(r'version="([^"]+)"', Path(harness.HOME, "setup.py").read_text())
    assert found
    return found[1]


def rows_of(episodes: list[Played]) -> DataProto:
    """Return rows as ROLL collects them from our env managers; the episodes of a task form a group."""
    fields = {"env_ids": 0, "group_ids": 0, "tags": "Tag"}
    parts = []
    for played in episodes:
        episode = assemble.episode_of(played)
        part = pack_episode(
            episode, several=False, length=TOKENS, pad_id=0, with_logprobs=False, fields=fields,
        )  # fmt: skip
        part.non_tensor_batch["traj_group_id"] = object_array([f"task {played.seed}"])
        part.non_tensor_batch["traj_id"] = object_array([f"row {len(parts)}"])
        parts.append(part)
    found: DataProto = DataProto.concat(parts)
    return found


def unshifted(row_advantages: torch.Tensor, episodes: list[Played]) -> list[list[float]]:
    """Return values per token of each episode; ROLL's advantages are shifted by one."""
    return [
        [0.0, *row[: len(played.token_ids) - 1]]
        for row, played in zip(row_advantages.tolist(), episodes, strict=True)
    ]


def test_other_options_on_the_same_episodes() -> None:
    """Test other estimators and discounts; the plugin rejects KL in the reward."""

    def advantages(case: Case, episodes: list[Played]) -> list[list[float]]:
        name = "rebn" if case.estimator == "rebn" else "gem_reinforce"
        data = rows_of(episodes)
        options = {"ddof": case.ddof} if name == "rebn" else {}
        result = compute_advantages(data, read_estimator(name, options, gamma=case.gamma))
        data.batch[ADVANTAGES], data.batch[RETURNS] = result.advantages, result.returns
        use_advantages(data, None)
        for played, row in zip(episodes, unshifted(data.batch["advantages"], episodes), strict=True):
            played.read_advantages(row)
            assert played.spread == 0
        return [played.advantages for played in episodes]

    found = judge_cases(scenario(), "roll", CASES, advantages)
    assert max(found.values()) <= ADVANTAGE_TOLERANCE, found


def test_rolls_own_estimators_point_elsewhere(tmp_path: Path) -> None:
    group = {"grouping": "traj_group_id", "method": "mean_std"}
    stock: dict[str, dict[str, Any]] = {
        "agentic_reinforce": {"adv_estimator": "agentic_reinforce"},
        "reinforce": {"adv_estimator": "reinforce"},
        "reinforce, whiten_advantages": {"adv_estimator": "reinforce", "whiten_advantages": True},
        "grpo": {"adv_estimator": "grpo", "reward_normalization": group},
    }

    def tokens(name: str, episodes: list[Played]) -> list[list[float]]:
        data = rows_of(episodes)
        if name == "rebn":
            found = compute_advantages(data, read_estimator("rebn", {}, gamma=REBN.gamma)).advantages
            return unshifted(found, episodes)
        config = small_config(tmp_path, {"gamma": REBN.gamma, **stock[name]})
        zeros = torch.zeros(len(data), TOKENS - 1)
        data.batch["old_log_probs"], data.batch["ref_log_probs"] = zeros, zeros.clone()
        data, _ = compute_response_level_rewards(data, config)
        data, _ = compute_token_reward(data, config, get_kl_controller(init_kl_coef=0.0))
        data = agentic_compute_advantage(
            data, gamma=config.gamma, lambd=config.lambd, adv_estimator=config.adv_estimator,
            whiten_advantages=config.whiten_advantages, pipeline_config=config,
        )  # fmt: skip
        return unshifted(data.batch["advantages"], episodes)

    found = judge_stock(scenario(), "roll", ["rebn", *stock], tokens)
    assert found.pop("rebn") == 0
    assert min(found.values()) > 0.05, found
