"""GEM environments and ReBN inside verl.

This version names what it supports; the rollout worker and the advantage function are not in it yet.
Any use raises a clear error when verl is missing or has another version.
"""

from __future__ import annotations

from gem_core.integration import SupportedTrainer

SUPPORTED = SupportedTrainer(
    name="verl",
    package="gem_verl",
    distribution="verl",
    minimum="0.9",
    below="0.10",
    hook='the "verl.plugins" entry point, or algorithm and rollout class names in the config',
    hook_modules=("gem_verl.plugin", "gem_verl.dataset"),
    entry_point=("verl.plugins", "gem_core"),
)


def __getattr__(name: str) -> object:
    if not name.startswith("__"):
        SUPPORTED.require()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
