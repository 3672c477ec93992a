"""torchvision without its compiled operators, which need CUDA's libraries to load.

Transformers' processor for pictures resizes and normalises with torchvision's Python code alone; that code
only asks that the operators have signatures. On the import path, this module runs in every process.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any


class BeforeTorchvision(MetaPathFinder):
    """Finds nothing, and gives the operators their signatures when torchvision is looked for."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "torchvision" and not hasattr(self, "library"):
            import torch

            self.library = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                self.library.define(f"{operator}(Tensor dets, Tensor scores, float threshold) -> Tensor")


sys.meta_path.insert(0, BeforeTorchvision())
