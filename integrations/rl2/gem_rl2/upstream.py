"""Which of the two versions of RL2 is here, and the attributes of it that are replaced.

Both call themselves 0.0.2, so they are told apart by the signature of `compute_advantages`. Whatever
is replaced is looked at first: another signature is an error that names what is supported.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from gem_core.errors import UnsupportedTrainer
from gem_rl2 import SUPPORTED

INDEX, TREE = "rl-square 0.0.2", "source tree"
_ADVANTAGES: dict[tuple[str, ...], str] = {
    ("config", "raw_tensor_dict", "cu_seqs", "step"): INDEX,
    ("config", "tensor_dict", "cu_seqs", "step"): TREE,
}
_REINFORCE = {INDEX: "compute_reinforce_adv", TREE: "_compute_reinforce_adv"}


@dataclass(frozen=True)
class Upstream:
    """The RL2 of this Python environment.

    Attributes:
        version: `INDEX` or `TREE`.
        algorithms: Its module ``RL2.utils.algorithms``.
        compute_advantages: Its own function, as imported.
    """

    version: str
    algorithms: ModuleType
    compute_advantages: Callable[..., None]

    @property
    def is_index(self) -> bool:
        """Whether this is the version of the package index, with ``reset`` and ``step``."""
        return self.version == INDEX

    @property
    def reinforce(self) -> str:
        """Name of the function in `algorithms` that a call with estimator "reinforce" ends in."""
        return _REINFORCE[self.version]


def add_checkout() -> None:
    """Put the folder that RL2_HOME names first on the import path."""
    home = os.environ.get(str(SUPPORTED.home_variable))
    if home and home not in sys.path:
        sys.path.insert(0, home)


def find() -> Upstream:
    """Look at the RL2 that is imported here.

    Raises:
        UnsupportedTrainer: There is none, or it is neither of the two versions.
    """
    SUPPORTED.require()
    algorithms = importlib.import_module("RL2.utils.algorithms")
    compute = expect(algorithms, "compute_advantages", *_ADVANTAGES)
    version = _ADVANTAGES[parameters(compute)]
    arguments = ("tensor_dict", "responses_per_prompt", "global_norm", "norm_var")
    expect(algorithms, _REINFORCE[version], arguments)
    return Upstream(version, algorithms, compute)


def expect(module: ModuleType | type, name: str, *allowed: tuple[str, ...]) -> Callable[..., Any]:
    """The function of that name in a module or class, if its parameters are among those allowed.

    Raises:
        UnsupportedTrainer: It is not there, or has others.
    """
    function = getattr(module, name, None)
    found = None if function is None else parameters(function)
    if function is None or found not in allowed:
        what = "is missing" if function is None else f"takes {', '.join(found or ())}"
        raise UnsupportedTrainer(
            f"gem_rl2: {module.__name__}.{name} {what}, so this RL2 is neither of the supported ones: "
            f"rl-square{SUPPORTED.versions}, or the source tree of 2026-05 in {SUPPORTED.home_variable}"
        )
    checked: Callable[..., Any] = function
    return checked


def parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of a function's parameters, seen through decorators."""
    return tuple(inspect.signature(function).parameters)
