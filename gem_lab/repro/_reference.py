"""A recipe as a command of `gem-core train`, the reference trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gem_core._util.options import list_options
from gem_lab.repro._recipe import ADAM_BETAS, Recipe, reject_unsupported
from gem_lab.repro._script import as_flags, write_script
from gem_lab.train._config import SUPPLIES, TrainConfig

NOTES = ("Each step draws its tasks from the seed; the other trainers go through one list of tasks.",)
FIXED: dict[str, Any] = {
    "learning_rate_schedule": "constant",
    "warmup_steps": 0,
    "weight_decay": 0,
    "adam_beta2": ADAM_BETAS[1],
    "max_grad_norm": 1,
    "epochs": 1,
    "clip": 0.2,
    "loss_scale": "token-mean",
    "entropy": 0,
    "kl": 0,
    "eval_episodes": 0,
    "out": "run",
}
"""Options that a recipe does not have."""


def write(recipe: Recipe, folder: str | Path) -> list[str]:
    """Write ``run.sh``.

    Returns:
        Notes on differences from the other trainers.

    Raises:
        ConfigError: `gem-core train` has no equivalent of an option.
    """
    reject_unsupported(
        "gem-core train",
        {
            **dict.fromkeys(
                recipe.changed("max_concurrent_envs", "env_threads"), "gem-core train has no such option"
            ),
            **dict.fromkeys(recipe.changed("traces"), "it writes traces to the folder of the run"),
            **recipe.critic(),
            **dict.fromkeys(recipe.changed("gpus"), "it runs in one process"),
        },
    )
    recipe.read_estimator(supplies=SUPPLIES)
    shared = {option.name for option in list_options(TrainConfig)}
    values: dict[str, Any] = {}
    for option in list_options(Recipe):
        value, flag = getattr(recipe, option.name), option.name.replace("_", "-")
        unset = value is None or (value == option.default and (value is False or value in ("", {})))
        if option.name in shared and not unset:
            values |= {f"no-{flag}": True} if value is False else {flag: value}
    values |= {name.replace("_", "-"): value for name, value in FIXED.items()}
    write_script(Path(folder) / "run.sh", "gem-core train", as_flags(values), notes=NOTES)
    return list(NOTES)
