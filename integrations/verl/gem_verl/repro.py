"""`gem-core repro --to verl`: a recipe as a command that runs verl's `main_ppo`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gem_core.repro import ADAM_BETAS, Recipe, assignments, write_script

COMMAND = "python -m verl.trainer.main_ppo"
TOKENS_PER_GPU = 16384
"""Size of a micro-batch in tokens; an episode is never split."""


def write(recipe: Recipe, folder: str | Path) -> list[str]:
    """Write ``run.sh``.

    Returns:
        The differences from the other trainers: none, because verl has an equivalent of every option.
    """
    tokens = max(TOKENS_PER_GPU, recipe.max_tokens)
    values: dict[str, Any] = {
        "algorithm.adv_estimator": recipe.trainer_estimator,
        "algorithm.gamma": recipe.gamma,
        **{
            f"+algorithm.{recipe.trainer_estimator}.{name}": value
            for name, value in recipe.changed_estimator_options.items()
        },
        "algorithm.use_kl_in_reward": False,
        "trainer.v1.trainer_mode": "gem_sync",
        "+actor_rollout_ref.rollout.agent.agent_loop_manager_class": "gem_verl.GemAgentLoopManager",
        "data.custom_cls.path": "pkg://gem_verl.dataset",
        "data.custom_cls.name": "GemDataset",
        "data.train_files": recipe.env,
        "data.val_files": recipe.env,
        "data.seed": recipe.seed,
        "data.shuffle": False,
        "data.train_max_samples": recipe.steps * recipe.tasks_per_step,
        "data.train_batch_size": recipe.tasks_per_step,
        "data.max_prompt_length": recipe.max_tokens,
        "data.max_response_length": recipe.max_tokens,
        **{
            f"+data.apply_chat_template_kwargs.{name}": value
            for name, value in recipe.template_kwargs.items()
        },
        "actor_rollout_ref.model.path": recipe.model,
        "actor_rollout_ref.actor.ppo_mini_batch_size": recipe.tasks_per_step // recipe.updates_per_step,
        "actor_rollout_ref.actor.ppo_epochs": 1,
        "actor_rollout_ref.actor.use_dynamic_bsz": True,
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": tokens,
        "actor_rollout_ref.actor.loss_agg_mode": "token-mean",
        "actor_rollout_ref.actor.clip_ratio": 0.2,
        "actor_rollout_ref.actor.use_kl_loss": False,
        "actor_rollout_ref.actor.entropy_coeff": 0,
        "actor_rollout_ref.actor.optim.lr": recipe.learning_rate,
        "actor_rollout_ref.actor.optim.weight_decay": 0.0,
        "actor_rollout_ref.actor.optim.betas": ADAM_BETAS,
        "actor_rollout_ref.actor.optim.clip_grad": 1.0,
        "actor_rollout_ref.rollout.name": "vllm",
        "actor_rollout_ref.rollout.n": recipe.samples_per_task,
        "actor_rollout_ref.rollout.temperature": recipe.temperature,
        "actor_rollout_ref.rollout.max_model_len": recipe.max_tokens,
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
        "actor_rollout_ref.rollout.gpu_memory_utilization": 0.5,
        "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz": True,
        "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu": tokens,
        "trainer.n_gpus_per_node": recipe.gpus,
        "trainer.nnodes": 1,
        "trainer.total_epochs": 1,
        "trainer.total_training_steps": recipe.steps,
        "trainer.val_before_train": False,
        "trainer.test_freq": -1,
        "trainer.save_freq": recipe.steps,
        "trainer.default_local_dir": "checkpoints",
        "trainer.logger": "console",
        "+gem.max_tokens_per_turn": recipe.max_tokens_per_turn,
        **{f"+gem.{name}": value for name, value in recipe.rollout_options().items()},
    }
    write_script(Path(folder) / "run.sh", COMMAND, assignments(values))
    return []
