"""GEM environments and ReBN inside RL2.

This version names what it supports; the rollout worker and the advantage function are not in it yet.
Any use raises a clear error when RL2 is missing or has another version.
"""

from __future__ import annotations

from gem_core.integration import SupportedTrainer

SUPPORTED = SupportedTrainer(
    name="RL2",
    package="gem_rl2",
    distribution="rl-square",
    minimum="0.0.2",
    below="0.0.3",
    hook="python -m gem_rl2.train under torchrun, with RL2's own config",
    home_variable="RL2_HOME",
    hook_modules=("gem_rl2.train",),
)


def __getattr__(name: str) -> object:
    if not name.startswith("__"):
        SUPPORTED.require()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
