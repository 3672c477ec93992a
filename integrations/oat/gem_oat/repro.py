"""`gem-core repro --to oat`: a recipe as Oat's flags."""

from __future__ import annotations

import json
from pathlib import Path

from gem_core.repro import ADAM_BETAS, Recipe, reject_unsupported, write_script

COMMAND = "python -m gem_oat.train"
LOSS = (
    "Oat's loss is that of the other trainers, the mean over tokens, times a factor: the number of tokens "
    "over the number of turns and --generate_max_length. Its gradients are clipped to norm 1 after that."
)
TURNS = "Oat trains on {turns} turns per step, however many episodes they come from."


def write(recipe: Recipe, folder: str | Path) -> list[str]:
    """Write ``run.sh``.

    Returns:
        The differences from the other trainers, one line each.

    Raises:
        ConfigError: Oat has no equivalent of an option.
    """
    reject_unsupported("Oat", recipe.images("its prompts are texts"))
    turns = _turns(recipe)
    notes = [LOSS] if recipe.max_turns == 1 else [LOSS, TURNS.format(turns=turns)]
    flags: dict[str, object] = {
        "estimator": recipe.estimator,
        "gamma": recipe.gamma,
        **{
            f"adv-{name.replace('_', '-')}": value for name, value in recipe.changed_estimator_options.items()
        },
        "seed": recipe.seed,
        "group-size": recipe.samples_per_task,
        "gpus": recipe.gpus,
        "vllm_gpu_ratio": 0.45,
        "pretrain": recipe.model,
        "max_model_len": recipe.max_tokens,
        "generate_max_length": recipe.max_tokens_per_turn,
        "temperature": recipe.temperature,
        "rollout_batch_size": turns,
        "rollout_batch_size_per_device": turns // recipe.gpus,
        "train_batch_size": turns // recipe.updates_per_step,
        "train_batch_size_per_device": 1,
        "num_ppo_epochs": 1,
        "max_train": turns * recipe.steps,
        "critic_type": "drgrpo",
        "cliprange": 0.2,
        "tis-c": None,
        "beta": 0,
        "learning_rate": recipe.learning_rate,
        "lr_scheduler": "constant",
        "lr_warmup_ratio": 0,
        "l2": 0,
        "adam_beta_1": ADAM_BETAS[0],
        "adam_beta_2": ADAM_BETAS[1],
        "max_norm": 1,
        "eval_steps": -1,
        "save-path": "model",
        **{name.replace("_", "-"): value for name, value in recipe.rollout_options().items()},
    }
    if recipe.template_kwargs:
        flags["chat-template-kwargs"] = json.dumps(recipe.template_kwargs)
    raw = flags.pop("raw", False)
    switches = ("collocate", "vllm_sleep", "gradient-checkpointing", *(["raw"] if raw else []))
    lines = [["--env-id", *recipe.env], *([f"--{name}"] for name in switches)]
    lines += [[f"--{name}", str(value)] for name, value in flags.items()]
    write_script(Path(folder) / "run.sh", COMMAND, lines, notes=notes)
    return notes


def _turns(recipe: Recipe) -> int:
    """Return the number of rows per step."""
    turns = recipe.turns_per_step
    if turns is None and recipe.max_turns == 1:
        turns = recipe.episodes_per_step
    if turns is None:
        why = "a step of Oat is a number of turns, not of tasks; set turns_per_step"
        reject_unsupported("Oat", {"tasks_per_step": why})
    assert turns is not None
    shares = recipe.updates_per_step * recipe.gpus
    if turns % shares:
        why = f"{turns} is not a multiple of {shares}, updates_per_step times gpus"
        reject_unsupported("Oat", {"turns_per_step": why})
    return turns
