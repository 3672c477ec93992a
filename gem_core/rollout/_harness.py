"""What plays an episode with a harness, a program that owns its loop; `gem_agents` registers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gem_core._util.registry import Registry

ENTRY_POINT_GROUP = "gem_core.harnesses"
"""Entry points that register harnesses, and what plays with them."""

runners: Registry[Callable[..., Any]] = Registry("runner", group=ENTRY_POINT_GROUP)
"""The coroutine function ``run_harness`` plays an episode: it takes a harness, then what `run_episode` takes.
``resolve_harness`` raises a `GemError` if a name is no harness, or its program is not installed."""
