"""`gem-core repro --to oat`: a recipe as Oat's flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gem_lab.repro import Recipe, reject_unsupported, write_script
from gem_lab.repro._script import as_flags
from gem_lab.repro._settings import read_settings
from gem_oat import _NO_EPISODES

COMMAND = "python -m gem_oat.train"
LOSS = (
    "Oat's loss is the other trainers' loss, the mean over tokens, times a factor: the number of tokens "
    "over the number of turns and --generate_max_length. Its gradients are clipped to norm 1 after that."
)
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
    chosen = recipe.changed_estimator_options
    if chosen.get("weight") == "episode":
        reject_unsupported("Oat", {"weight": _NO_EPISODES})
    options: dict[str, Any] = {}
    if critic:
        options = {"critic_learning_rate": recipe.critic_rate, "lam": chosen.pop("lam", LAM)}
    options |= {"estimator_options": chosen} if chosen else {}
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
        turns_per_update=turns // recipe.minibatches,
        total_turns=turns * recipe.steps,
        adam_beta_1=recipe.adam_betas[0],
        adam_beta_2=recipe.adam_betas[1],
        gem_options={name.replace("_", "-"): value for name, value in options.items()},
    )
    write_script(Path(folder) / "run.sh", COMMAND, as_flags(settings), notes=notes)
    return notes


def _turns(recipe: Recipe) -> int:
    """Return the number of rows per step."""
    turns = recipe.turns_per_step
    if turns is None and recipe.max_turns == 1:
        turns = recipe.episodes_per_step
    if turns is None:
        why = "a step of Oat is a number of turns, not of tasks; set turns_per_step"
        reject_unsupported("Oat", {"episodes_per_step": why})
    assert turns is not None
    shares = recipe.minibatches * recipe.gpus
    if turns % shares:
        why = f"{turns} is not a multiple of {shares}, minibatches times gpus"
        reject_unsupported("Oat", {"turns_per_step": why})
    return turns
