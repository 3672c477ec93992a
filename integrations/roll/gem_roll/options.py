"""What a ROLL config says about GEM, and what it must not say.

ROLL drops top-level keys of a YAML that it does not know, so GEM's options stand where it keeps all:
under ``custom_envs.gem``, beside the tags.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gem_core._util.messages import suggest
from gem_core.advantages.registry import TRAINER_NAMES, get_estimator
from gem_core.core import Split
from gem_core.errors import ConfigError
from gem_core.rollout import Context, RolloutOptions
from gem_core.tasks import EnvChoice, count_items
from gem_roll.env import GemEnv, plain, read_env_type
from gem_roll.tasks import table_of

SECTION = "gem"
PREFIX = f"custom_envs.{SECTION}."
ADV_ESTIMATOR = "agentic_reinforce"
"""What ROLL computes before it is replaced: the one estimator that changes nothing else of a run."""

TRAJECTORY, STEP = "gem_roll.GemTrajEnvManager", "gem_roll.GemStepEnvManager"
ROLL_OWN = ("gem_roll.TrajEnvManager", "gem_roll.StepEnvManager")

_ROLL_WORDS = {
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
        estimator_options: Its options, ``{ddof: 1}``; for ``rebn`` also ``scope``.
        tasks: JSON Lines of task rows for training; None makes them on the fly.
        val_tasks: The same for validation.
        template_kwargs: Variables for the chat template, ``{enable_thinking: false}``.
        modules: Modules to import first, which register environments of your own.
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
            ConfigError: An unknown option, or one that ROLL has a word of its own for.
        """
        given = dict(config.custom_envs.get(SECTION) or {})
        for name, word in _ROLL_WORDS.items():
            if name in given:
                raise ConfigError(f"{PREFIX}{name}: ROLL has a word of its own for it, {word}")
        for name in ("estimator_options", "template_kwargs"):
            given[name] = dict(given.get(name) or {})
        given["modules"] = tuple(given.get("modules") or ())
        options = cls.read(given, PREFIX)
        if options.estimator not in TRAINER_NAMES:
            close = suggest(options.estimator, TRAINER_NAMES)
            raise ConfigError(
                f"{PREFIX}estimator={options.estimator} is no estimator.{close} "
                f"There are: {', '.join(TRAINER_NAMES)}"
            )
        for module in options.modules:
            importlib.import_module(module)
        return options

    def make_context_with(self, tokenizer: Any, *, system_prompt: str | None) -> Context:
        """The context of an env manager, whose system prompt stands in the section of its tag."""
        return replace(self, system_prompt=system_prompt).make_context(tokenizer, self.template_kwargs)

    @property
    def checked_estimator_options(self) -> dict[str, Any]:
        """Keyword arguments of the estimator, checked; without ``scope``, which is `check_config`'s."""
        options = dict(self.estimator_options)
        if self.estimator == "rebn":
            options.pop("scope", None)
        get_estimator(TRAINER_NAMES[self.estimator]).check_options(
            options, prefix=f"{PREFIX}estimator_options."
        )
        return options


def check_config(config: Any) -> GemOptions:
    """Refuse what cannot be honoured, before any model is loaded; build each environment once.

    Args:
        config: ROLL's `AgenticConfig`.

    Raises:
        ConfigError: Says what and why.
        GemError: An environment cannot be built.
    """
    options = GemOptions.from_config(config)
    _check_estimator(config, options)
    _check_batch(config, options)
    managers = managers_of(config)
    if {"TrajEnvManager", "StepEnvManager"} <= _layouts(managers):
        raise ConfigError(
            "custom_envs mixes rows of episodes and rows of turns "
            f"({', '.join(sorted(managers))}); one run has one layout"
        )
    if row_per_turn(config) and config.force_disable_old_logprobs_recompute:
        raise ConfigError(
            "force_disable_old_logprobs_recompute=True: with rows of turns a step has several updates, and "
            "PPO's ratio would be 1 in all of them; leave it out"
        )
    if TRAJECTORY in managers and options.context == "rebuild":
        raise ConfigError(
            f"{PREFIX}context=rebuild needs env_manager_cls: {STEP}; the turns of a rebuilt context share "
            "no prefix"
        )
    for tag in config.train_env_manager.tags:
        check_tag(config, tag)
        _check_tasks(config, tag, "train", options.tasks)
    for tag in config.val_env_manager.tags:
        check_tag(config, tag)
        if config.eval_steps > 0:
            _check_tasks(config, tag, "eval", options.val_tasks)
    return options


