"""GEM's options in a ROLL config, and the settings of ROLL that are rejected.

ROLL drops unknown top-level keys of a YAML, so GEM's options are in a section that ROLL keeps unchanged:
``custom_envs.gem``, next to the tags.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gem_core._util.messages import suggest
from gem_core.advantages.registry import TRAINER_NAMES
from gem_core.core import Split
from gem_core.errors import ConfigError
from gem_core.rollout import RolloutOptions, RowKind
from gem_core.tasks import count_items
from gem_core.trainers.estimators import EstimatorChoice, read_estimator, unknown_estimator
from gem_core.trainers.options import read_object
from gem_core.trainers.tasks import check_environment
from gem_roll.env import NO_IMAGES, GemEnv, read_env_type
from gem_roll.tasks import table_of

SECTION = "gem"
PREFIX = f"custom_envs.{SECTION}."
ADV_ESTIMATOR = "agentic_reinforce"
"""The estimator of ROLL that ours replaces, the only one that changes nothing else in a run."""

TRAJECTORY, STEP = "gem_roll.GemTrajEnvManager", "gem_roll.GemStepEnvManager"
ROLL_OWN = ("gem_roll.TrajEnvManager", "gem_roll.StepEnvManager")

_ROLL_OPTIONS = {
    "max_turns": "custom_envs.<tag>.max_steps",
    "max_tokens_per_turn": "custom_envs.<tag>.max_tokens_per_step",
    "system_prompt": "custom_envs.<tag>.agent_system_template",
    "wrappers": "custom_envs.<tag>.env_config.wrappers",
}


@dataclass(frozen=True)
class GemOptions(RolloutOptions):
    """The section ``custom_envs.gem`` of a ROLL config.

    Attributes:
        estimator: One of `TRAINER_NAMES`.
        estimator_options: Options of the estimator, ``{ddof: 1}``; ``rebn`` also has ``scope``.
        tasks: JSON Lines file of task rows for training. None makes them on the fly.
        val_tasks: JSON Lines file of task rows for validation. None makes them on the fly.
        template_kwargs: Variables for the chat template, ``{enable_thinking: false}``.
        modules: Modules to import first, such as modules that register your own environments.
    """

    estimator: str = "rebn"
    estimator_options: dict[str, Any] = field(default_factory=dict)
    tasks: str | None = None
    val_tasks: str | None = None
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    modules: tuple[str, ...] = ()

    @classmethod
    def from_config(cls, config: Any) -> GemOptions:
        """Read the section of a whole ROLL config, and import its modules.

        Raises:
            ConfigError: An option is unknown, or belongs elsewhere in ROLL's config.
        """
        section = dict(config.custom_envs.get(SECTION) or {})
        for name, roll_option in _ROLL_OPTIONS.items():
            if name in section:
                raise ConfigError(f"{PREFIX}{name}: ROLL has its own option for it, {roll_option}")
        for name in ("estimator_options", "template_kwargs"):
            section[name] = read_object(section.get(name), f"{PREFIX}{name}")
        section["modules"] = tuple(section.get("modules") or ())
        options = cls.read(section, PREFIX)
        if options.estimator not in TRAINER_NAMES:
            raise unknown_estimator(f"{PREFIX}estimator", options.estimator, tuple(TRAINER_NAMES))
        for module in options.modules:
            importlib.import_module(module)
        return options

    def choose_estimator(self, config: Any) -> EstimatorChoice:
        """Return the estimator with its options and the gamma of ROLL's `config`."""
        return read_estimator(
            self.estimator,
            self.estimator_options,
            gamma=config.gamma,
            prefix=f"{PREFIX}estimator_options.",
            supplies=("group_ids", "lengths"),
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
    _check_estimator(config, options.choose_estimator(config))
    for name in ("rollout_batch_size", "val_batch_size"):
        if _get(config, name) <= 0:
            raise ConfigError(f"{name}={_get(config, name)}: the tasks do not end, so a batch needs a size")
    managers = managers_of(config)
    if {"TrajEnvManager", "StepEnvManager"} <= _kinds(managers):
        raise ConfigError(
            f"custom_envs mixes episode rows and turn rows ({', '.join(sorted(managers))}); a run has one "
            "kind of rows"
        )
    if row_kind(config) == "turn" and config.force_disable_old_logprobs_recompute:
        raise ConfigError(
            "force_disable_old_logprobs_recompute=True: with turn rows a step has several updates, and PPO's "
            "ratio would be 1 in all of them; leave it out"
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
            _check_tasks(config, tag, "eval", options.val_tasks)
    return options


def row_kind(config: Any) -> RowKind:
    """Return whether the env managers of a ROLL config make episode rows or turn rows."""
    return "turn" if "StepEnvManager" in _kinds(managers_of(config)) else "episode"


def managers_of(config: Any) -> set[str]:
    """Return the dotted paths of the env managers of all tags."""
    sections = (config.train_env_manager, config.val_env_manager)
    return {_manager_of(_tag_section(config, tag)) for section in sections for tag in section.tags}


def _kinds(managers: set[str]) -> set[str]:
    """Return ROLL's class names of the managers."""
    return {name.rpartition(".")[2].removeprefix("Gem") for name in managers}


def _manager_of(section: Mapping[str, Any]) -> str:
    """Return the dotted path of a tag's env manager; empty for ROLL's default."""
    return str(section.get("env_manager_cls") or "")


def check_tag(config: Any, tag: str) -> None:
    """Build the environment of a tag, once per process, and reject settings that its manager would ignore.

    Raises:
        GemError: See `check_config`.
    """
    section, where = _tag_section(config, tag), f"custom_envs.{tag}"
    manager = _manager_of(section)
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
    for name in ("max_env_step_concurrent", "use_thread_lock"):
        if section.get(name):
            raise ConfigError(
                f"{where}.{name} has no effect on {manager}, which steps blocking environments in gem-core's "
                "own threads; leave it out"
            )
    if "tool_wrapper" in section:
        raise ConfigError(f"{where}.tool_wrapper has no effect on {manager}; use env_config.wrappers")


def _env_of(section: Mapping[str, Any], where: str) -> GemEnv | None:
    """Return the environment of a tag, not yet built; None if its manager is not from this package."""
    if _manager_of(section) not in (TRAJECTORY, STEP, *ROLL_OWN):
        return None
    env_id = read_env_type(section.get("env_type"), f"{where}.env_type")
    return GemEnv(env_id, **dict(section.get("env_config") or {}))


def _check_tasks(config: Any, tag: str, split: Split, path: str | None) -> None:
    """Reject an environment that has no items or too few items for `split`.

    Raises:
        GemError: See `gem_roll.tasks.table_of`.
    """
    section = _tag_section(config, tag)
    env = _env_of(section, f"custom_envs.{tag}")
    if env is None:
        return
    if _manager_of(section) in ROLL_OWN:
        count_items(env.source, split)
    else:
        managers = config.train_env_manager if split == "train" else config.val_env_manager
        table_of(config, managers, tag, env.source, split, path)


def _tag_section(config: Any, tag: str) -> Mapping[str, Any]:
    if tag == SECTION or tag not in config.custom_envs:
        known = [name for name in config.custom_envs if name != SECTION]
        raise ConfigError(
            f"tag {tag!r} is not in custom_envs.{suggest(tag, known)} There are: {', '.join(known)}"
        )
    section: Mapping[str, Any] = config.custom_envs[tag]
    return section


def _check_estimator(config: Any, choice: EstimatorChoice) -> None:
    if config.adv_estimator != ADV_ESTIMATOR:
        raise ConfigError(
            f"adv_estimator={config.adv_estimator}: write adv_estimator: {ADV_ESTIMATOR}, which "
            f"{choice.name} replaces; {PREFIX}estimator chooses among gem-core's"
        )
    if config.step_reward_gamma not in (_default(config, "step_reward_gamma"), config.gamma):
        raise ConfigError(
            f"step_reward_gamma={config.step_reward_gamma} has no effect here; gamma is the discount per "
            "turn for episode rows and turn rows"
        )
    section = config.train_env_manager
    choice.check_group_size("train_env_manager.group_size", section.group_size)
    for name, reason in _unsupported(config, choice.name):
        raise ConfigError(f"{name}={_get(config, name)} {reason}")
    remedy = f"{PREFIX}estimator_options: {{scope: trained}}"
    if section.group_filter_cls != _default(section, "group_filter_cls"):
        choice.check_collected("train_env_manager.group_filter_cls drops groups", remedy)
    if section.group_size_redundancy:
        choice.check_collected(
            "train_env_manager.group_size_redundancy drops the slowest episodes of a group", remedy
        )


def _unsupported(config: Any, estimator: str) -> Iterator[tuple[str, str]]:
    """Yield settings that would change the advantages or have no effect on them, each with advice."""
    no_effect = f"has no effect on {estimator}; leave it out"
    if config.whiten_advantages:
        yield "whiten_advantages", f"would change what {estimator} computed; set it to false"
    if config.whiten_rewards:
        yield "whiten_rewards", no_effect
    if config.reward_clip:
        yield "reward_clip", f"{no_effect}, or clip in a wrapper of the environment"
    if config.add_token_level_kl:
        yield (
            "add_token_level_kl",
            "needs the reference model's log-probs, which ROLL computes after "
            f"{estimator}; use use_kl_loss and kl_loss_coef",
        )
    for name in ("reward_normalization.norm_mean_type", "reward_normalization.norm_std_type"):
        if _get(config, name) is not None:
            yield name, no_effect
    for name in ("use_opd", "is_pure_opd"):
        if _get(config, name):
            yield name, f"replaces {estimator} with a distillation term"


def _default(config: Any, name: str) -> Any:
    return type(config).__dataclass_fields__[name].default


def _get(config: Any, path: str) -> Any:
    """Return an attribute by its dotted path."""
    for name in path.split("."):
        config = getattr(config, name)
    return config
