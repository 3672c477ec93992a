"""GEM environments and ReBN inside an unmodified ROLL.

    pipeline_cls: gem_roll.ReBNAgenticPipeline
    custom_envs:
      Guess:
        env_type: gem_core:game:GuessTheNumber-v0-easy
        env_manager_cls: gem_roll.GemTrajEnvManager

The classes named in a YAML are imported on first use; this module needs no ROLL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core.trainers import SupportedTrainer, TrainerPlugin, lazy_exports
from gem_core.trainers._plugin import EPISODE_SUPPLIES

if TYPE_CHECKING:
    from gem_roll._managers import GemStepEnvManager, GemTrajEnvManager
    from gem_roll._pipeline import ReBNAgenticPipeline

__all__ = [
    "GemStepEnvManager",
    "GemTrajEnvManager",
    "ReBNAgenticPipeline",
    "TRAINER",
]

_SUPPORTED = SupportedTrainer(
    name="ROLL",
    package="gem_roll",
    distribution="roll",
    versions=">=0.3,<0.4",
    hook="pipeline_cls and env_manager_cls in the pipeline's YAML",
    home_variable="ROLL_HOME",
    checkout_module="roll.pipeline",
    on_index=False,
    hook_modules=("gem_roll._pipeline", "gem_roll._managers"),
    supplies=EPISODE_SUPPLIES,
)
TRAINER = TrainerPlugin(
    _SUPPORTED,
    recipe_writer="gem_roll._repro:write",
    preflight="gem_roll._preflight:check",
    conform="gem_roll._conform:estimators",
)

__getattr__, __dir__ = lazy_exports(
    _SUPPORTED,
    {"_managers": ["GemTrajEnvManager", "GemStepEnvManager"], "_pipeline": ["ReBNAgenticPipeline"]},
)
