"""The reference trainer for causal language models, in one process with torch and transformers.

    from gem_lab.train import TrainConfig, train
    outcome = train(TrainConfig(env=["game:GuessTheNumber-v0-easy"], gamma=0.9, out="runs/guess"))

Requires the extra ``train``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gem_core.errors import MissingDependency
from gem_lab.train._config import TrainConfig
from gem_lab.train._tiny_options import TinyOptions

if TYPE_CHECKING:
    from gem_lab.train._report import TrainOutcome
    from gem_lab.train._tiny import make_tiny, save_tiny
    from gem_lab.train._trainer import train

__all__ = ["TrainOutcome", "TinyOptions", "TrainConfig", "make_tiny", "save_tiny", "train"]

_HOMES = {
    "TrainOutcome": "gem_lab.train._report",
    "make_tiny": "gem_lab.train._tiny",
    "save_tiny": "gem_lab.train._tiny",
    "train": "gem_lab.train._trainer",
}


def __getattr__(name: str) -> Any:
    """Import public names on first use, because their modules import torch and transformers."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    try:
        return getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in ("torch", "transformers", "tokenizers"):
            raise
        raise MissingDependency(
            f"training needs the package {error.name!r}: pip install 'gem-core[train]'"
        ) from error
