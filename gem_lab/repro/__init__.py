"""Description of a run in one file, and conversion to the equivalent config of each trainer.

    recipe = Recipe.load("recipe.yaml")
    write_reference(recipe, "out/reference")

`gem-core repro recipe.yaml --out out` does this for all trainers. Each plugin writes the config of its
trainer.
"""

from __future__ import annotations

from gem_lab.repro.recipe import ADAM_BETAS, Recipe, reject_unsupported
from gem_lab.repro.reference import write as write_reference
from gem_lab.repro.script import Verbatim, assignments, flags, write_script
from gem_lab.repro.settings import read_settings

__all__ = [
    "ADAM_BETAS",
    "Recipe",
    "Verbatim",
    "assignments",
    "flags",
    "read_settings",
    "reject_unsupported",
    "write_reference",
    "write_script",
]
