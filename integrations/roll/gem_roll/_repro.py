"""`gem-core repro --to roll`: a recipe as a YAML of ROLL's agentic pipeline.

The plugin generates from the seed the same tasks that other trainers read from a file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gem_core._util.files import write_atomically
from gem_core.tasks import EnvChoice
from gem_lab.repro import Recipe, reject_unsupported, write_script
from gem_lab.repro._script import Verbatim
from gem_lab.repro._settings import read_settings
from gem_lab.repro._yaml import to_yaml
from gem_roll._env import NO_IMAGES, PREFIX
from gem_roll._kinds import STEP, TRAJECTORY

HERE = "${oc.env:GEM_REPRO,.}"
"""The folder of the recipe, as referred to in the YAML."""
SET_ELSEWHERE = ("max_turns", "system_prompt", "wrappers", "traces", "max_concurrent_envs")
ENVS_PER_WORKER = 16
BEFORE = """\
export GEM_REPRO="$PWD" ROLL_HOME="${ROLL_HOME:?set it to the checkout of ROLL}"
export PYTHONPATH="$ROLL_HOME:${PYTHONPATH:-}"
place=$(realpath --relative-to="$ROLL_HOME/examples" .)
cd "$ROLL_HOME\""""


def write(recipe: Recipe, folder: str | Path) -> list[str]:
    """Write ``run.yaml`` and ``run.sh``.

    Returns:
        The differences from the other trainers: with several environments, how they are mixed.

    Raises:
        ConfigError: ROLL has no equivalent of an option.
    """
    reject_unsupported("ROLL", recipe.images(NO_IMAGES) | recipe.critic())
    folder = Path(folder)
    groups = _groups(recipe)
    notes = ["Each step has the same number of tasks of each environment."] if len(groups) > 1 else []
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
    tags = _tag_names([source.label for source in recipe.sources])
    return read_settings(
        Path(__file__).with_name("recipe.json"),
        recipe,
        environments=len(tags),
        tags=tags,
        groups=groups,
        eval_groups=[1] * len(tags),
        devices=f"list(range(0,{recipe.gpus}))",
        envs_per_worker=recipe.max_concurrent_envs or ENVS_PER_WORKER,
        # ROLL runs in its own checkout.
        traces=recipe.traces and str(Path(HERE, recipe.traces)),
        options={k: v for k, v in recipe.rollout_options().items() if k not in SET_ELSEWHERE},
        sections={tag: _section(recipe, source) for tag, source in zip(tags, recipe.sources, strict=True)},
    )


def _section(recipe: Recipe, source: EnvChoice) -> dict[str, Any]:
    """Return ``custom_envs.<tag>`` for an environment."""
    wrappers = ", ".join(filter(None, (source.env_kwargs.get("wrappers", ""), recipe.wrappers)))
    return {
        "env_type": PREFIX + source.env_id,
        "env_manager_cls": STEP if recipe.context != "append" else TRAJECTORY,
        "max_steps": recipe.max_turns,
        "max_tokens_per_step": recipe.max_tokens_per_turn,
        "agent_system_template": recipe.system_prompt,
        "agent_template": "{observation}",
        "env_config": source.env_kwargs | ({"wrappers": wrappers} if wrappers else {}),
    }


def _tag_names(labels: list[str]) -> list[str]:
    """Return a short name for each label of an environment, without group and version if that is unique."""
    names = [label.partition("(")[0].rpartition(":")[2].partition("-")[0] for label in labels]
    return [
        name if names.count(name) == 1 else f"{name}{number}" for number, name in enumerate(names, start=1)
    ]
