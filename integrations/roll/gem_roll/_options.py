"""GEM's options in a ROLL config, and the settings of ROLL that are rejected.

ROLL drops unknown top-level keys of a YAML, so GEM's options are in a section that ROLL keeps unchanged:
``custom_envs.gem``, next to the tags.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from gem_core._core import Split
from gem_core._util.checks import check_int, check_number, expected
from gem_core.advantages._declaration import Need
from gem_core.errors import ConfigError
from gem_core.rollout._options import read_object
from gem_core.tasks import EnvChoice
from gem_core.trainers import EstimatorChoice, EstimatorOptions, PluginOptions
from gem_core.trainers._options import option_at, reject_changed, reject_listed
from gem_core.trainers._tasks import check_environment
from gem_roll import _SUPPORTED
from gem_roll._env import NO_IMAGES, read_env_type
from gem_roll._kinds import OURS, SECTION, TRAJECTORY, has_several_rows, managers_of, tag_section
from gem_roll._tasks import check_every_row_is_played, table_of
from gem_roll._updates import AVERAGES, needs_old_logprobs

PREFIX = f"custom_envs.{SECTION}."
OTHER_MANAGERS: tuple[Need, ...] = ("group_ids", "lengths")
"""What the rows of other env managers supply to an estimator."""
PG_WORKER = "roll.pipeline.agentic.agentic_actor_pg_worker.ActorWorker"
"""ROLL's actor with other losses."""
STEP_REWARD_GAMMA = 0.95
"""ROLL's default for ``step_reward_gamma``, which our pipeline does not use."""


@dataclass(frozen=True)
class GemOptions(EstimatorOptions, PluginOptions):
    """The section ``custom_envs.gem`` of a ROLL config."""

    tasks: Annotated[
        str | None, "JSON Lines file of task rows for training; generated during the run if not set"
    ] = None
    eval_tasks: Annotated[
        str | None, "JSON Lines file of task rows for evaluation; generated during the run if not set"
    ] = None

    @classmethod
    def from_config(cls, config: Any) -> GemOptions:
        """Read the section of a whole ROLL config, and import its modules.

        Raises:
            ConfigError: An option is unknown, or belongs elsewhere in ROLL's config.
        """
        section = read_object(config.custom_envs.get(SECTION), PREFIX.removesuffix("."))
        reject_listed(_SUPPORTED, section, {"section gem": True}, prefix=PREFIX)
        return cls.read(section, PREFIX)

    def choose_estimator(self, config: Any, *, ours: bool = True) -> EstimatorChoice:
        """Return the estimator with its options and the gamma of ROLL's `config`.

        Args:
            config: ROLL's `AgenticConfig`.
            ours: Whether all env managers are gem_roll's.
        """
        supplies = None if ours else OTHER_MANAGERS
        return self.read_estimator(PREFIX, gamma=config.gamma, trainer=_SUPPORTED, supplies=supplies)

    def task_file(self, split: Split) -> str | None:
        """Return the file with the tasks of a split; None generates them on the fly."""
        return self.tasks if split == "train" else self.eval_tasks


def check_config(config: Any) -> GemOptions:
    """Reject unsupported settings before any model is loaded; build each environment once.

    Args:
        config: ROLL's `AgenticConfig`.

    Raises:
        ConfigError: A setting is not supported; the message names it and the reason.
        GemError: An environment cannot be built.
    """
    options = GemOptions.from_config(config)
    _check_numbers(config)
    managers = managers_of(config)
    several = {has_several_rows(manager) for manager in managers.values()}
    choice = options.choose_estimator(config, ours=managers.keys() <= set(OURS))
    _check_estimator(config, choice, several)
    if {False, True} <= several:
        raise ConfigError(
            f"custom_envs mixes env managers with one row and with several rows per episode "
            f"({', '.join(sorted(managers))}); a run can have only one kind"
        )
    reject_listed(_SUPPORTED, options, {"one row": TRAJECTORY in managers}, prefix=PREFIX)
    check_tags(config, options)
    return options


def _check_numbers(config: Any) -> None:
    """Check the numbers with which ROLL would fail in its first step, or train on nothing."""
    sampling = "actor_infer.generating_args"
    sizes = [f"{name}_env_manager.group_size" for name in ("train", "val")]
    sizes += ["rollout_batch_size", "val_batch_size"]  # the tasks never end
    sizes += [f"{name}.infer_batch_size" for name in ("actor_train", "reference")]
    for option in (*sizes, "max_steps", "ppo_epochs", "sequence_length", f"{sampling}.max_new_tokens"):
        check_int(option, option_at(config, option), 1)
    for option in (f"{sampling}.temperature", "pg_clip", "pg_clip_low", "pg_clip_high"):
        check_number(option, option_at(config, option), 0, optional=True)
    check_number("advantage_clip", config.advantage_clip, above=0, optional=True)
    if config.save_steps == 0:
        raise expected("save_steps", 0, "a whole number of at least 1")


