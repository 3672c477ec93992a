"""`gem-core repro --to rl2`: a recipe as commands for both versions of RL2, and the file of tasks."""

from __future__ import annotations

from pathlib import Path

from gem_core.errors import ConfigError
from gem_lab.repro import Recipe, reject_unsupported, write_script
from gem_lab.repro._script import assignments
from gem_lab.repro._settings import read_settings
from gem_rl2 import _rows

TREE, INDEX = "run.sh", "run-0.0.2.sh"
SHUFFLED = "RL2 shuffles the tasks, so the steps play the same ones in another order."
NO_BUDGET = (
    "rl-square 0.0.2 stops with an error at an episode of more than {tokens} tokens; other trainers cut it."
)


def write(recipe: Recipe, folder: str | Path) -> list[str]:
    """Write ``run.sh`` for the source tree, ``run-0.0.2.sh`` for the package index, and ``train.jsonl``.

    Returns:
        The differences from the other trainers, one line each; also why one of the two scripts is missing.

    Raises:
        ConfigError: RL2 has no equivalent of an option.
    """
    reject_unsupported("RL2", recipe.images(_rows.NO_IMAGES) | recipe.critic())
    parts = recipe.minibatches
    if recipe.context != "append" and recipe.episodes_per_step <= (parts - 1) ** 2:
        why = f"RL2 needs more than {(parts - 1) ** 2} episodes per step to cut their rows into {parts} parts"
        reject_unsupported("RL2", {"minibatches": why})
    folder = Path(folder)
    _rows.write(recipe.tasks(), folder / "train.jsonl")
    command = f"torchrun --nproc_per_node={recipe.gpus} -m gem_rl2.train"
    write_script(folder / TREE, command, _overrides(recipe, "tree"), notes=[SHUFFLED])
    kept = "this version keeps the responses of a failed episode; use mask"
    reasons = dict.fromkeys(recipe.changed("on_env_error"), kept)
    reasons |= dict.fromkeys(recipe.changed("harness"), "this version has no policy to serve")
    if recipe.max_turns is None:
        reasons["max_turns"] = "this version needs a number of turns"
    try:
        reject_unsupported("rl-square 0.0.2", reasons)
    except ConfigError as error:
        (folder / INDEX).unlink(missing_ok=True)
        return [SHUFFLED, f"{INDEX} is not written. {error}"]
    budget = NO_BUDGET.format(tokens=recipe.max_total_tokens)
    write_script(folder / INDEX, command, _overrides(recipe, "index"), notes=[SHUFFLED, budget])
    return [SHUFFLED, budget]


def _overrides(recipe: Recipe, version: str) -> list[list[str]]:
    """Return the settings that both versions share, and those of one version: "tree" or "index"."""
    folder = Path(__file__).parent
    settings = [read_settings(folder / name, recipe) for name in ("recipe.json", f"recipe-{version}.json")]
    return assignments(settings[0] | settings[1])
