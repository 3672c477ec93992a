"""The global generators of `random` and numpy, from which some datasets of reasoning-gym draw their items."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import random
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import reasoning_gym

from gem_core._util.forks import ForkSafeLock

_GLOBAL_DRAW = re.compile(
    r"(?<![\w.])(?:np\.)?random\.(?:randint|rand|seed|choice|shuffle|random|permutation)\("
    r"|(?<![\w.])exec\("  # codeio: the programs in its data draw from the generators
)
_MOST_NAMES = 40
_global_lock = ForkSafeLock()


@lru_cache
def uses_global_generators(name: str, parts: tuple[str, ...]) -> bool:
    """Return whether items are drawn from the generators of `random` or numpy, judging by the source."""
    for part in parts or (name,):
        module = inspect.getmodule(reasoning_gym.factory.DATASETS[part][0])
        if module and any(_GLOBAL_DRAW.search(_source(m)) for m in (module, *_beside(module))):
            return True
    return False


def _beside(module: Any) -> list[Any]:
    """Return the modules in the folder of a dataset, also those that are imported at the first item.

    A folder with many names is a topic with many datasets, each in its own file.
    """
    folder = sys.modules[module.__package__ or ""]
    if len(vars(folder)) >= _MOST_NAMES:
        return []
    names = [entry.name for entry in pkgutil.iter_modules(folder.__path__)]
    return [importlib.import_module(f"{folder.__name__}.{name}") for name in names]


def _source(module: Any) -> str:
    try:
        return inspect.getsource(module)
    except OSError:  # an empty file
        return ""


@contextmanager
def own_generators(seed: int) -> Iterator[None]:
    """Seed the global generators for one item, and restore them afterwards."""
    with _global_lock:
        before = random.getstate(), np.random.get_state()  # noqa: NPY002
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002
