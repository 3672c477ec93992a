"""The functions of the plugins that write a recipe as a run of their trainer."""

from __future__ import annotations

from pathlib import Path

from gem_core.errors import ConfigError
from gem_core.trainers import SupportedTrainer, read_estimator
from gem_core.trainers._plugin import RecipeWriter
from gem_lab._discovery import load_part, load_trainer
from gem_lab.repro._recipe import Recipe


def load_recipe_writer(name: str) -> RecipeWriter:
    """Return the function that writes a run of a trainer.

    The function raises `ConfigError` for options without an equivalent, and for an estimator that the trainer
    would reject.

    Raises:
        UnknownName, UnsupportedTrainer: As in `load_trainer`.
        ConfigError: The plugin has no such function.
    """
    plugin = load_trainer(name)
    write: RecipeWriter = load_part(name, "recipe_writer")

    def check_and_write(recipe: Recipe, folder: Path) -> list[str]:
        check_recipe(recipe, plugin.supported)
        return write(recipe, folder)

    return check_and_write


def check_recipe(recipe: Recipe, trainer: SupportedTrainer) -> None:
    """Reject a recipe with an estimator or an option of it that the trainer's plugin would reject.

    Raises:
        ConfigError: See `read_estimator`.
    """
    if recipe.trainer_estimator in trainer.own_estimators:
        raise ConfigError(
            f"{trainer.name} has an estimator {recipe.trainer_estimator!r} of its own; register yours under "
            "another name"
        )
    if not recipe.with_critic:  # the writer of a plugin decides whether it sets up a critic
        read_estimator(
            recipe.trainer_estimator,
            recipe.estimator_options,
            gamma=recipe.gamma,
            prefix="estimator_options.",
            trainer=trainer,
        )
