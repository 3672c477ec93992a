"""`gem-core repro --to toy`."""

from __future__ import annotations

from pathlib import Path

from gem_lab.repro import Recipe, reject_unsupported, write_script


def write(recipe: Recipe, folder: str | Path) -> list[str]:
    """Write ``run.sh``."""
    reject_unsupported("Toy", dict.fromkeys(recipe.changed("system_prompt"), "Toy has none"))
    write_script(Path(folder) / "run.sh", "python -m toy_trainer", [["--gamma", str(recipe.gamma)]])
    return ["Toy trains nothing."]
