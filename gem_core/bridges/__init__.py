"""Bridges to other ecosystems: their environments under our ids, and ours with their interfaces.

Each ecosystem has one module or folder and its own extra. `register_builtin` registers the schemes of
ids, such as ``gymnasium:CartPole-v1``, without importing anything.
"""

from __future__ import annotations

from gem_core.registration import register_scheme

__all__ = ["register_builtin"]


def register_builtin() -> None:
    """Register the scheme of every inbound bridge."""
    register_scheme(
        "gymnasium", "gem_core.bridges.gymnasium.env:GymnasiumEnv", "env_id", extra="gymnasium",
        description="Environments of Gymnasium as text",
    )  # fmt: skip
    register_scheme(
        "openenv", "gem_core.bridges.openenv.env:OpenEnvEnv", "source",
        description="Environments of OpenEnv, on a server or in an installed package",
    )  # fmt: skip
    register_scheme(
        "textarena", "gem_core.bridges.textarena:make_textarena", "game", extra="textarena",
        description="Games of TextArena",
    )  # fmt: skip
    register_scheme(
        "skyrl", "gem_core.bridges.skyrl.env:SkyRLEnv", "env_id", extra="skyrl",
        description="Environments of skyrl-gym over your rows",
    )  # fmt: skip
    register_scheme(
        "verifiers", "gem_core.bridges.verifiers.env:VerifiersEnv", "taskset", extra="verifiers",
        description="Tasksets of verifiers",
    )  # fmt: skip
