"""GEM environments and ReBN inside Oat.

This version names what it supports; the rollout worker and the advantage function are not in it yet.
Any use raises a clear error when Oat is missing or has another version.
"""

from __future__ import annotations

from gem_core.integration import SupportedTrainer

SUPPORTED = SupportedTrainer(
    name="Oat",
    package="gem_oat",
    distribution="oat-llm",
    minimum="0.2.4",
    below="0.3",
    hook="python -m gem_oat.train, with Oat's own flags",
    hook_modules=("gem_oat.train",),
)


def __getattr__(name: str) -> object:
    if not name.startswith("__"):
        SUPPORTED.require()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
