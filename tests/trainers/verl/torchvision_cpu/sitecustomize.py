"""Makes torchvision importable with a torch that it was not built for; for tests.

Its compiled operators cannot be loaded then, but its Python code only requires that two of them are defined.
In every process with this folder on its path, they are defined before torchvision is imported. Nothing calls
them.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any


class DefinesOperators(MetaPathFinder):
    """Finds torchvision like other finders, after defining the operators that it requires."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != "torchvision":
            return None
        sys.meta_path.remove(self)
        import torch

        library = torch.library.Library("torchvision", "DEF")
        _kept.append(library)
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return importlib.util.find_spec(fullname)


_kept: list[Any] = []
"""Keeps the library alive, because its operators disappear when it is garbage-collected."""

sys.meta_path.insert(0, DefinesOperators())
