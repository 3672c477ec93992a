"""GEM's options in a ROLL config, and the settings of ROLL that are rejected.

ROLL drops unknown top-level keys of a YAML, so GEM's options are in a section that ROLL keeps unchanged:
``custom_envs.gem``, next to the tags.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gem_core._util.checks import check_int
from gem_core.advantages.registry import TRAINER_NAMES
from gem_core.core import Split
from gem_core.errors import ConfigError
from gem_core.tasks import count_items
from gem_core.trainers.estimators import EstimatorChoice, read_estimator, unknown_estimator
from gem_core.trainers.options import PluginOptions, option_at, read_refusals, reject_changed
from gem_core.trainers.tasks import check_environment
from gem_roll.env import NO_IMAGES, GemEnv, read_env_type
from gem_roll.kinds import ROLL_OWN, SECTION, STEP, TRAJECTORY, manager_of, managers_of, rows_of, tag_section
from gem_roll.tasks import table_of

PREFIX = f"custom_envs.{SECTION}."
UNSUPPORTED = Path(__file__).with_name("unsupported.json")


@dataclass(frozen=True)
class GemOptions(PluginOptions):
    """The section ``custom_envs.gem`` of a ROLL config.

    Attributes:
        estimator: One of `TRAINER_NAMES`.
        estimator_options: Options of the estimator, ``{ddof: 1}``; ``rebn`` also has ``scope``.
        tasks: JSON Lines file of task rows for training. None generates them on the fly.
        eval_tasks: JSON Lines file of task rows for evaluation. None generates them on the fly.
    """

    estimator: str = "rebn"
    estimator_options: dict[str, Any] = field(default_factory=dict)
    tasks: str | None = None
    eval_tasks: str | None = None

    @classmethod
    def from_config(cls, config: Any) -> GemOptions:
        """Read the section of a whole ROLL config, and import its modules.

        Raises:
            ConfigError: An option is unknown, or belongs elsewhere in ROLL's config.
        """
        section = config.custom_envs.get(SECTION) or {}
        reject_changed(section, read_refusals(UNSUPPORTED, "section gem"), prefix=PREFIX)
        options = cls.read(section, PREFIX)
        if options.estimator not in TRAINER_NAMES:
            raise unknown_estimator(f"{PREFIX}estimator", options.estimator, tuple(TRAINER_NAMES))
        return options

    def choose_estimator(self, config: Any) -> EstimatorChoice:
        """Return the estimator with its options and the gamma of ROLL's `config`."""
        return read_estimator(
            self.estimator,
            self.estimator_options,
            gamma=config.gamma,
            prefix=f"{PREFIX}estimator_options.",
        )


def check_config(config: Any) -> GemOptions:
    """Reject unsupported settings before any model is loaded; build each environment once.

    Args:
        config: ROLL's `AgenticConfig`.

    Raises:
        ConfigError: A setting is not supported; the message names it and the reason.
        GemError: An environment cannot be built.
    """
    options = GemOptions.from_config(config)
    managers = managers_of(config)
    kinds = {rows_of(manager) for manager in managers.values()}
    choice = options.choose_estimator(config)
    sections = ["estimator"] if kinds == {"episode"} else ["estimator", "turn rows"]
    reject_changed(config, read_refusals(UNSUPPORTED, *sections, estimator=choice.name))
    _check_estimator(config, choice)
    for name in ("rollout_batch_size", "val_batch_size"):  # the tasks never end
        check_int(name, option_at(config, name), 1)
    if {"episode", "turn"} <= kinds:
        raise ConfigError(
            f"custom_envs mixes episode rows and turn rows ({', '.join(sorted(managers))}); a run can "
            "have only one kind of rows"
        )
    if TRAJECTORY in managers and options.context == "rebuild":
        raise ConfigError(
            f"{PREFIX}context=rebuild needs env_manager_cls: {STEP}; the turns of a rebuilt context share no "
            "prefix"
        )
    sides: list[tuple[Split, Any, str | None]] = [
        ("train", config.train_env_manager, options.tasks),
        ("eval", config.val_env_manager, options.eval_tasks),
    ]
    for split, section, path in sides:
        for tag in section.tags:
            env = check_tag(config, tag)
            if env is None or (split == "eval" and config.eval_steps <= 0):
                continue
            if manager_of(tag_section(config, tag)) in ROLL_OWN:
                count_items(env.source, split)  # rejects an environment without items for this split
            else:
                table_of(config, section, tag, env.source, split, path)
    return options


def check_tag(config: Any, tag: str) -> GemEnv | None:
    """Build the environment of a tag, once per process, and reject settings that its manager would ignore.

    Returns:
        The environment, not yet built; None if the manager is not from this package.

    Raises:
        GemError: See `check_config`.
    """
    section, where = tag_section(config, tag), f"custom_envs.{tag}"
    manager = manager_of(section)
    if manager not in (TRAJECTORY, STEP, *ROLL_OWN):
        return None
    env_id = read_env_type(section.get("env_type"), f"{where}.env_type")
    env = GemEnv(env_id, **dict(section.get("env_config") or {}))
    check_environment(env.source, env.wrappers, no_images=NO_IMAGES)
    if manager not in ROLL_OWN:
        ignored = read_refusals(UNSUPPORTED, "gem-core's env managers", manager=manager)
        reject_changed(section, ignored, prefix=f"{where}.")
    return env


def _check_estimator(config: Any, choice: EstimatorChoice) -> None:
    if config.step_reward_gamma not in (_default(config, "step_reward_gamma"), config.gamma):
        raise ConfigError(
            f"step_reward_gamma={config.step_reward_gamma}: has no effect here; gamma is the discount per "
            "turn for episode rows and turn rows"
        )
    section = config.train_env_manager
    choice.check_group_size("train_env_manager.group_size", section.group_size)
    remedy = f"{PREFIX}estimator_options: {{scope: trained}}"
    if section.group_filter_cls != _default(section, "group_filter_cls"):
        choice.check_collected("train_env_manager.group_filter_cls drops groups", remedy)
    if section.group_size_redundancy:
        choice.check_collected(
            "train_env_manager.group_size_redundancy drops the slowest episodes of a group", remedy
        )
    episodes = section.num_env_groups * section.group_size * section.max_traj_per_env
    if episodes > config.rollout_batch_size:
        choice.check_collected(
            f"train_env_manager plays {episodes} episodes for a rollout_batch_size of "
            f"{config.rollout_batch_size} (num_env_groups x group_size x max_traj_per_env), and ROLL drops "
            "the slowest episodes",
            f"make the two equal, or {remedy}",
        )


def _default(config: Any, name: str) -> Any:
    return type(config).__dataclass_fields__[name].default
