"""Checks of a ROLL config for ``gem-core doctor --trainer roll -- CONFIG.yaml``, without Ray or a model."""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

from gem_core._util.messages import error_line
from gem_core.errors import ConfigError
from gem_core.trainers import Plan
from gem_core.trainers._options import compose_config
from gem_roll import _SUPPORTED
from gem_roll._kinds import OURS, SECTION, load_class, managers_of
from gem_roll._options import GemOptions, check_config, check_tags
from gem_roll._plan import plan_of

PIPELINE = "roll.pipeline.agentic.agentic_pipeline.AgenticPipeline"
"""ROLL's default for ``pipeline_cls``."""
OTHER_KEYS = ("pipeline_cls", "defaults", "hydra")
"""Top-level keys of a YAML that are not fields of ROLL's config."""
TAG_KEYS = (
    "env_type", "env_manager_cls", "max_steps", "max_tokens_per_step", "agent_system_template",
    "agent_template", "env_config", "use_thread_lock", "max_env_step_concurrent", "tool_wrapper",
)  # fmt: skip
"""Keys of ``custom_envs.<tag>`` that our env managers read or reject."""


def check(arguments: list[str]) -> Plan:
    """Check the YAML of an agentic pipeline as ROLL's launcher and the pipeline do before they start Ray.

    Args:
        arguments: Path of the YAML file. The launcher takes its folder and its name separately.

    Returns:
        What the run would do.

    Raises:
        Exception: A run would reject it, or it has a key that ROLL would ignore and that looks misspelled.
    """
    if len(arguments) != 1 or Path(arguments[0]).suffix != ".yaml":  # hydra reads no other suffix
        raise ConfigError(f"{' '.join(arguments)}: expected the path of one YAML file that ends with .yaml")
    path = Path(arguments[0])
    if not path.is_file():
        raise ConfigError(f"{path} does not exist")
    _SUPPORTED.import_checkout_first()
    from dacite import from_dict
    from omegaconf import OmegaConf
    from roll.pipeline.agentic.agentic_config import AgenticConfig

    composed = compose_config(path.parent, path.stem)
    values: Any = OmegaConf.to_container(composed)
    ignored = _ignored_keys(path, values, AgenticConfig)
    try:
        config = from_dict(data_class=AgenticConfig, data=values)
    except Exception as error:  # ROLL's own checks raise anything, often without a message
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(f"ROLL rejects {path}: {error_line(error)}, raised by: {at.line}") from error
    from gem_roll._pipeline import ReBNAgenticPipeline

    kind = load_class(composed.get("pipeline_cls", PIPELINE), "pipeline_cls")
    if ours := issubclass(kind, ReBNAgenticPipeline):
        options = check_config(config)
    else:  # ROLL's own pipeline, whose env managers may still be ours
        managers_of(config)
        options = GemOptions.from_config(config)
        check_tags(config, options)
    plan = plan_of(config, options, own_pipeline=not ours)
    notes = [f"{key}: nothing reads this option" for key in ignored]
    return replace(plan, notes=[*plan.notes, *notes])


def _ignored_keys(path: Path, values: dict[str, Any], config: type) -> list[str]:
    """Return the keys of a config that nothing reads, except top-level ones to which the YAML refers.

    Raises:
        ConfigError: A key is almost a known one.
    """
    references = set(re.findall(r"\$\{(\w+)", path.read_text(encoding="utf-8")))
    ignored = _unknown_keys(values, config, "", {*OTHER_KEYS, *references})
    for tag, section in values.get("custom_envs", {}).items():
        if tag != SECTION and isinstance(section, dict) and section.get("env_manager_cls") in OURS:
            ignored += _unknown(section, TAG_KEYS, f"custom_envs.{tag}.")
    return ignored


def _unknown_keys(values: Mapping[str, Any], kind: type, prefix: str, others: Collection[str]) -> list[str]:
    """Return the keys that are not fields of a dataclass of ROLL or of the dataclasses in its fields."""
    hints = get_type_hints(kind)
    known = [field.name for field in fields(kind)]
    found = _unknown(values, [*known, *others], prefix)
    for name in known:
        inner = next((k for k in (hints[name], *get_args(hints[name])) if is_dataclass(k)), None)
        if isinstance(inner, type) and isinstance(values.get(name), Mapping):
            found += _unknown_keys(values[name], inner, f"{prefix}{name}.", ())
    return found


def _unknown(values: Mapping[str, Any], known: Sequence[str], prefix: str) -> list[str]:
    unknown = [key for key in map(str, values) if key not in known]
    for key in unknown:
        if close := difflib.get_close_matches(key, known, n=1, cutoff=0.85):
            raise ConfigError(
                f"unknown option '{prefix}{key}', which ROLL would ignore. Did you mean {close[0]}?"
            )
    return [f"{prefix}{key}" for key in unknown]
