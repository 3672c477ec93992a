"""`gem-core repro --to rl2`: a recipe as commands for both versions of RL2, and the file of tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gem_core.errors import ConfigError
from gem_core.repro import Recipe, assignments, reject_unsupported, write_script
from gem_rl2.export import write as write_rows
from gem_rl2.rows import NO_IMAGES

TREE, INDEX = "run.sh", "run-0.0.2.sh"
SHUFFLED = "RL2 shuffles the tasks: the steps have the same ones in another order."
NO_BUDGET = (
    "rl-square 0.0.2 stops with an error at an episode of more than {tokens} tokens, where others cut it."
)


def write(recipe: Recipe, folder: str | Path) -> list[str]:
    """Write ``run.sh`` for the source tree, ``run-0.0.2.sh`` for the package index, and ``train.jsonl``.

    Returns:
        The differences from the other trainers, one line each; also why one of the two scripts is missing.

    Raises:
        ConfigError: RL2 has no equivalent of an option.
    """
    reject_unsupported("RL2", recipe.images(NO_IMAGES))
    parts, rows = recipe.updates_per_step, recipe.episodes_per_step
    if recipe.context == "rebuild" and rows <= (parts - 1) ** 2:
        why = (
            f"RL2 needs more than {(parts - 1) ** 2} episodes a step to cut rows of turns into {parts} parts"
        )
        reject_unsupported("RL2", {"updates_per_step": why})
    folder = Path(folder)
    write_rows(recipe.tasks(), folder / "train.jsonl")
    command = f"torchrun --nproc_per_node={recipe.gpus} -m gem_rl2.train"
    write_script(folder / TREE, command, assignments(_tree(recipe)), notes=[SHUFFLED])
    try:
        overrides = assignments(_index(recipe))
    except ConfigError as error:
        (folder / INDEX).unlink(missing_ok=True)
        return [SHUFFLED, f"{INDEX} is not written. {error}"]
    budget = NO_BUDGET.format(tokens=recipe.max_tokens)
    write_script(folder / INDEX, command, overrides, notes=[SHUFFLED, budget])
    return [SHUFFLED, budget]


def _both(recipe: Recipe) -> dict[str, Any]:
    return {
        "adv.estimator": recipe.trainer_estimator,
        "adv.gamma": recipe.gamma,
        **{
            f"+adv.{recipe.trainer_estimator}.{name}": v
            for name, v in recipe.changed_estimator_options.items()
        },
        "actor.model_name": recipe.model,
        "actor.max_length_per_device": recipe.max_tokens,
        "actor.update_per_rollout": recipe.updates_per_step,
        "actor.clip": 0.2,
        "actor.avg_level": "token",
        "actor.tis_coef": 0.0,
        "actor.max_grad_norm": 1.0,
        "actor.kl.coef": 0.0,
        "actor.entropy.coef": 0.0,
        "trainer.project": "gem",
        "trainer.experiment_name": "repro",
        "trainer.save_dir": "model",
        "trainer.use_wandb": False,
        **{f"+gem.{name}": value for name, value in recipe.rollout_options().items()},
        **{f"+gem.template_kwargs.{name}": value for name, value in recipe.template_kwargs.items()},
    }


def _tree(recipe: Recipe) -> dict[str, Any]:
    return {
        **_both(recipe),
        "rollout.train.path": "train.jsonl",
        "rollout.test.path": "train.jsonl",  # never played, since no test_freq is set
        "rollout.train.prompts_per_rollout": recipe.tasks_per_step,
        "rollout.train.responses_per_prompt": recipe.samples_per_task,
        "rollout.train.dynamic_filtering": False,
        "rollout.train.sampling_params.temperature": recipe.temperature,
        "rollout.train.sampling_params.max_new_tokens": recipe.max_tokens_per_turn,
        "actor.optimizer.lr": recipe.learning_rate,
        "actor.optimizer.weight_decay": 0.0,
        "actor.scheduler.name": "constant",
        "actor.scheduler.warmup_ratio": 0.0,
        "trainer.total_steps": recipe.steps,
    }


def _index(recipe: Recipe) -> dict[str, Any]:
    reasons = {}
    if recipe.max_turns is None:
        reasons["max_turns"] = "this version needs a number of turns"
    if recipe.on_env_error == "retry":
        reasons["on_env_error"] = "this version keeps the responses of a failed episode; use mask"
    reject_unsupported("rl-square 0.0.2", reasons)
    return {
        **_both(recipe),
        "train_data.path": "train.jsonl",
        "test_data.path": "train.jsonl",  # never played, since no test_freq is set
        "train_data.prompts_per_rollout": recipe.tasks_per_step,
        "train_data.responses_per_prompt": recipe.samples_per_task,
        "rollout.dynamic_filtering": False,
        "rollout.max_turns": recipe.max_turns,
        "rollout.train_sampling_params.temperature": recipe.temperature,
        "rollout.train_sampling_params.max_new_tokens": recipe.max_tokens_per_turn,
        "actor.lr": recipe.learning_rate,
        "actor.weight_decay": 0.0,
        "actor.scheduler": "constant",
        "actor.warmup_ratio": 0.0,
        "trainer.n_epochs": 1,
    }
