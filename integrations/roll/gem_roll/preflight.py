"""Checks of a ROLL config for ``gem-core doctor --trainer roll -- CONFIG.yaml``, without Ray or a model."""

from __future__ import annotations

import difflib
import re
from dataclasses import fields
from pathlib import Path

from gem_core.errors import ConfigError
from gem_core.trainers.options import compose_config
from gem_roll import SUPPORTED
from gem_roll.kinds import load_class, managers_of
from gem_roll.options import GemOptions, check_config, check_tags

PIPELINE = "roll.pipeline.agentic.agentic_pipeline.AgenticPipeline"
"""ROLL's default for ``pipeline_cls``."""
OTHER_KEYS = ("pipeline_cls", "defaults", "hydra")
"""Top-level keys of a YAML that are not fields of ROLL's config."""


def check(arguments: list[str]) -> None:
    """Check the YAML of an agentic pipeline as ROLL's launcher and the pipeline do before they start Ray.

    Args:
        arguments: Path of the YAML file. The launcher takes its folder and its name separately.

    Raises:
        Exception: A run would reject it, or it has a key that ROLL would ignore and that looks misspelled.
    """
    if len(arguments) != 1 or Path(arguments[0]).suffix != ".yaml":  # hydra reads no other suffix
        raise ConfigError(f"{' '.join(arguments)}: expected the path of one YAML file that ends with .yaml")
    path = Path(arguments[0])
    if not path.is_file():
        raise ConfigError(f"{path} does not exist")
    SUPPORTED.import_checkout_first()
    from dacite import from_dict
    from omegaconf import OmegaConf
    from roll.pipeline.agentic.agentic_config import AgenticConfig

    _check_keys(path, [*(field.name for field in fields(AgenticConfig)), *OTHER_KEYS])
    composed = compose_config(path.parent, path.stem)
    config = from_dict(data_class=AgenticConfig, data=OmegaConf.to_container(composed))
    from gem_roll.pipeline import ReBNAgenticPipeline

    if issubclass(load_class(composed.get("pipeline_cls", PIPELINE), "pipeline_cls"), ReBNAgenticPipeline):
        check_config(config)
    else:  # ROLL's own pipeline, whose env managers may still be ours
        managers_of(config)
        check_tags(config, GemOptions.from_config(config))


def _check_keys(path: Path, known: list[str]) -> None:
    """Reject an unknown top-level key that is almost a known one, unless the YAML refers to it."""
    from omegaconf import OmegaConf

    references = set(re.findall(r"\$\{(\w+)", path.read_text(encoding="utf-8")))
    for key in map(str, OmegaConf.load(path)):
        close = difflib.get_close_matches(key, known, n=1, cutoff=0.85)
        if close and key not in known and key not in references:
            raise ConfigError(f"unknown option {key!r}, which ROLL would ignore. Did you mean {close[0]}?")
