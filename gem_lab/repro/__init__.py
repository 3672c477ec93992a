"""Description of a run in one file, and conversion to the equivalent config of each trainer.

    recipe = Recipe.load("recipe.yaml")
    write_reference(recipe, "out/reference")

`gem-core repro recipe.yaml --out out` does this for all trainers. Each plugin writes the config of its
trainer.
"""

from __future__ import annotations

from gem_lab.repro._recipe import Recipe, reject_unsupported
from gem_lab.repro._reference import write as write_reference
from gem_lab.repro._script import write_script

__all__ = [
    "Recipe",
    "reject_unsupported",
    "write_reference",
    "write_script",
]
