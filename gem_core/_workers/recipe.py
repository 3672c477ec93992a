"""`EnvRecipe`: all that a worker needs to build an environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gem_core._core import Env, require_one_agent
from gem_core._registration import WrapperLike, make, register_wrapper, wrapper_entry_points
from gem_core._spec import EnvSpec


@dataclass(frozen=True)
class EnvRecipe:
    """All information needed to build one environment in any process.

    It contains the spec instead of the id, and the table of wrapper names, so a worker can use what the
    program registered without running the program's code.
    """

    spec: EnvSpec
    wrappers: WrapperLike | Sequence[WrapperLike] = ()
    wrapper_table: dict[str, str] = field(default_factory=wrapper_entry_points)

    def make(self) -> Env:
        """Build the environment, which has one agent."""
        for name, entry_point in self.wrapper_table.items():
            register_wrapper(name, entry_point)
        env = make(self.spec, wrappers=self.wrappers)
        require_one_agent(env, "a worker or a vector env")
        return env
