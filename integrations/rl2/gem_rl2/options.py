"""What an RL2 config says about GEM, and what it must not say.

Options of the rollout stand in a section of their own, ``+gem.<option>=<value>``; options of an
estimator under its name, ``+adv.rebn.ddof=1``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gem_core._util.messages import suggest
from gem_core.advantages.registry import TRAINER_NAMES, get_estimator
from gem_core.errors import ConfigError
from gem_core.rollout import RolloutOptions
from gem_rl2 import ENV_PATH
from gem_rl2.rows import check_file
from gem_rl2.upstream import Upstream

ESTIMATORS = TRAINER_NAMES
"""Values of ``adv.estimator`` and the names of these estimators in gem_core."""

RL2_ESTIMATORS = ("reinforce", "gae")


@dataclass(frozen=True)
class GemOptions(RolloutOptions):
    """The section ``gem`` of an RL2 config.

    Attributes:
        template_kwargs: Variables for the chat template, ``+gem.template_kwargs.enable_thinking=false``.
        modules: Modules to import first, which register environments of your own.
    """

    template_kwargs: dict[str, Any] = field(default_factory=dict)
    modules: tuple[str, ...] = ()

    @classmethod
    def from_config(cls, config: Any) -> GemOptions:
        """Read the section ``gem`` of a whole RL2 config."""
        given = dict(config.get("gem") or {})
        given["template_kwargs"] = dict(given.get("template_kwargs") or {})
        given["modules"] = tuple(given.get("modules") or ())
        return cls.read(given)


def plays_gem(config: Any) -> bool:
    """Whether the episodes of this run are played by `gem_rl2.env`."""
    path = config.rollout.env_path
    return path is not None and Path(path).resolve() == Path(ENV_PATH).resolve()


def sampling_params(config: Any, upstream: Upstream, *, train: bool) -> Any:
    """RL2's sampling parameters for training or validation."""
    rollout, split = config.rollout, "train" if train else "test"
    return rollout[f"{split}_sampling_params"] if upstream.is_index else rollout[split].sampling_params


def prepare(config: Any, upstream: Upstream) -> None:
    """Fill in what only one value makes sense for: the environment file, and texts with special tokens."""
    from omegaconf import open_dict

    if config.rollout.env_path is None:
        config.rollout.env_path = ENV_PATH
    if upstream.is_index and plays_gem(config):
        for train in (True, False):
            params = sampling_params(config, upstream, train=train)
            with open_dict(params):
                params.setdefault("skip_special_tokens", False)


def estimator_options(adv: Any) -> dict[str, Any]:
    """The options ``adv.<estimator>``, checked; without ``scope``, which is `check_config`'s.

    Raises:
        ConfigError: An unknown option.
    """
    name = str(adv.estimator)
    options = dict(adv.get(name) or {})
    if name == "rebn":
        options.pop("scope", None)
    get_estimator(ESTIMATORS[name]).check_options(options, prefix=f"adv.{name}.")
    return options


def check_config(config: Any, upstream: Upstream) -> None:
    """Refuse what cannot be honoured, before any model is loaded.

    Raises:
        ConfigError: Says what and why.
        GemError: An environment of the data cannot be built.
    """
    _check_estimator(config, upstream)
    options = GemOptions.from_config(config)
    if not plays_gem(config):
        for name in config.get("gem") or {}:
            if name != "modules":
                raise ConfigError(
                    f"gem.{name} has no effect: rollout.env_path={config.rollout.env_path} plays the "
                    "episodes; leave one of the two out"
                )
    else:
        partial = not upstream.is_index and config.rollout.train.partial_rollout
        _check_updates(config, upstream, rows_vary=partial or options.context == "rebuild")
        if upstream.is_index:
            _check_texts(config, upstream, options)
        paths = (
            (config.train_data.path, config.test_data.path)
            if upstream.is_index
            else (config.rollout.train.path, config.rollout.test.path)
        )
        if paths[0] is None:
            where = "train_data.path" if upstream.is_index else "rollout.train.path"
            raise ConfigError(f"{where} is not set; `gem-core export --to rl2` writes a file for it")
        for path in paths:
            if path is not None:
                check_file(str(path), for_training=path == paths[0])


