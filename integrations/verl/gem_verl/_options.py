"""Options of GEM in a verl config, and the verl options that are incompatible with them.

Options of the rollout are in a separate section, ``+gem.<option>=<value>``; options of an estimator are under
its name, ``+algorithm.rebn.ddof=1``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from gem_chat import EpisodePlayer
from gem_chat._vision import processor_problem
from gem_core._util.checks import check_names
from gem_core.advantages import get_estimator, list_estimators
from gem_core.advantages._declaration import Need
from gem_core.advantages._registry import names_in_trainer
from gem_core.rollout._options import read_object
from gem_core.trainers import EstimatorChoice, RowOptions, read_estimator
from gem_core.trainers._estimators import unknown_estimator
from gem_core.trainers._options import option_at, reject_listed
from gem_core.trainers._tasks import check_tasks
from gem_verl import _SUPPORTED
from gem_verl._rows import AGENT_NAME, agent_of, task_of

TRAINER_MODES = {f"gem_{mode}": mode for mode in ("sync", "colocate_async", "separate_async")}
"""Maps GEM's values of ``trainer.v1.trainer_mode`` to the modes of verl that they extend."""
MANAGER = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
PLAIN_SUPPLIES: tuple[Need, ...] = ("group_ids", "lengths")
"""What verl's own trainer modes supply to an estimator: they know rewards, mask, and groups only."""
V1_ONLY = (
    "verl's v1 trainer only (python -m verl.trainer.main_ppo with trainer.use_v1=True); for training that "
    "overlaps with generation use trainer.v1.trainer_mode=gem_separate_async"
)


def read_options(config: Any) -> RowOptions:
    """Read the section ``gem`` of a whole verl config.

    Raises:
        ConfigError: An option is unknown, or its value is not allowed.
    """
    return RowOptions.read(config.get("gem"))


def estimator_names() -> dict[str, str]:
    """Map the names in ``algorithm.adv_estimator`` of gem_core's estimators to their own names."""
    return names_in_trainer(_SUPPORTED.own_estimators)


def read_algorithm(algorithm: Any, name: str, *, own_mode: bool = True) -> EstimatorChoice:
    """Read an estimator from verl's section ``algorithm``, with the options in ``algorithm.<name>``.

    Args:
        algorithm: verl's section ``algorithm``. None means the defaults.
        name: Key of `estimator_names`.
        own_mode: Whether one of `TRAINER_MODES` trains.

    Raises:
        ConfigError: An option is unknown, or contradicts the rest of `algorithm`.
    """
    critic = estimator_names().get(name) == "gae"
    choice = read_estimator(
        name,
        ({"lam": option_at(algorithm, "lam", 1.0)} if critic else {})
        | read_object(option_at(algorithm, name), f"algorithm.{name}"),
        gamma=option_at(algorithm, "gamma", 1.0),
        prefix=f"algorithm.{name}.",
        gamma_option="algorithm.gamma",
        trainer=_SUPPORTED,
        supplies=None if own_mode else PLAIN_SUPPLIES,
    )
    bypass = option_at(algorithm, "rollout_correction.bypass_mode")
    sections = {
        "components of rewards": "reward_components" in choice.needs,
        "gem_grpo": choice.estimator.name == "grpo",
        "all collected turns": choice.scope == "collected",
        "any estimator": True,
        "bypass mode": bypass,
        "estimator": not bypass,
    }
    reject_listed(_SUPPORTED, algorithm, sections, prefix="algorithm.", estimator=name)
    return choice


def chosen_estimator(config: Any) -> EstimatorChoice | None:
    """Return gem_core's estimator of a whole verl config; None if it is one of verl's own."""
    name = str(config.algorithm.adv_estimator)
    return read_algorithm(config.algorithm, name) if name in estimator_names() else None


def needs_of(config: Any) -> tuple[Need, ...]:
    """Return what the estimator of a whole verl config needs; nothing if it is one of verl's own."""
    choice = chosen_estimator(config)
    return () if choice is None else choice.needs


