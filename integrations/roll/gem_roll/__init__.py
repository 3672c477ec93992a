"""GEM environments and ReBN inside an unmodified ROLL.

    pipeline_cls: gem_roll.ReBNAgenticPipeline
    custom_envs:
      Guess:
        env_type: gem_core:game:GuessTheNumber-v0-easy
        env_manager_cls: gem_roll.GemTrajEnvManager

The classes that a YAML names are imported when ROLL asks for them; this module needs no ROLL.
"""

from __future__ import annotations

import importlib

from gem_core.trainers.plugin import SupportedTrainer, TrainerPlugin

SUPPORTED = SupportedTrainer(
    name="ROLL",
    package="gem_roll",
    distribution="roll",
    minimum="0.3",
    below="0.4",
    hook="pipeline_cls and env_manager_cls in the pipeline's YAML",
    home_variable="ROLL_HOME",
    checkout_module="roll.pipeline",
    on_index=False,
    hook_modules=("gem_roll.pipeline", "gem_roll.managers"),
)
TRAINER = TrainerPlugin(SUPPORTED, exporter="gem_roll.export:write", recipe_writer="gem_roll.repro:write")

_HOMES = {
    "GemTrajEnvManager": "managers",
    "GemStepEnvManager": "managers",
    "TrajEnvManager": "managers",
    "StepEnvManager": "managers",
    "ReBNAgenticPipeline": "pipeline",
}


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    SUPPORTED.require()
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(_HOMES)}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
