"""Bridges to other ecosystems: their environments under our ids, and ours under their interfaces.

Each ecosystem has one module or folder, and an extra of its own. `register_builtin` registers the schemes of
ids, such as ``gymnasium:CartPole-v1``, without importing anything.
"""

from __future__ import annotations

from gem_core.registration import register_scheme

__all__ = ["register_builtin"]

# prefix, entry point within the package, argument, extra, deterministic and stateful, description
_SCHEMES: tuple[tuple[str, str, str, str | None, bool, str], ...] = (
    (
        "gymnasium",
        "gymnasium.env:GymnasiumEnv",
        "env_id",
        "gymnasium",
        True,
        "Environments of Gymnasium as text",
    ),
)


def register_builtin() -> None:
    """Register the scheme of every inbound bridge."""
    for prefix, entry_point, argument, extra, repeatable, description in _SCHEMES:
        register_scheme(
            prefix, f"gem_core.bridges.{entry_point}", argument, description=description, extra=extra,
            deterministic=repeatable, stateful=repeatable,
        )  # fmt: skip
