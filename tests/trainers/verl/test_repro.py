"""verl's config parser and GEM's checks accept the output of `gem-core repro` for verl."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import gem_verl.estimators  # noqa: F401
import pytest
from gem_verl._options import check_config, read_algorithm, read_options
from gem_verl._repro import write
from verl.trainer.ppo.utils import create_rl_dataset, need_critic
from verl.utils.config import validate_config

from gem_core.advantages import gae
from gem_lab.repro._recipe import ADAM_BETAS
from tests.repro.recipes import BOTH, OTHERS, PLAIN, recipe, started_by
from tests.trainers.learning import MODELS
from tests.trainers.verl.configs import verl_config


def config_of(folder: Path, given: Any) -> Any:
    assert write(given, folder) == given.critic_notes
    words = started_by(folder / "run.sh", "trainer.project_name=mine")
    assert words[:3] == ["python", "-m", "verl.trainer.main_ppo"]
    config = verl_config(*words[3:])
    check_config(config)
    validate_config(config, use_reference_policy=False, use_critic=need_critic(config))
    assert config.trainer.project_name == "mine"
    return config


@BOTH
def test_verl_reads_what_the_recipe_says(given: dict[str, Any], tmp_path: Path) -> None:
    made = recipe(given)
    config = config_of(tmp_path, made)
    assert (config.algorithm.adv_estimator, config.algorithm.gamma) == ("rebn", 0.9)
    data, rollout, actor = config.data, config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
    tasks = create_rl_dataset(data.train_files, data, None, None, max_samples=data.train_max_samples).tasks
    assert tasks == list(made.tasks())
    assert (data.train_batch_size, rollout.n, data.shuffle) == (8, 2, False)
    assert (config.trainer.total_training_steps, actor.ppo_mini_batch_size) == (5, 8 // made.minibatches)
    assert (rollout.max_model_len, rollout.prompt_length, rollout.response_length) == (4096, 4096, 4096)
    assert (actor.optim.lr, rollout.temperature) == (2e-6, made.temperature)
    assert tuple(actor.optim.betas) == ADAM_BETAS
    assert config.actor_rollout_ref.model.path == "Qwen/Qwen3-1.7B"
    assert config.trainer.n_gpus_per_node == made.gpus
    options = read_options(config)
    assert options.limits(max_tokens_per_turn=1) == made.limits(max_tokens_per_turn=1)
    for name in ("max_tokens_per_turn", "wrappers", "system_prompt", "traces"):
        assert getattr(options, name) == getattr(made, name)
    assert dict(data.apply_chat_template_kwargs) == made.template_kwargs
    result = dict(config.algorithm.get("rebn") or {})
    assert result == made.changed_estimator_options
    assert read_algorithm(config.algorithm, "rebn").options == {
        k: v for k, v in result.items() if k != "scope"
    }


@OTHERS
def test_verl_takes_the_other_estimators_and_contexts(changed: dict[str, Any], tmp_path: Path) -> None:
    made = recipe(PLAIN, **changed)
    config = config_of(tmp_path, made)
    assert config.algorithm.adv_estimator == f"gem_{made.estimator}"
    assert read_options(config).has_several_rows == (made.context == "rebuild")


@pytest.mark.parametrize(
    ("changed", "rate", "lam"),
    [
        ({}, 2e-6, inspect.signature(gae).parameters["lam"].default),
        ({"critic_learning_rate": 1e-5, "estimator_options": {"lam": 0.8}, "gpus": 2}, 1e-5, 0.8),
    ],
    ids=["defaults", "options"],
)
def test_gae_sets_up_a_critic(changed: dict[str, Any], rate: float, lam: float, tmp_path: Path) -> None:
    model = str((MODELS / "letters").resolve())  # verl reads the config of the critic's model
    config = config_of(tmp_path, recipe(PLAIN, estimator="gae", model=model, **changed))
    assert need_critic(config)
    assert read_algorithm(config.algorithm, config.algorithm.adv_estimator).options == {"lam": lam}
    critic, actor = config.critic, config.actor_rollout_ref.actor
    assert (config.algorithm.adv_estimator, critic.optim.lr, actor.optim.lr) == ("gem_gae", rate, 2e-6)
    assert critic.model.path == config.actor_rollout_ref.model.path
    for name in ("ppo_mini_batch_size", "use_dynamic_bsz", "ppo_max_token_len_per_gpu", "ppo_epochs"):
        assert critic[name] == actor[name]
    for name in ("weight_decay", "betas", "lr_warmup_steps_ratio"):
        assert critic.optim[name] == actor.optim[name]
    assert critic.grad_clip == actor.optim.clip_grad
