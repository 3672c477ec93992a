"""GEM environments and ReBN inside an unmodified Oat.

    python -m gem_oat.train <Oat's flags> --env-id game:GuessTheNumber-v0-easy --gamma 0.9

`Actor`, `Learner` and `Args` are subclasses of Oat's own, to be used or subclassed like those. They
are imported when asked for; this module needs no Oat.
"""

from __future__ import annotations

import importlib

from gem_core.trainers.plugin import SupportedTrainer, TrainerPlugin

SUPPORTED = SupportedTrainer(
    name="Oat",
    package="gem_oat",
    distribution="oat-llm",
    minimum="0.2.4",
    below="0.3",
    hook="python -m gem_oat.train, with Oat's own flags",
    hook_modules=("gem_oat.train", "gem_oat.actor", "gem_oat.learner"),
)
TRAINER = TrainerPlugin(SUPPORTED, recipe_writer="gem_oat.repro:write")

_HOMES = {"Actor": "actor", "Args": "args", "Learner": "learner"}


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    SUPPORTED.require()
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(_HOMES)}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
