"""GEM environments and ReBN inside ROLL.

This version names what it supports; the rollout worker and the advantage function are not in it yet.
Any use raises a clear error when ROLL is missing or has another version.
"""

from __future__ import annotations

from gem_core.integration import SupportedTrainer

SUPPORTED = SupportedTrainer(
    name="ROLL",
    package="gem_roll",
    distribution="roll",
    minimum="0.1",
    below="1",
    hook="pipeline_cls and env_manager_cls in the pipeline's YAML",
    home_variable="ROLL_HOME",
    checkout_module="roll.pipeline",
    on_index=False,
    hook_modules=("gem_roll.pipeline",),
)


def __getattr__(name: str) -> object:
    if not name.startswith("__"):
        SUPPORTED.require()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
