"""The dataset that verl loads: ``data.custom_cls.path=pkg://gem_verl.dataset``."""

from __future__ import annotations

from gem_verl._dataset import GemDataset

__all__ = [
    "GemDataset",
]