def check_config(config: Any) -> RowOptions:
    """Reject unsupported options before any engine starts.

    Args:
        config: The whole verl config.

    Returns:
        The section ``gem``.

    Raises:
        ConfigError: An option is not supported; the message names it and the reason.
    """
    reject_listed(_SUPPORTED, config, {"program": True}, v1_only=V1_ONLY)
    from gem_verl._values import check_sizes, check_values

    check_values(config)
    options, name = read_options(config), str(config.algorithm.adv_estimator)
    options.template_variables(config.data.get("apply_chat_template_kwargs"))
    names = estimator_names()
    if name in names:
        from verl.trainer.config import AlgoConfig

        sections_given = [key for key, value in config.algorithm.items() if isinstance(value, Mapping)]
        check_names(
            sections_given, [*names, *(each.name for each in fields(AlgoConfig))], prefix="algorithm."
        )
        from gem_verl._losses import check_loss, row_average

        critic = "values" in get_estimator(names[name]).needs
        without = critic and not config.critic.enable
        reject_listed(_SUPPORTED, config, {"gem_gae": critic, "gem_gae without a critic": without})
        own_mode = config.trainer.v1.trainer_mode in TRAINER_MODES
        choice = read_algorithm(config.algorithm, name, own_mode=own_mode)
        choice.check_group_size("actor_rollout_ref.rollout.n", config.actor_rollout_ref.rollout.n)
        check_loss(config, choice, options.rows)
        if options.has_several_rows:
            reject_listed(_SUPPORTED, config, {"rows that contexts need": options.rows == "auto"})
            row_average(config, ratios=options.rows == "auto")
        correction = option_at(config.algorithm, "rollout_correction", {})
        corrects = correction.get("bypass_mode") or correction.get("rollout_is")
        reject_listed(_SUPPORTED, config, {"log-probs of the engine": corrects})
        mode = config.trainer.v1.trainer_mode.removeprefix("gem_")
        if choice.scope == "collected" and mode != "sync":
            limit = option_at(config, "trainer.v1.sampler.max_off_policy_threshold")
            sections = {"old groups": limit, "statistics of a step": mode == "separate_async"}
            reject_listed(_SUPPORTED, config, sections, estimator=name)
    else:
        from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

        if name not in ADV_ESTIMATOR_REGISTRY:
            raise unknown_estimator("algorithm.adv_estimator", name, [*ADV_ESTIMATOR_REGISTRY])
    if not options.has_several_rows:
        check_sizes(config)
    else:
        groups = option_at(config.algorithm, "filter_groups", {})
        by_turn = [e for e in map(get_estimator, list_estimators()) if "values" not in e.needs]
        episodes_only = names.get(name) not in [estimator.name for estimator in by_turn]
        sections = {"several rows": True, "estimators of episodes": episodes_only}
        sections["filters of rows"] = groups.get("enable") and groups.get("metric") == "reward"
        reject_listed(_SUPPORTED, config, sections, estimators=", ".join(e.trainer_name for e in by_turn))
    return options


def check_chat(config: Any, tokenizer: Any, processor: Any) -> None:
    """Reject options of the prompts that do not fit the model's chat template, as the agent loop would.

    Raises:
        GemError: An option or the chat template is not supported.
    """
    options = replace(read_options(config), traces=None)
    kwargs = config.data.get("apply_chat_template_kwargs")
    EpisodePlayer(options, tokenizer, processor=processor, template_kwargs=kwargs)


def check_data(config: Any, rows: Iterable[Mapping[str, Any]], *, for_training: bool = False) -> None:
    """Reject rows and options that the agent loop ``gem`` does not support; build each environment once.

    Args:
        config: The whole verl config.
        rows: Rows of a dataset, or of a batch; those of other agent loops are ignored.
        for_training: Whether to reject rows whose item is for evaluation only.

    Raises:
        GemError: A row names no environment, or its environment cannot be built or shown.
        ConfigError: A reward model shares the GPUs of the actor, so it would score every row; or another
            option is not supported.
    """
    default = config.actor_rollout_ref.rollout.agent.default_agent_loop
    played = (("", task_of(row)) for row in rows if agent_of(row.get("agent_name"), default) == AGENT_NAME)
    wrappers = read_options(config).wrappers
    if check_tasks(played, wrappers, no_images=lambda: images_unsupported(config), for_training=for_training):
        shares_gpus = not config.reward.reward_model.enable_resource_pool
        reject_listed(_SUPPORTED, config, {"played": True, "reward model of the actor's GPUs": shares_gpus})


def images_unsupported(config: Any) -> str | None:
    """Return why the model of a verl config cannot take images; None if it can.

    Args:
        config: The whole verl config.
    """
    rollout, model = config.actor_rollout_ref.rollout, config.actor_rollout_ref.model
    section = "actor_rollout_ref.rollout"
    if rollout.name != "vllm":
        return f"images reach verl's vLLM servers only, not those of {section}.name={rollout.name}"
    from verl.utils import hf_processor
    from verl.utils.fs import copy_to_local

    folder = copy_to_local(model.path)
    trust = bool(option_at(model, "trust_remote_code"))
    problem = processor_problem(model.path, lambda: hf_processor(folder, trust_remote_code=trust))
    # vLLM scales pixels with its own buffers `visual.input_norm`. Dummy weights fill them with noise that no
    # weights of the actor ever replace, so the engine would sample without seeing the images.
    if problem is None and str(rollout.load_format).startswith("dummy"):
        return f"dummy weights leave vLLM without the scale of their pixels; set {section}.load_format=auto"
    return problem
