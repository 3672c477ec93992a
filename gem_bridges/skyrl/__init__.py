"""SkyRL in both directions: ``skyrl:ENV`` as an environment, and our ids as an environment of skyrl-gym."""

from __future__ import annotations

from gem_bridges._extras import needs_extra

with needs_extra("gem_bridges.skyrl", "skyrl"):
    from gem_bridges.skyrl._view import GemTextEnv, register_gem, task_rows

__all__ = ["GemTextEnv", "register_gem", "task_rows"]