def row_per_turn(config: Any) -> bool:
    """Whether the env managers of a ROLL config make each turn a row."""
    return "StepEnvManager" in _layouts(managers_of(config))


def managers_of(config: Any) -> set[str]:
    """Dotted paths of the env managers of all tags, as `manager_of` has them."""
    sections = (config.train_env_manager, config.val_env_manager)
    return {manager_of(config, tag) for section in sections for tag in section.tags}


def _layouts(managers: set[str]) -> set[str]:
    """What ROLL calls their classes."""
    return {name.rpartition(".")[2].removeprefix("Gem") for name in managers}


def manager_of(config: Any, tag: str) -> str:
    """Dotted path of the env manager of a tag; empty where ROLL's default is meant."""
    return str(_section_of(config, tag).get("env_manager_cls") or "")


def check_tag(config: Any, tag: str) -> None:
    """Build the environment of a tag, once per process, and refuse what its manager would not heed.

    Raises:
        GemError: As `check_config`.
    """
    section, where = _section_of(config, tag), f"custom_envs.{tag}"
    manager = manager_of(config, tag)
    if manager not in (TRAJECTORY, STEP, *ROLL_OWN):
        return
    env_id = read_env_type(section.get("env_type"), f"{where}.env_type")
    _check_buildable(GemEnv(env_id, **dict(section.get("env_config") or {})))
    if manager in ROLL_OWN:
        return
    if str(section.get("agent_template", "{observation}")).strip() != "{observation}":
        raise ConfigError(
            f"{where}.agent_template: {manager} shows an observation as it is; leave it at "
            "'{observation}' and use env_config.wrappers"
        )
    for name in ("max_env_step_concurrent", "use_thread_lock"):
        if section.get(name):
            raise ConfigError(
                f"{where}.{name} has no effect on {manager}, which steps blocking environments in gem-core's "
                "own threads; leave it out"
            )
    if "tool_wrapper" in section:
        raise ConfigError(f"{where}.tool_wrapper has no effect on {manager}; use env_config.wrappers")


def _check_tasks(config: Any, tag: str, split: Split, path: str | None) -> None:
    """Refuse an environment that has no item for `split`, or too few.

    Raises:
        GemError: As `gem_roll.tasks.table_of`.
    """
    section, manager = _section_of(config, tag), manager_of(config, tag)
    if manager not in (TRAJECTORY, STEP, *ROLL_OWN):
        return
    arguments = {
        name: value for name, value in (section.get("env_config") or {}).items() if name != "wrappers"
    }
    source = EnvChoice(
        read_env_type(section.get("env_type"), f"custom_envs.{tag}.env_type"), plain(arguments)
    )
    if manager in ROLL_OWN:
        count_items(source, split)
    else:
        managers = config.train_env_manager if split == "train" else config.val_env_manager
        table_of(config, managers, tag, source, split, path)


_tried: set[tuple[str, str]] = set()
"""Environments, with their wrappers, that this process has built once."""
_trying = threading.Lock()


def _check_buildable(env: GemEnv) -> None:
    """Build an environment, unless this process has built one like it: env managers are made in threads."""
    kind = (env.source.label, env.wrappers)
    with _trying:
        if kind not in _tried:
            env.build()
            env.close()
            _tried.add(kind)


