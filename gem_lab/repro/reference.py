"""A recipe as a command of `gem-core train`, the reference trainer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gem_core.advantages.registry import get_estimator
from gem_lab.repro.recipe import ADAM_BETAS, Recipe, reject_unsupported
from gem_lab.repro.script import flags, write_script
from gem_lab.train.config import SUPPLIES

NOTES = ("Each step draws its tasks from the seed; the other trainers go through one list of tasks.",)


def write(recipe: Recipe, folder: str | Path) -> list[str]:
    """Write ``run.sh``.

    Returns:
        Notes on differences from the other trainers.

    Raises:
        ConfigError: `gem-core train` has no equivalent of an option.
    """
    no_flag = "gem-core train has no such option"
    reject_unsupported(
        "gem-core train",
        {
            **dict.fromkeys(
                recipe.changed("system_prompt", "template_kwargs", "max_concurrent_envs", "env_threads"),
                no_flag,
            ),
            **dict.fromkeys(recipe.changed("context", "raw"), "it supports append contexts only"),
            **dict.fromkeys(recipe.changed("traces"), "it writes traces to the folder of the run"),
            **recipe.critic(),
            **dict.fromkeys(recipe.changed("gpus"), "it runs in one process"),
        },
    )
    options = {
        name: value
        for name, value in recipe.changed_estimator_options.items()
        if name not in ("scope", "truncation")  # its statistics are always those of all episodes of a step
    }
    if missing := get_estimator(recipe.estimator).missing(options, SUPPLIES):
        reject_unsupported("gem-core train", {"estimator": f"{recipe.estimator} needs {missing}"})
    values: dict[str, Any] = {
        "model": recipe.model,
        "estimator": recipe.estimator,
        **({"estimator-options": json.dumps(options)} if options else {}),
        **{name: value for name, value in recipe.changed_estimator_options.items() if name == "truncation"},
        "gamma": recipe.gamma,
        "seed": recipe.seed,
        "steps": recipe.steps,
        "episodes-per-step": recipe.episodes_per_step,
        "group-size": recipe.samples_per_task,
        "max-tokens-per-turn": recipe.max_tokens_per_turn,
        "max-total-tokens": recipe.max_tokens,
        "on-length-cut": recipe.on_length_cut,
        **{
            name.replace("_", "-"): value
            for name, value in recipe.changed("chat_template", "date", "thoughts").items()
        },
        "temperature": recipe.temperature,
        "lr": recipe.learning_rate,
        "lr-schedule": "constant",
        "warmup-steps": 0,
        "weight-decay": 0,
        "adam-beta2": ADAM_BETAS[1],
        "max-grad-norm": 1,
        "epochs": 1,
        "minibatches": recipe.updates_per_step,
        "clip": 0.2,
        "loss-scale": "token-mean",
        "entropy": 0,
        "kl": 0,
        "eval-episodes": 0,
        "out": "run",
    }
    names = (
        "max_turns", "wrappers", "parse_special", "step_timeout", "on_env_error", "max_env_retries",
        "harness", "harness_timeout",
    )  # fmt: skip
    values |= {name.replace("_", "-"): value for name, value in recipe.changed(*names).items()}
    lines = [["--env", text] for text in recipe.env]
    write_script(Path(folder) / "run.sh", "gem-core train", [*lines, *flags(values)], notes=NOTES)
    return list(NOTES)
