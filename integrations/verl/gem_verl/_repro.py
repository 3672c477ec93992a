"""`gem-core repro --to verl`: a recipe as a command that runs verl's `main_ppo`."""

from __future__ import annotations

from pathlib import Path

from gem_lab.repro import Recipe, reject_unsupported, write_script
from gem_lab.repro._script import assignments
from gem_lab.repro._settings import read_settings

COMMAND = "python -m verl.trainer.main_ppo"
TOKENS_PER_GPU = 16384
"""Size of a micro-batch in tokens; an episode is never split."""


def write(recipe: Recipe, folder: str | Path) -> list[str]:
    """Write ``run.sh``.

    Returns:
        The differences from the other trainers, one line each.

    Raises:
        ConfigError: verl has no equivalent of an option.
    """
    here, tokens = Path(__file__).parent, max(TOKENS_PER_GPU, recipe.max_total_tokens)
    settings = read_settings(here / "recipe.json", recipe, micro_batch_tokens=tokens)
    if recipe.with_critic:
        reject_unsupported(
            "verl", dict.fromkeys(recipe.changed("context", "raw"), "gae needs one row per episode")
        )
        settings |= read_settings(here / "recipe-critic.json", recipe, micro_batch_tokens=tokens)
    write_script(Path(folder) / "run.sh", COMMAND, assignments(settings), notes=recipe.critic_notes)
    return recipe.critic_notes
