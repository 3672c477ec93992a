"""A recipe is checked before the plugin of a trainer writes it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from gem_core.errors import ConfigError
from gem_core.trainers import SupportedTrainer, TrainerPlugin
from gem_lab import _discovery
from gem_lab.repro import Recipe
from gem_lab.repro._writers import check_recipe, load_recipe_writer

GUESS = "game:GuessTheNumber-v0-easy"


def supported(**options: Any) -> SupportedTrainer:
    return SupportedTrainer("Acme", "gem_acme", "acme", versions=">=1,<2", hook="", **options)


def test_a_recipe_names_an_estimator_of_gem_that_the_trainer_can_run() -> None:
    def recipe(estimator: str = "rebn", **options: Any) -> Recipe:
        return Recipe(env=(GUESS,), model="m", estimator=estimator, estimator_options=options)

    check_recipe(recipe(ddof=1), supported())
    check_recipe(recipe("grpo"), supported(own_estimators=("grpo", "gae")))  # as gem_grpo
    with pytest.raises(ConfigError, match=r"unknown option 'estimator_options\.dof'"):
        check_recipe(recipe(dof=1), supported())
    with pytest.raises(ConfigError, match="Acme has an estimator 'rebn' of its own; register yours under an"):
        check_recipe(recipe(), supported(own_estimators=("rebn",)))
    with pytest.raises(ConfigError, match="opo needs lengths"):
        check_recipe(recipe("opo"), supported())
    check_recipe(recipe("gae"), supported())  # the writer of the plugin sets up a critic, or refuses


def test_the_writer_of_a_plugin_gets_recipes_that_the_trainer_can_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(_discovery, "_registered", {})
    written: list[tuple[Recipe, Path]] = []

    def write(recipe: Recipe, folder: Path) -> list[str]:
        written.append((recipe, folder))
        return ["a note"]

    _discovery.register_trainer("acme", TrainerPlugin(supported(), recipe_writer=write))
    recipe = Recipe(env=(GUESS,), model="m")
    assert load_recipe_writer("acme")(recipe, tmp_path) == ["a note"]
    assert written == [(recipe, tmp_path)]
    with pytest.raises(ConfigError, match="needs lengths"):
        load_recipe_writer("acme")(dataclasses.replace(recipe, estimator="opo"), tmp_path)
    assert len(written) == 1
