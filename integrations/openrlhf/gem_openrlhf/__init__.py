"""GEM environments and ReBN inside OpenRLHF.

This version names what it supports; the rollout worker and the advantage function are not in it yet.
Any use raises a clear error when OpenRLHF is missing or has another version.
"""

from __future__ import annotations

from gem_core.integration import SupportedTrainer

SUPPORTED = SupportedTrainer(
    name="OpenRLHF",
    package="gem_openrlhf",
    distribution="openrlhf",
    minimum="0.10",
    below="0.12",
    hook="python -m gem_openrlhf.train_ppo_ray in the place of openrlhf.cli.train_ppo_ray",
    hook_modules=("gem_openrlhf.train_ppo_ray",),
)


def __getattr__(name: str) -> object:
    if not name.startswith("__"):
        SUPPORTED.require()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
