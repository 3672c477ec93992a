"""Options of GEM in a verl config, and the verl options that are incompatible with them.

Options of the rollout are in a separate section, ``+gem.<option>=<value>``; options of an estimator are under
its name, ``+algorithm.rebn.ddof=1``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gem_core.advantages.registry import TRAINER_NAMES
from gem_core.errors import ConfigError
from gem_core.rollout.vision import processor_problem
from gem_core.trainers.estimators import EstimatorChoice, read_estimator, unknown_estimator
from gem_core.trainers.options import RowOptions, option_at, read_refusals, reject_changed
from gem_core.trainers.tasks import check_tasks
from gem_verl.rows import AGENT_NAME, task_of

ESTIMATORS = TRAINER_NAMES
"""Maps values of verl's ``algorithm.adv_estimator`` to names of estimators in gem_core."""

TRAINER_MODES = {
    "gem_sync": "sync",
    "gem_colocate_async": "colocate_async",
    "gem_separate_async": "separate_async",
}
"""Maps GEM's values of ``trainer.v1.trainer_mode`` to the modes of verl that they extend."""
UNSUPPORTED = Path(__file__).with_name("unsupported.json")
MANAGER = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
V1_ONLY = (
    "verl's v1 trainer only (python -m verl.trainer.main_ppo with trainer.use_v1=True); for training that "
    "overlaps with generation use trainer.v1.trainer_mode=gem_separate_async"
)


def read_options(config: Any) -> RowOptions:
    """Read the section ``gem`` of a whole verl config.

    Raises:
        ConfigError: An option is unknown, or its value is not allowed.
    """
    return RowOptions.read(dict(config.get("gem") or {}))


def read_algorithm(algorithm: Any, name: str) -> EstimatorChoice:
    """Read an estimator from verl's section ``algorithm``, with the options in ``algorithm.<name>``.

    Args:
        algorithm: verl's section ``algorithm``. None means the defaults.
        name: Key of `ESTIMATORS`.

    Raises:
        ConfigError: An option is unknown, or contradicts the rest of `algorithm`.
    """
    choice = read_estimator(
        name,
        option_at(algorithm, name, {}),
        gamma=option_at(algorithm, "gamma", 1.0),
        prefix=f"algorithm.{name}.",
        gamma_option="algorithm.gamma",
        supplies=("group_ids", "lengths"),
    )
    sections = ["gem_grpo"] * (name == "gem_grpo")
    if not option_at(algorithm, "rollout_correction.bypass_mode"):
        sections.append("estimator")
    reject_changed(algorithm, read_refusals(UNSUPPORTED, *sections, estimator=name), prefix="algorithm.")
    if _filters(algorithm):
        choice.check_collected("algorithm.filter_groups drops groups", f"+algorithm.{name}.scope=trained")
    return choice


def check_config(config: Any) -> RowOptions:
    """Reject unsupported options before any engine starts.

    Args:
        config: The whole verl config.

    Returns:
        The section ``gem``.

    Raises:
        ConfigError: An option is not supported; the message names it and the reason.
    """
    reject_changed(config, read_refusals(UNSUPPORTED, "program", v1_only=V1_ONLY))
    options, name = read_options(config), str(config.algorithm.adv_estimator)
    if name in ESTIMATORS:
        choice = read_algorithm(config.algorithm, name)
        choice.check_group_size("actor_rollout_ref.rollout.n", config.actor_rollout_ref.rollout.n)
        _check_scope(config, choice)
    else:
        from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

        if name not in ADV_ESTIMATOR_REGISTRY:
            raise unknown_estimator("algorithm.adv_estimator", name, [*ADV_ESTIMATOR_REGISTRY])
    if options.row_kind == "turn":
        reject_changed(config, read_refusals(UNSUPPORTED, "turn rows"))
        if name not in ESTIMATORS:
            raise ConfigError(
                f"algorithm.adv_estimator={name} would treat each turn as an episode; with turn rows use one "
                f"of {', '.join(ESTIMATORS)}"
            )
        if _filters(config.algorithm) == "reward":
            raise ConfigError(
                "algorithm.filter_groups.metric=reward compares the rows of a prompt, which are single turns "
                "here; algorithm.filter_groups.metric=gem/return compares its episodes"
            )
    return options


def _check_scope(config: Any, choice: EstimatorChoice) -> None:
    """Reject asynchronous modes in which the estimator cannot see all turns that were collected for a step.

    Raises:
        ConfigError: The scope of the statistics is "collected", and verl drops or divides the turns.
    """
    mode = config.trainer.v1.trainer_mode.removeprefix("gem_")
    if mode == "sync" or choice.scope == "trained":
        return
    sampler = "trainer.v1.sampler.max_off_policy"
    if option_at(config, f"{sampler}_threshold") and option_at(config, f"{sampler}_strategy") == "drop":
        remedy = f"{sampler}_strategy=wait keeps them, and +algorithm.{choice.name}.scope=trained"
        choice.check_collected(f"{sampler}_strategy=drop drops old groups", remedy)
    if mode == "separate_async":
        reject_changed(config, read_refusals(UNSUPPORTED, "statistics of a step", estimator=choice.name))


def check_data(config: Any, rows: Iterable[Mapping[str, Any]], *, for_training: bool = False) -> None:
    """Reject rows and options with which the agent loop ``gem`` cannot play; builds each environment once.

    Args:
        config: The whole verl config.
        rows: Rows of a data set, or of a batch; those of other agent loops are ignored.
        for_training: Whether to reject rows whose item is for evaluation only.

    Raises:
        GemError: A row names no environment, or its environment cannot be built or shown.
        ConfigError: A reward model shares the GPUs of the actor, so it would score every row; or another
            option is not supported.
    """
    default = config.actor_rollout_ref.rollout.agent.default_agent_loop
    played = (("", task_of(row)) for row in rows if (row.get("agent_name") or default) == AGENT_NAME)
    no_images = functools.partial(images_unsupported, config)
    if not check_tasks(played, read_options(config).wrappers, no_images=no_images, for_training=for_training):
        return
    sections = ["played"]
    if not config.reward.reward_model.enable_resource_pool:
        sections.append("reward model of the actor's GPUs")
    reject_changed(config, read_refusals(UNSUPPORTED, *sections))


def images_unsupported(config: Any) -> str | None:
    """Return why the model of a verl config cannot take images; None if it can.

    Args:
        config: The whole verl config.
    """
    rollout, model = config.actor_rollout_ref.rollout, config.actor_rollout_ref.model
    if rollout.name != "vllm":
        return (
            "images reach verl's vLLM servers only, not those of "
            f"actor_rollout_ref.rollout.name={rollout.name}"
        )
    from verl.utils import hf_processor
    from verl.utils.fs import copy_to_local

    folder = copy_to_local(model.path)
    trust = bool(option_at(model, "trust_remote_code"))
    if problem := processor_problem(model.path, lambda: hf_processor(folder, trust_remote_code=trust)):
        return problem
    # vLLM scales pixels with its own buffers `visual.input_norm`. Dummy weights fill them with noise that no
    # weights of the actor ever replace, so the engine would sample without seeing the images.
    if str(rollout.load_format).startswith("dummy"):
        return (
            f"actor_rollout_ref.rollout.load_format={rollout.load_format} leaves vLLM without the scale of "
            "their pixels; set actor_rollout_ref.rollout.load_format=auto"
        )
    return None


def _filters(algorithm: Any) -> str | None:
    """Return the metric by which groups are filtered; None if there is no filter."""
    enabled = option_at(algorithm, "filter_groups.enable")
    return str(option_at(algorithm, "filter_groups.metric")) if enabled else None
