"""The model from which a training run starts."""

from __future__ import annotations

from pathlib import Path

from gem_lab.train._config import TINY, TrainConfig
from gem_lab.train._report import TrainReporter
from gem_lab.train._tiny import recorded_options, save_tiny
from gem_lab.train._tiny_options import TinyOptions


def prepare_model(config: TrainConfig, model: str, reporter: TrainReporter) -> str:
    """Return the folder or name of a model, after creating the tiny model if it is requested."""
    if model != TINY:
        return model
    folder = Path(config.out) / TINY
    options = TinyOptions(env=tuple(source.text for source in config.sources), seed=config.seed)
    if recorded_options(folder) != options.to_dict():
        reporter.note(
            f"creating a tiny model in {folder}; warm start: {options.warm_start_steps} steps on random "
            "legal actions, so that it knows the format (never on an oracle's actions)"
        )
        digest = save_tiny(folder, options)
        reporter.note(f"tiny model: sha256 {digest}")
    return str(folder)
