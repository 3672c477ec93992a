"""The control of a learning run, for tests: the pipeline with zero advantages."""

from __future__ import annotations

from typing import Any

from gem_roll._pipeline import ADVANTAGES, ReBNAgenticPipeline


class ZeroedPipeline(ReBNAgenticPipeline):
    """Sets all advantages to zero."""

    def adjust_batch(self, data: Any, mode: str = "copy") -> Any:
        adjusted = super().adjust_batch(data, mode)
        adjusted.batch[ADVANTAGES] = 0 * adjusted.batch[ADVANTAGES]
        return adjusted