def check_tags(config: Any, options: GemOptions) -> None:
    """Build the environments of the tags that our managers play, and read their tasks.

    Raises:
        GemError: See `check_tag` and `gem_roll._tasks.table_of`.
    """
    sections: dict[Split, Any] = {"train": config.train_env_manager, "eval": config.val_env_manager}
    for split, section in sections.items():
        if len(section.num_groups_partition) != len(section.tags) or min(section.num_groups_partition) < 0:
            raise expected(
                f"{section.name}_manager.num_groups_partition",
                section.num_groups_partition,
                f"one number of groups for each of the tags {', '.join(section.tags)}",
            )
        sources, path = [], options.task_file(split)
        for tag in section.tags:
            if tag_section(config, tag)["env_manager_cls"] in OURS:
                source, _ = check_tag(config, tag)
                sources.append(source.for_split(split))
                if split == "train" or config.eval_steps > 0:
                    table_of(config, section, tag, source, split, path)
        if path is not None and sources:
            check_every_row_is_played(path, sources)


def check_tag(config: Any, tag: str) -> tuple[EnvChoice, str]:
    """Build the environment of a tag once per process, and reject settings that our managers would ignore.

    Returns:
        The environment and its wrappers.

    Raises:
        GemError: See `check_config`.
    """
    section, where = tag_section(config, tag), f"custom_envs.{tag}"
    arguments = dict(section.get("env_config") or {})
    wrappers = arguments.pop("wrappers", "")
    for name in ("max_steps", "max_tokens_per_step"):
        check_int(f"{where}.{name}", section.get(name), 1, optional=True)
    if not isinstance(system := section.get("agent_system_template"), str | None):
        raise expected(f"{where}.agent_system_template", system, "a text", optional=True)
    source = EnvChoice(read_env_type(section.get("env_type"), f"{where}.env_type"), arguments)
    check_environment(source, wrappers, no_images=NO_IMAGES)
    ignored, manager = {"gem-core's env managers": True}, section["env_manager_cls"]
    reject_listed(_SUPPORTED, section, ignored, prefix=f"{where}.", manager=manager)
    return source, wrappers


def _check_estimator(config: Any, choice: EstimatorChoice, several: set[bool | None]) -> None:
    collected = choice.scope == "collected"
    sections = {
        "estimator": True,
        "several rows": several != {False},
        "mean over rows": several != {False} and config.loss_agg_mode in AVERAGES,
        "several updates": needs_old_logprobs(config),
        "all collected turns": collected,
    }
    reject_listed(_SUPPORTED, config, sections, estimator=choice.name)
    if several != {False}:
        _check_ratios(config)
    unused = "has no effect here; gamma is the discount per turn for rows of any kind"
    reject_changed(config, [("step_reward_gamma", (STEP_REWARD_GAMMA, config.gamma), unused)])
    section = config.train_env_manager
    choice.check_group_size("train_env_manager.group_size", section.group_size)
    episodes = section.num_env_groups * section.group_size * section.max_traj_per_env
    if episodes > config.rollout_batch_size:
        choice.check_collected(
            f"train_env_manager plays {episodes} episodes for a rollout_batch_size of "
            f"{config.rollout_batch_size} (num_env_groups x group_size x max_traj_per_env), and ROLL drops "
            "the slowest episodes",
            f"make the two equal, or {PREFIX}estimator_options: {{scope: trained}}",
        )


def _check_ratios(config: Any) -> None:
    """Reject losses and corrections that work on whole rows, of which an episode may have several."""
    if config.actor_train.worker_cls == PG_WORKER:
        raise ConfigError(
            f"actor_train.worker_cls={PG_WORKER}: its metrics count episodes, and fail in a batch with "
            "several rows of one; omit it, or use gem_roll.GemTrajEnvManager"
        )
    correction = config.train_infer_correction
    used = [("is_weight.weight_type", correction.is_weight.weight_type)] * bool(correction.is_weight.enabled)
    used += [(f"filters[{n}].agg_type", f.agg_type) for n, f in enumerate(correction.filters) if f.enabled]
    for option, kind in used:
        if kind in ("geometric", "sequence"):
            raise ConfigError(
                f"train_infer_correction.{option}={kind}: takes the ratio of a whole row, which would depend "
                "on the rows of an episode; with several rows per episode, use token or segment"
            )
