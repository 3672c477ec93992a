"""GEM's options in a ROLL config, and the settings of ROLL that are rejected.

ROLL drops unknown top-level keys of a YAML, so GEM's options are in a section that ROLL keeps unchanged:
``custom_envs.gem``, next to the tags.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gem_core.advantages.registry import TRAINER_NAMES
from gem_core.core import Split
from gem_core.errors import ConfigError
from gem_core.tasks import count_items
from gem_core.trainers.estimators import EstimatorChoice, read_estimator, unknown_estimator
from gem_core.trainers.options import PluginOptions, option_at, reject_changed
from gem_core.trainers.tasks import check_environment
from gem_roll.env import NO_IMAGES, GemEnv, read_env_type
from gem_roll.kinds import ROLL_OWN, SECTION, STEP, TRAJECTORY, manager_of, managers_of, rows_of, tag_section
from gem_roll.tasks import table_of

PREFIX = f"custom_envs.{SECTION}."
ADV_ESTIMATOR = "agentic_reinforce"
"""ROLL's estimator that gem_core's replaces, the only one that changes nothing else in a run."""


_ROLL_OPTIONS = {
    "max_turns": "custom_envs.<tag>.max_steps",
    "max_tokens_per_turn": "custom_envs.<tag>.max_tokens_per_step",
    "system_prompt": "custom_envs.<tag>.agent_system_template",
    "wrappers": "custom_envs.<tag>.env_config.wrappers",
    "max_concurrent_envs": "train_env_manager.max_env_num_per_worker",
}


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
        for name, roll_option in _ROLL_OPTIONS.items():
            if name in section:
                raise ConfigError(f"{PREFIX}{name}: set ROLL's own option instead, {roll_option}")
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
    _check_estimator(config, options.choose_estimator(config))
    for name in ("rollout_batch_size", "val_batch_size"):
        if option_at(config, name) <= 0:
            raise ConfigError(
                f"{name}={option_at(config, name)}: the tasks never end, so a batch needs a size"
            )
    if {"episode", "turn"} <= kinds:
        raise ConfigError(
            f"custom_envs mixes episode rows and turn rows ({', '.join(sorted(managers))}); a run can "
            "have only one kind of rows"
        )
    if kinds != {"episode"}:
        reject_changed(
            config,
            [
                (
                    "force_disable_old_logprobs_recompute",
                    False,
                    "with turn rows a step has several updates, and PPO's ratio would be 1 in all of them; "
                    "leave it out",
                ),
                (
                    "actor_train.training_args.lr_scheduler_type",
                    ("constant", "constant_with_warmup"),
                    "ROLL counts its length in episodes, but every turn is a row, so it would end too early; "
                    "set it to constant or constant_with_warmup",
                ),
            ],
        )
    if TRAJECTORY in managers and options.context == "rebuild":
        raise ConfigError(
            f"{PREFIX}context=rebuild needs env_manager_cls: {STEP}; the turns of a rebuilt context share no "
            "prefix"
        )
    for tag in config.train_env_manager.tags:
        check_tag(config, tag)
        _check_tasks(config, tag, "train", options.tasks)
    for tag in config.val_env_manager.tags:
        check_tag(config, tag)
        if config.eval_steps > 0:
            _check_tasks(config, tag, "eval", options.eval_tasks)
    return options


def check_tag(config: Any, tag: str) -> None:
    """Build the environment of a tag, once per process, and reject settings that its manager would ignore.

    Raises:
        GemError: See `check_config`.
    """
    section, where = tag_section(config, tag), f"custom_envs.{tag}"
    manager = manager_of(section)
    env = _env_of(section, where)
    if env is None:
        return
    check_environment(env.source, env.wrappers, no_images=NO_IMAGES)
    if manager in ROLL_OWN:
        return
    if str(section.get("agent_template", "{observation}")).strip() != "{observation}":
        raise ConfigError(
            f"{where}.agent_template: {manager} shows observations unchanged; leave it at '{{observation}}' "
            "and use env_config.wrappers"
        )
    threads = f"has no effect on {manager}, which steps blocking environments in gem-core's own threads"
    reject_changed(
        section,
        [
            ("max_env_step_concurrent", 0, f"{threads}; leave it out"),
            ("use_thread_lock", False, f"{threads}; leave it out"),
            ("tool_wrapper", (), f"has no effect on {manager}; use env_config.wrappers"),
        ],
        prefix=f"{where}.",
    )


def _env_of(section: Mapping[str, Any], where: str) -> GemEnv | None:
    """Return the environment of a tag, not yet built; None if its manager is not from this package."""
    if manager_of(section) not in (TRAJECTORY, STEP, *ROLL_OWN):
        return None
    env_id = read_env_type(section.get("env_type"), f"{where}.env_type")
    return GemEnv(env_id, **dict(section.get("env_config") or {}))


def _check_tasks(config: Any, tag: str, split: Split, path: str | None) -> None:
    """Reject an environment that has no items or too few items for `split`.

    Raises:
        GemError: See `gem_roll.tasks.table_of`.
    """
    section = tag_section(config, tag)
    env = _env_of(section, f"custom_envs.{tag}")
    if env is None:
        return
    if manager_of(section) in ROLL_OWN:
        count_items(env.source, split)
    else:
        managers = config.train_env_manager if split == "train" else config.val_env_manager
        table_of(config, managers, tag, env.source, split, path)


def _check_estimator(config: Any, choice: EstimatorChoice) -> None:
    no_effect = f"has no effect on {choice.name}; leave it out"
    distills = f"replaces {choice.name} with a distillation term; leave it out"
    reject_changed(
        config,
        [
            (
                "adv_estimator",
                ADV_ESTIMATOR,
                f"write adv_estimator: {ADV_ESTIMATOR}, which {choice.name} replaces; {PREFIX}estimator "
                "chooses among gem-core's",
            ),
            (
                "step_reward_gamma",
                (_default(config, "step_reward_gamma"), config.gamma),
                "has no effect here; gamma is the discount per turn for episode rows and turn rows",
            ),
            ("whiten_advantages", False, f"would change what {choice.name} computed; set it to false"),
            ("whiten_rewards", False, no_effect),
            ("reward_clip", 0, f"{no_effect}, or clip in a wrapper of the environment"),
            (
                "add_token_level_kl",
                False,
                "needs the reference model's log-probs, which ROLL computes after "
                f"{choice.name}; use use_kl_loss and kl_loss_coef",
            ),
            ("reward_normalization.norm_mean_type", (), no_effect),
            ("reward_normalization.norm_std_type", (), no_effect),
            ("use_opd", False, distills),
            ("is_pure_opd", False, distills),
            (
                "critic_warmup",
                0,
                "would skip the updates of the first steps, and there is no critic to train; leave it out",
            ),
        ],
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
