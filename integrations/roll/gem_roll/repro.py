"""`gem-core repro --to roll`: a recipe as a YAML of ROLL's agentic pipeline, and the table of tasks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gem_core._util.files import write_atomically
from gem_core._util.yaml import to_yaml
from gem_core.repro import Recipe, Verbatim, read_settings, reject_unsupported, write_script
from gem_core.tasks import EnvChoice, make_tasks, write_tasks
from gem_roll.env import NO_IMAGES
from gem_roll.export import tag_names, tag_section
from gem_roll.kinds import STEP, TRAJECTORY

HERE = "${oc.env:GEM_REPRO,.}"
"""The folder of the recipe, as referred to in the YAML."""
BEFORE = """\
export GEM_REPRO="$PWD" ROLL_HOME="${ROLL_HOME:?set it to the checkout of ROLL}"
export PYTHONPATH="$ROLL_HOME:${PYTHONPATH:-}"
place=$(realpath --relative-to="$ROLL_HOME/examples" .)
cd "$ROLL_HOME\""""


def write(recipe: Recipe, folder: str | Path) -> list[str]:
    """Write ``run.yaml``, ``run.sh`` and ``tasks.jsonl``.

    Returns:
        The differences from the other trainers: with several environments, how they are mixed.

    Raises:
        ConfigError: ROLL has no equivalent of an option.
    """
    reject_unsupported("ROLL", recipe.images(NO_IMAGES) | recipe.critic())
    folder = Path(folder)
    groups = _groups(recipe)
    notes = ["Each step has the same number of tasks of each environment."] if len(groups) > 1 else []
    rows = [
        task
        for source, count in zip(recipe.sources, groups, strict=True)
        for task in make_tasks([source], recipe.steps * count, seed=recipe.seed)
    ]
    write_tasks(rows, folder / "tasks.jsonl")
    write_atomically(folder / "run.yaml", [to_yaml(_config(recipe, groups))])
    lines = [["--config_path", Verbatim('"$place"')], ["--config_name", "run"]]
    command = "python examples/start_agentic_pipeline.py"
    write_script(folder / "run.sh", command, lines, notes=notes, before=BEFORE)
    return notes


def _groups(recipe: Recipe) -> list[int]:
    """Return the tasks per step of each environment; ROLL assigns each a fixed number of groups."""
    weights = [source.weight for source in recipe.sources]
    shares = [recipe.tasks_per_step * weight / sum(weights) for weight in weights]
    if any(abs(share - round(share)) > 1e-9 or round(share) < 1 for share in shares):
        listed = ", ".join(f"{share:g}" for share in shares)
        why = f"ROLL gives each environment a whole number of the tasks of a step, not {listed}"
        reject_unsupported("ROLL", {"env": why})
    return [round(share) for share in shares]


def _config(recipe: Recipe, groups: list[int]) -> dict[str, Any]:
    micro = recipe.micro_batch(4)
    tags = tag_names([source.label for source in recipe.sources])
    beta1, beta2 = recipe.adam_betas
    return read_settings(
        Path(__file__).with_name("recipe.json"),
        recipe,
        environments=len(tags),
        tags=tags,
        groups=groups,
        eval_groups=[1] * len(tags),
        micro=micro,
        micro_batches=recipe.episodes_per_gpu // micro,
        adam_beta1=beta1,
        adam_beta2=beta2,
        devices=f"list(range(0,{recipe.gpus}))",
        options=_options(recipe),
        sections={tag: _section(recipe, source) for tag, source in zip(tags, recipe.sources, strict=True)},
    )


def _options(recipe: Recipe) -> dict[str, Any]:
    """Return the options of the rollout that ROLL's own config lacks."""
    options = recipe.rollout_options()
    for name in {"max_turns", "system_prompt", "wrappers"} & options.keys():
        del options[name]
    if recipe.traces:
        options["traces"] = os.path.join(HERE, recipe.traces)  # ROLL runs in its own checkout
    return options


def _section(recipe: Recipe, source: EnvChoice) -> dict[str, Any]:
    return tag_section(
        source,
        env_manager_cls=STEP if recipe.context == "rebuild" else TRAJECTORY,
        max_steps=recipe.max_turns,
        max_tokens_per_step=recipe.max_tokens_per_turn,
        agent_system_template=recipe.system_prompt,
        env_config=source.env_kwargs | ({"wrappers": recipe.wrappers} if recipe.wrappers else {}),
    )
