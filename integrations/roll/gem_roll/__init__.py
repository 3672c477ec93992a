"""GEM environments and ReBN inside an unmodified ROLL.

    pipeline_cls: gem_roll.ReBNAgenticPipeline
    custom_envs:
      Guess:
        env_type: gem_core:game:GuessTheNumber-v0-easy
        env_manager_cls: gem_roll.GemTrajEnvManager

The classes named in a YAML are imported on first use; this module needs no ROLL.
"""

from __future__ import annotations

from pathlib import Path

from gem_core.trainers.exports import lazy_exports
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
INTERFACE = Path(__file__).with_name("interface.json")
"""The parts of ROLL that this plugin overrides or calls."""
TRAINER = TrainerPlugin(SUPPORTED, recipe_writer="gem_roll.repro:write")

__getattr__, __dir__ = lazy_exports(
    SUPPORTED,
    {"GemTrajEnvManager": "managers", "GemStepEnvManager": "managers", "ReBNAgenticPipeline": "pipeline"},
)
