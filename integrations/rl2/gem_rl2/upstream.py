"""The two versions of RL2: which one is installed, and where each keeps its settings.

Both are numbered 0.0.2, so the signature of `compute_advantages` distinguishes them.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, TypeAlias

from gem_core.trainers.imports import replaced
from gem_core.trainers.interface import expect, expect_one_of, parameters_of
from gem_core.trainers.options import option_at
from gem_rl2 import SUPPORTED

INDEX, TREE = "rl-square 0.0.2", "source tree"
_ADVANTAGES: dict[tuple[str, ...], str] = {
    ("config", "raw_tensor_dict", "cu_seqs", "step"): INDEX,
    ("config", "tensor_dict", "cu_seqs", "step"): TREE,
}
_REINFORCE = {INDEX: "compute_reinforce_adv", TREE: "_compute_reinforce_adv"}

RolloutSplit: TypeAlias = Literal["train", "test"]
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

    def replace_reinforce(self, function: Callable[..., Any]) -> AbstractContextManager[None]:
        """Replace the function behind the estimator "reinforce" inside a block.

        Args:
            function: Takes the tensors, the number of responses per prompt, ``global_norm`` and ``norm_var``,
                and returns a dict with "advantages".
        """
        return replaced(self.algorithms, _REINFORCE[self.version], function)

    @property
    def rollout_section(self) -> str:
        """Path of the section with ``dynamic_filtering``."""
        return "rollout" if self.is_index else "rollout.train"

    def data_section(self, split: RolloutSplit) -> str:
        """Return the path of the section with the data set's ``path`` and the sizes of a rollout."""
        return f"{split}_data" if self.is_index else f"rollout.{split}"

    def sampling_section(self, split: RolloutSplit) -> str:
        """Return the path of the section with the sampling parameters."""
        return f"rollout.{split}_sampling_params" if self.is_index else f"rollout.{split}.sampling_params"

    def sampling_params(self, config: Any, split: RolloutSplit) -> Any:
        """Return the sampling parameters of a whole RL2 config."""
        return option_at(config, self.sampling_section(split))


def add_checkout() -> None:
    """Put the folder in the environment variable RL2_HOME first on the import path."""
    home = os.environ.get(str(SUPPORTED.home_variable))
    if home and home not in sys.path:
        sys.path.insert(0, home)


def find() -> Upstream:
    """Return the installed RL2.

    Raises:
        UnsupportedTrainer: RL2 is not installed, or is neither of the two versions.
    """
    SUPPORTED.require()
    algorithms = importlib.import_module("RL2.utils.algorithms")
    compute = expect_one_of(SUPPORTED, algorithms, "compute_advantages", list(_ADVANTAGES))
    version = _ADVANTAGES[parameters_of(compute)]
    arguments = ("tensor_dict", "responses_per_prompt", "global_norm", "norm_var")
    expect(SUPPORTED, algorithms, _REINFORCE[version], *arguments)
    return Upstream(version, algorithms, compute)