def _check_estimator(config: Any, upstream: Upstream) -> None:
    adv = config.adv
    name = str(adv.estimator)
    if name not in ESTIMATORS:
        if name not in RL2_ESTIMATORS:
            known = (*RL2_ESTIMATORS, *ESTIMATORS)
            raise ConfigError(
                f"adv.estimator={name} is no estimator.{suggest(name, known)} There are: {', '.join(known)}"
            )
        return
    estimator_options(adv)
    if not 0 <= float(adv.gamma) <= 1:
        raise ConfigError(f"adv.gamma={adv.gamma}: expected a discount from 0 to 1")
    for option, unused in (("global_norm", False), ("norm_var", False), ("lamda", 1.0)):
        if adv.get(option, unused) != unused:
            raise ConfigError(f"adv.{option}={adv[option]} has no effect on {name}; leave it at {unused}")
    scope = (adv.get(name) or {}).get("scope", "collected") if name == "rebn" else "trained"
    if scope not in ("collected", "trained"):
        raise ConfigError(f"adv.rebn.scope={scope!r}: expected 'collected' or 'trained'")
    section, where = (
        (config.rollout, "rollout") if upstream.is_index else (config.rollout.train, "rollout.train")
    )
    if "group_ids" in get_estimator(ESTIMATORS[name]).needs and section.responses_per_prompt < 2:
        own = "train_data" if upstream.is_index else where
        raise ConfigError(
            f"{name} compares the responses to a prompt; with {own}.responses_per_prompt="
            f"{section.responses_per_prompt} every advantage would be 0"
        )
    if scope == "collected" and section.dynamic_filtering and section.responses_per_prompt > 1:
        raise ConfigError(
            f"{where}.dynamic_filtering drops groups before rebn sees them, so its statistics cannot be "
            f"those of all turns that were collected; add {where}.dynamic_filtering=false, or "
            "+adv.rebn.scope=trained for those of the rest"
        )


def _check_updates(config: Any, upstream: Upstream, *, rows_vary: bool) -> None:
    """RL2 cuts the rows of a step into parts of one size, and fails when that leaves a part empty."""
    section = config.train_data if upstream.is_index else config.rollout.train
    parts = config.actor.update_per_rollout
    rows = (section.prompts_per_rollout or 0) * section.responses_per_prompt
    # Any larger number of rows fills all parts, too; below that it depends on the number.
    always = rows > (parts - 1) ** 2
    if rows and not always and (rows_vary or (parts - 1) * math.ceil(rows / parts) >= rows):
        raise ConfigError(
            f"actor.update_per_rollout={parts} cannot cut the {rows} episodes of a step into {parts} parts; "
            f"take fewer updates, or more than {(parts - 1) ** 2} episodes"
        )


def _check_texts(config: Any, upstream: Upstream, options: GemOptions) -> None:
    """The version of the package index shows an environment the text of a response, and samples itself."""
    for train in (True, False):
        params = sampling_params(config, upstream, train=train)
        where = f"rollout.{'train' if train else 'test'}_sampling_params"
        why = "or nobody can tell a response that ended from one that was cut, and its end comes twice"
        if params.get("skip_special_tokens", True):
            raise ConfigError(f"add +{where}.skip_special_tokens=false, {why}")
        if not params.get("no_stop_trim", False):
            raise ConfigError(f"set {where}.no_stop_trim=true, {why}")
    if options.max_tokens_per_turn is not None:
        raise ConfigError(
            "gem.max_tokens_per_turn: this version of RL2 samples by itself; "
            "set rollout.train_sampling_params.max_new_tokens"
        )
    if options.on_env_error == "retry":
        raise ConfigError(
            "gem.on_env_error=retry: this version of RL2 keeps the responses of an episode whose environment "
            "failed, so that it cannot be played again; the source tree of RL2 can, or use mask"
        )
    if options.max_turns is not None and options.max_turns > config.rollout.max_turns:
        raise ConfigError(
            f"gem.max_turns={options.max_turns}, but RL2 ends an episode after rollout.max_turns="
            f"{config.rollout.max_turns} turns; raise that one"
        )