def _section_of(config: Any, tag: str) -> Mapping[str, Any]:
    if tag == SECTION or tag not in config.custom_envs:
        known = [name for name in config.custom_envs if name != SECTION]
        raise ConfigError(
            f"tag {tag!r} is not in custom_envs.{suggest(tag, known)} There are: {', '.join(known)}"
        )
    section: Mapping[str, Any] = config.custom_envs[tag]
    return section


def _check_estimator(config: Any, options: GemOptions) -> None:
    if config.adv_estimator != ADV_ESTIMATOR:
        raise ConfigError(
            f"adv_estimator={config.adv_estimator}: write adv_estimator: {ADV_ESTIMATOR}, what ROLL computes "
            f"before {options.estimator} takes its place; {PREFIX}estimator chooses among gem-core's"
        )
    _ = options.checked_estimator_options
    if not 0 <= float(config.gamma) <= 1:
        raise ConfigError(f"gamma={config.gamma}: expected a discount per turn from 0 to 1")
    if config.step_reward_gamma not in (_default(config, "step_reward_gamma"), config.gamma):
        raise ConfigError(
            f"step_reward_gamma={config.step_reward_gamma} has no effect here; gamma is the discount per "
            "turn in both layouts"
        )
    group_size = config.train_env_manager.group_size
    if "group_ids" in get_estimator(TRAINER_NAMES[options.estimator]).needs and group_size < 2:
        raise ConfigError(
            f"{PREFIX}estimator={options.estimator} compares the episodes of a group; with "
            f"train_env_manager.group_size={group_size} every advantage would be 0"
        )
    for name, why in _refused(config, options.estimator):
        raise ConfigError(f"{name}={_get(config, name)} {why}")


def _refused(config: Any, estimator: str) -> Iterator[tuple[str, str]]:
    """Settings that would change the advantage, or have no effect on it, and what to do."""
    later = f"would change what {estimator} computed; set it to false"
    without = f"has no effect on {estimator}; leave it out"
    if config.whiten_advantages:
        yield "whiten_advantages", later
    if config.whiten_rewards:
        yield "whiten_rewards", without
    if config.reward_clip:
        yield "reward_clip", f"{without}, or clip in a wrapper of the environment"
    if config.add_token_level_kl:
        yield (
            "add_token_level_kl",
            "needs the reference model's log-probs, which ROLL computes after "
            f"{estimator}; use use_kl_loss and kl_loss_coef",
        )
    for name in ("norm_mean_type", "norm_std_type"):
        if _get(config, f"reward_normalization.{name}") is not None:
            yield f"reward_normalization.{name}", without
    for name in ("use_opd", "is_pure_opd"):
        if _get(config, name):
            yield name, f"puts a distillation term in the place of {estimator}"


def _check_batch(config: Any, options: GemOptions) -> None:
    for name in ("rollout_batch_size", "val_batch_size"):
        if _get(config, name) <= 0:
            raise ConfigError(f"{name}={_get(config, name)}: the tasks do not end, so a batch needs a size")
    scope = options.estimator_options.get("scope", "collected") if options.estimator == "rebn" else "trained"
    if scope not in ("collected", "trained"):
        raise ConfigError(f"{PREFIX}estimator_options.scope={scope!r}: expected 'collected' or 'trained'")
    if scope == "collected":
        dropped = (
            f"so its statistics cannot be those of all turns that were collected; "
            f"{PREFIX}estimator_options: {{scope: trained}} takes those of the rest"
        )
        section = config.train_env_manager
        if section.group_filter_cls != _default(section, "group_filter_cls"):
            raise ConfigError(
                f"train_env_manager.group_filter_cls drops groups before {options.estimator} sees them, "
                + dropped
            )
        if section.group_size_redundancy:
            raise ConfigError(
                "train_env_manager.group_size_redundancy drops the slowest episodes of a group, " + dropped
            )


def _default(config: Any, name: str) -> Any:
    return type(config).__dataclass_fields__[name].default


def _get(config: Any, name: str) -> Any:
    """An attribute of an attribute, by its dotted name."""
    for part in name.split("."):
        config = getattr(config, part)
    return config
