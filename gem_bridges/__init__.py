"""Bridges to other ecosystems: their environments under our ids, and ours with their interfaces.

Each ecosystem has one module or folder and its own extra. `register` is the entry point of the group
``gem_core.envs``; it registers the schemes of ids, such as ``gymnasium:CartPole-v1``, and imports no bridge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core import register_scheme
from gem_core._util.lazy import lazy_names

if TYPE_CHECKING:
    from gem_bridges._foreign import ForeignEnv

__all__ = [
    "ForeignEnv",
]


def register() -> None:
    """Register the scheme of every inbound bridge."""
    register_scheme(
        "gymnasium", "gem_bridges.gymnasium._env:GymnasiumEnv", "env_id", extra="gymnasium",
        description="Environments of Gymnasium as text",
    )  # fmt: skip
    register_scheme(
        "openenv", "gem_bridges.openenv._env:OpenEnvEnv", "source",
        description="Environments of OpenEnv, on a server or in an installed package",
    )  # fmt: skip
    register_scheme(
        "textarena", "gem_bridges.textarena:make_textarena", "game", extra="textarena",
        description="Games of TextArena",
    )  # fmt: skip
    register_scheme(
        "skyrl", "gem_bridges.skyrl._env:SkyRLEnv", "env_id", extra="skyrl",
        description="Environments of skyrl-gym over your rows",
    )  # fmt: skip
    register_scheme(
        "verifiers", "gem_bridges._verifiers.env:VerifiersEnv", "taskset", extra="verifiers",
        description="Tasksets of verifiers",
    )  # fmt: skip


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "gem_bridges._foreign": ["ForeignEnv"],
    },
)
