"""`gem-core repro --to oat`: a recipe as Oat's flags."""

from __future__ import annotations

import json
from pathlib import Path

from gem_lab.repro import Recipe, flags, read_settings, reject_unsupported, write_script

COMMAND = "python -m gem_oat.train"
LOSS = (
    "Oat's loss is the other trainers' loss, the mean over tokens, times a factor: the number of tokens "
    "over the number of turns and --generate_max_length. Its gradients are clipped to norm 1 after that."
)
FLAGS = ("ddof", "eps", "min_std", "scope")
"""Options of an estimator that have a flag ``--adv-<option>``; the others are in ``--adv-options``."""
LAM = 0.95
"""The default of gae; Oat's own is 1."""
CRITIC_LOSS = "With a critic, Oat averages the loss over the tokens of each turn, then over turns."
TURNS = "Oat trains on {turns} turns per step, however many episodes they come from."


def write(recipe: Recipe, folder: str | Path) -> list[str]:
    """Write ``run.sh``.

    Returns:
        The differences from the other trainers, one line each.

    Raises:
        ConfigError: Oat has no equivalent of an option.
    """
    reject_unsupported("Oat", recipe.images("its prompts are texts"))
    turns = _turns(recipe)
    critic = recipe.with_critic
    options = recipe.changed_estimator_options
    if critic:
        options["critic_learning_rate"] = recipe.critic_rate
        options.setdefault("lam", LAM)
    else:
        further = {name: options.pop(name) for name in [*options] if name not in FLAGS}
        options = {f"adv_{name}": value for name, value in options.items()}
        options |= {"adv_options": json.dumps(further)} if further else {}
    notes = [CRITIC_LOSS if critic else LOSS]
    notes += [] if recipe.max_turns == 1 else [TURNS.format(turns=turns)]
    options |= recipe.rollout_options()
    options |= recipe.changed("template_kwargs")
    settings = read_settings(
        Path(__file__).with_name("recipe.json"),
        recipe,
        critic_type="ppo" if critic else "drgrpo",
        turns=turns,
        turns_per_gpu=turns // recipe.gpus,
        turns_per_update=turns // recipe.updates_per_step,
        total_turns=turns * recipe.steps,
        adam_beta_1=recipe.adam_betas[0],
        adam_beta_2=recipe.adam_betas[1],
        gem_options={name.replace("_", "-"): value for name, value in options.items()},
    )
    write_script(Path(folder) / "run.sh", COMMAND, flags(settings), notes=notes)
    return notes


def _turns(recipe: Recipe) -> int:
    """Return the number of rows per step."""
    turns = recipe.turns_per_step
    if turns is None and recipe.max_turns == 1:
        turns = recipe.episodes_per_step
    if turns is None:
        why = "a step of Oat is a number of turns, not of tasks; set turns_per_step"
        reject_unsupported("Oat", {"tasks_per_step": why})
    assert turns is not None
    shares = recipe.updates_per_step * recipe.gpus
    if turns % shares:
        why = f"{turns} is not a multiple of {shares}, updates_per_step times gpus"
        reject_unsupported("Oat", {"turns_per_step": why})
    return turns
