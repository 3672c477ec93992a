"""GEM environments and per-turn advantages inside an unmodified TRL.

    from gem_trl import GemConfig, GemGRPOTrainer, tasks

    trainer = GemGRPOTrainer(
        "Qwen/Qwen3-1.7B",
        args=GRPOConfig(...),
        train_dataset=tasks(["game:GuessTheNumber-v0"], 10_000),
        gem=GemConfig(estimator="rebn", gamma=0.9),
    )
    trainer.train()

The classes and functions are imported on first use; this module needs no TRL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core.trainers import SupportedTrainer, TrainerPlugin, lazy_exports
from gem_core.trainers._plugin import EPISODE_SUPPLIES

if TYPE_CHECKING:
    from gem_trl._config import GemConfig
    from gem_trl._dataset import tasks
    from gem_trl._playing import rollout
    from gem_trl._rewards import episode_return
    from gem_trl._tool_loop import environment
    from gem_trl._trainer import GemGRPOTrainer

__all__ = [
    "GemConfig",
    "GemGRPOTrainer",
    "TRAINER",
    "environment",
    "episode_return",
    "rollout",
    "tasks",
]

_SUPPORTED = SupportedTrainer(
    name="TRL",
    package="gem_trl",
    distribution="trl",
    versions=">=1.12,<1.17",
    hook="GemGRPOTrainer in your script, or python -m gem_trl.grpo with TRL's own flags",
    hook_modules=("gem_trl._trainer", "gem_trl.grpo"),
    supplies=EPISODE_SUPPLIES,
)
TRAINER = TrainerPlugin(
    _SUPPORTED,
    exporter="gem_trl._dataset:write",
    recipe_writer="gem_trl._repro:write",
    preflight="gem_trl._grpo:check",
    conform="gem_trl._conform:estimators",
)

__getattr__, __dir__ = lazy_exports(
    _SUPPORTED,
    {
        "_config": ["GemConfig"],
        "_dataset": ["tasks"],
        "_playing": ["rollout"],
        "_rewards": ["episode_return"],
        "_tool_loop": ["environment"],
        "_trainer": ["GemGRPOTrainer"],
    },
)
