"""`gem-core repro --to openrlhf`: a recipe as flags of OpenRLHF, and the file of tasks."""

from __future__ import annotations

from pathlib import Path

from gem_lab.repro import Recipe, reject_unsupported, write_script
from gem_lab.repro._script import Verbatim, as_flags
from gem_lab.repro._settings import read_settings
from gem_openrlhf._labels import write as write_rows

COMMAND = "python -m gem_openrlhf.train_ppo_ray"
NOTES = ("OpenRLHF shuffles the tasks, so the steps play the same ones in another order.",)


def write(recipe: Recipe, folder: str | Path) -> list[str]:
    """Write ``run.sh`` and ``train.jsonl``.

    Returns:
        The differences from the other trainers, one line each.

    Raises:
        ConfigError: OpenRLHF has no equivalent of an option.
    """
    reasons = recipe.critic() | recipe.images(
        "OpenRLHF's --data.max_images_per_prompt needs the number per episode, which a recipe does not state"
    )
    reject_unsupported("OpenRLHF", reasons)
    write_rows(recipe.tasks(), Path(folder) / "train.jsonl")
    options = recipe.rollout_options() | recipe.changed("template_kwargs")
    if chosen := recipe.changed_estimator_options:
        options["estimator_options"] = chosen
    settings = read_settings(
        Path(__file__).with_name("recipe.json"),
        recipe,
        gem_options=options,
        agent=Verbatim('"$(gem-core path openrlhf-agent)"'),
        tasks_file=Verbatim('"$PWD/train.jsonl"'),
        model_folder=Verbatim('"$PWD/model"'),
        rollout_rows=recipe.micro_batch(8),
    )
    write_script(Path(folder) / "run.sh", COMMAND, as_flags(settings), notes=NOTES)
    return list(NOTES)
