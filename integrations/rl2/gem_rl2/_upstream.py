"""The two versions of RL2: which one is installed, and where each keeps its settings.

Both are numbered 0.0.2, so the signature of `compute_advantages` distinguishes them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from gem_core.trainers._imports import replaced
from gem_core.trainers._interface import expect_listed, parameters_of
from gem_core.trainers._options import option_at
from gem_rl2 import _SUPPORTED

INDEX, TREE = "rl-square 0.0.2", "source tree"
SPLITS = ("train", "test")
"""RL2's names for the two rollouts."""


@dataclass(frozen=True)
class Upstream:
    """The RL2 in this Python environment.

    Attributes:
        version: `INDEX` or `TREE`.
        algorithms: The module ``RL2.utils.algorithms``.
        compute_advantages: RL2's original function.
    """

    version: str
    algorithms: ModuleType
    compute_advantages: Callable[..., None]

    @property
    def is_index(self) -> bool:
        """Whether this is the version of the package index, with ``reset`` and ``step``."""
        return self.version == INDEX

    def with_reinforce(self, function: Callable[..., Any]) -> AbstractContextManager[None]:
        """Replace the function behind the estimator "reinforce" inside a block.

        It takes the tensors, the number of responses per prompt, ``global_norm``, and ``norm_var``, and
        returns a dict with "advantages".
        """
        name = "compute_reinforce_adv" if self.is_index else "_compute_reinforce_adv"
        return replaced(self.algorithms, name, function)

    def data_section(self, split: str) -> str:
        """Return the config path of the section with the dataset's ``path`` and the sizes of a rollout."""
        return f"{split}_data" if self.is_index else f"rollout.{split}"

    def sampling_section(self, split: str) -> str:
        """Return the config path of the section with the sampling parameters."""
        return f"rollout.{split}_sampling_params" if self.is_index else f"rollout.{split}.sampling_params"

    def sampling_params(self, config: Any, split: str) -> Any:
        """Return the sampling parameters of a whole RL2 config."""
        return option_at(config, self.sampling_section(split))


def find() -> Upstream:
    """Return RL2: the checkout that the environment names, or else the installed distribution.

    Raises:
        UnsupportedTrainer: RL2 is not installed, or is neither of the two versions.
    """
    _SUPPORTED.import_checkout_first()
    algorithms = importlib.import_module("RL2.utils.algorithms")
    compute = getattr(algorithms, "compute_advantages", None)
    version = INDEX if compute and "raw_tensor_dict" in parameters_of(compute) else TREE
    expect_listed(_SUPPORTED, version)
    return Upstream(version, algorithms, algorithms.compute_advantages)
