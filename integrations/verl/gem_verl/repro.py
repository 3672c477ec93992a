"""`gem-core repro --to verl`: a recipe as a command that runs verl's `main_ppo`."""

from __future__ import annotations

from pathlib import Path

from gem_core.repro import Recipe, assignments, read_settings, reject_unsupported, write_script

COMMAND = "python -m verl.trainer.main_ppo"
TOKENS_PER_GPU = 16384
"""Size of a micro-batch in tokens; an episode is never split."""


def write(recipe: Recipe, folder: str | Path) -> list[str]:
    """Write ``run.sh``.

    Returns:
        The differences from the other trainers: none.

    Raises:
        ConfigError: The estimator needs a critic; verl has an equivalent of every other option.
    """
    reject_unsupported("verl", recipe.critic())
    tokens = max(TOKENS_PER_GPU, recipe.max_tokens)
    settings = read_settings(Path(__file__).with_name("recipe.json"), recipe, micro_batch_tokens=tokens)
    write_script(Path(folder) / "run.sh", COMMAND, assignments(settings))
    return []
