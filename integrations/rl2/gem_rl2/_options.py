"""GEM's options in an RL2 config, and the settings of RL2 that are rejected.

Options of the rollout are in their own section, ``+gem.<option>=<value>``; options of an estimator are
under its name, ``+adv.rebn.ddof=1``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gem_core._util.checks import check_int, check_number, expected
from gem_core.errors import ConfigError
from gem_core.rollout._options import read_object
from gem_core.trainers import EstimatorChoice, PluginOptions, read_estimator
from gem_core.trainers._options import option_at, reject_listed
from gem_rl2 import _ENV_PATH, _SUPPORTED
from gem_rl2._rows import check_file
from gem_rl2._upstream import INDEX, SPLITS, Upstream


def read_options(config: Any) -> PluginOptions:
    """Read the section ``gem`` of a whole RL2 config."""
    return PluginOptions.read(config.get("gem") or {})


def plays_gem(config: Any) -> bool:
    """Return whether `gem_rl2.env` plays the episodes of this run.

    Raises:
        ConfigError: ``rollout.env_path`` is no path of a file.
    """
    path = config.rollout.env_path
    if path is not None and not (isinstance(path, str) and Path(path).is_file()):
        raise expected("rollout.env_path", path, "the path of a Python file, or null for gem-core's own")
    return path is not None and Path(path).resolve() == Path(_ENV_PATH).resolve()


def prepare(config: Any, upstream: Upstream) -> None:
    """Set the options with only one reasonable value: the environment file, and texts with special tokens."""
    from omegaconf import open_dict

    if config.rollout.env_path is None:
        config.rollout.env_path = _ENV_PATH
    if upstream.is_index and plays_gem(config):
        for split in SPLITS:
            params = upstream.sampling_params(config, split)
            with open_dict(params):
                params.setdefault("skip_special_tokens", False)


def choose_estimator(adv: Any) -> EstimatorChoice:
    """Return the estimator named in RL2's section ``adv``, with its options ``adv.<estimator>``.

    Raises:
        ConfigError: The estimator or an option is unknown, or a value is out of range.
    """
    name = str(adv.estimator)
    return read_estimator(
        name,
        read_object(adv.get(name), f"adv.{name}"),
        gamma=adv.gamma,
        prefix=f"adv.{name}.",
        gamma_option="adv.gamma",
        option="adv.estimator",
        trainer=_SUPPORTED,
    )


def check_added(overrides: Iterable[str], config: Any, base: Any, upstream: Upstream) -> None:
    """Reject overrides that add an option that neither RL2, its engine, nor the plugin reads.

    Args:
        overrides: Overrides of the command, such as ``+gem.max_turns=8``.
        config: RL2's whole config with these overrides, before interpolations are resolved.
        base: The config without them.
        upstream: The installed RL2.

    Raises:
        ConfigError: There is such an override.
    """
    from omegaconf import OmegaConf

    estimator = option_at(config, "adv.estimator")
    read = ["gem", "hydra", f"adv.{estimator}", "rollout.server_args"]
    read += [upstream.sampling_section(split) for split in SPLITS]
    for override in (word for word in overrides if word.startswith("+")):
        option = override.lstrip("+").partition("=")[0]
        section, _, name = option.rpartition(".")
        known = f"{option}.".startswith(tuple(f"{one}." for one in read))
        if override.startswith("++"):
            known |= name in ((option_at(base, section) if section else base) or ())
        if not section:  # a group of options, or a value to which another option refers
            known |= name not in config or f"${{{name}" in OmegaConf.to_yaml(config)
        if not known:
            raise ConfigError(
                f"+{option}: nothing reads this option; options of the estimator are under its name, as "
                f"+adv.{estimator}.<option>, and options of the rollout under +gem"
            )


def check_config(config: Any, upstream: Upstream) -> None:
    """Reject unsupported settings before any model is loaded.

    Raises:
        ConfigError: A setting is not supported; the message names it and the reason.
        GemError: An environment of the data cannot be built.
    """
    reject_listed(_SUPPORTED, config, {"always": True})
    _check_numbers(config, upstream)
    options = read_options(config)
    if config.adv.estimator not in _SUPPORTED.own_estimators:
        _check_estimator(config, upstream, choose_estimator(config.adv))
    if not plays_gem(config):
        if unused := sorted(set(config.get("gem") or {}) - {"modules"}):
            raise ConfigError(
                f"gem.{unused[0]} has no effect: rollout.env_path={config.rollout.env_path} plays the "
                "episodes; omit one of the two"
            )
        return
    partial = not upstream.is_index and config.rollout.train.partial_rollout
    several = options.context != "append" or options.harness is not None
    _check_updates(config, upstream, rows_vary=partial or several)
    reject_listed(_SUPPORTED, config, {"played": True, INDEX: upstream.is_index})
    turns = config.rollout.max_turns if upstream.is_index else math.inf
    if options.max_turns is not None and options.max_turns > turns:
        raise ConfigError(
            f"gem.max_turns={options.max_turns}, but RL2 ends an episode after rollout.max_turns={turns} "
            "turns; raise rollout.max_turns"
        )
    _check_data(config, upstream)


def _check_numbers(config: Any, upstream: Upstream) -> None:
    """Check the numbers with which RL2 would fail in its first step, or do nothing in any."""
    train, sampling = upstream.data_section("train"), upstream.sampling_section("train")
    needed = [f"{upstream.data_section(split)}.responses_per_prompt" for split in SPLITS]
    optional = [f"trainer.{name}_freq" for name in ("test", "save")] + [f"{sampling}.max_new_tokens"]
    if upstream.is_index:
        needed += [f"{train}.prompts_per_rollout", "trainer.n_epochs", "rollout.max_turns"]
    else:
        optional.append(f"{train}.prompts_per_rollout")
    if not option_at(config, "trainer.eval_only"):
        needed += ["actor.update_per_rollout", "actor.max_length_per_device"]
        needed += [] if upstream.is_index else ["trainer.total_steps"]
        check_number(f"{sampling}.temperature", option_at(config, f"{sampling}.temperature"), above=0)
        if not isinstance(model := config.actor.model_name, str):
            raise expected("actor.model_name", model, "a model's name or folder")
    for option in needed:
        check_int(option, option_at(config, option), 1)
    for option in optional:
        check_int(option, option_at(config, option), 1, optional=True)


def _check_data(config: Any, upstream: Upstream) -> None:
    """Check the files of both splits, and that each has enough rows."""
    rows: dict[str, int | None] = {}
    for split in SPLITS:
        option = f"{upstream.data_section(split)}.path"
        path = option_at(config, option)
        if path is None and split == "train":
            raise ConfigError(f"{option} is not set; `gem-core export --to rl2` writes a file for it")
        if path is not None and not (isinstance(path, str) and path):
            raise ConfigError(f"{option}={path}: expected the path of one file")
        rows[split] = None if path is None else check_file(path, for_training=split == "train")
    count, test = rows["train"], upstream.data_section("test")
    prompts = option_at(config, f"{upstream.data_section('train')}.prompts_per_rollout")
    if upstream.is_index and count is not None and count < prompts:
        raise ConfigError(
            f"train_data.prompts_per_rollout={prompts}, but train_data.path has only {count} rows, and RL2 "
            "drops an incomplete batch; export more rows, or lower it"
        )
    if option_at(config, f"{test}.path") is not None:
        return
    if upstream.is_index and option_at(config, f"{test}.prompts_per_rollout") is None:
        raise ConfigError(f"{test}.path is not set, and RL2 fails without rows for evaluation; set it")
    if not upstream.is_index and count is not None and int(config.rollout.test_ratio * count) < 1:
        raise ConfigError(
            f"{test}.path is not set, and rollout.test_ratio={config.rollout.test_ratio} sets aside none of "
            f"{count} rows for evaluation, without which RL2 fails; set {test}.path"
        )


def _check_estimator(config: Any, upstream: Upstream, choice: EstimatorChoice) -> None:
    option = f"{upstream.data_section('train')}.responses_per_prompt"
    responses = option_at(config, option)
    choice.check_group_size(option, responses)
    sections = {"estimator": True, "all collected turns": choice.scope == "collected" and responses > 1}
    reject_listed(_SUPPORTED, config, sections, estimator=choice.name)


def _check_updates(config: Any, upstream: Upstream, *, rows_vary: bool) -> None:
    """Check that no update is empty: RL2 cuts the rows of a step into parts of equal size."""
    data = option_at(config, upstream.data_section("train"))
    parts = config.actor.update_per_rollout
    rows = (data.prompts_per_rollout or 0) * data.responses_per_prompt
    # More rows than this always fill all parts; with fewer rows it depends on their number.
    enough = (parts - 1) ** 2
    if 0 < rows <= enough and (rows_vary or (parts - 1) * math.ceil(rows / parts) >= rows):
        raise ConfigError(
            f"actor.update_per_rollout={parts} cannot cut the {rows} episodes of a step into {parts} parts; "
            f"use fewer updates, or more than {enough} episodes"
        )
