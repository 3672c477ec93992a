"""`gem-core repro --to trl`: a recipe as flags of TRL's script."""

from __future__ import annotations

import json
from pathlib import Path

from gem_lab.repro import Recipe, reject_unsupported, write_script
from gem_lab.repro._script import as_flags
from gem_lab.repro._settings import read_settings

COMMAND = "accelerate launch --num_machines 1 --num_processes {gpus} -m gem_trl.grpo"
UPDATES = (
    "With several updates per step, TRL's loss divides each update by the mean number of tokens of an update."
)


def write(recipe: Recipe, folder: str | Path) -> list[str]:
    """Write ``run.sh``.

    Returns:
        The differences from the other trainers, one line each.

    Raises:
        ConfigError: TRL has no equivalent of an option.
    """
    reasons = recipe.images("gem_trl trains on text only") | recipe.critic()
    if recipe.group_size < 2:
        reasons["group_size"] = "TRL needs at least 2 episodes per task, with any estimator"
    reject_unsupported("TRL", reasons)
    options = recipe.rollout_options()
    if recipe.changed_estimator_options:
        options["estimator_options"] = json.dumps(recipe.changed_estimator_options)
    settings = read_settings(
        Path(__file__).with_name("recipe.json"),
        recipe,
        rows_per_rollout=recipe.micro_batches * recipe.minibatches,
        optimizer_steps=recipe.steps * recipe.minibatches,
        adam_beta_1=recipe.adam_betas[0],
        adam_beta_2=recipe.adam_betas[1],
        template=json.dumps(recipe.template_kwargs),
        gem_options=options,
    )
    notes = [UPDATES] if recipe.minibatches > 1 else []
    write_script(Path(folder) / "run.sh", COMMAND.format(gpus=recipe.gpus), as_flags(settings), notes=notes)
    return notes
