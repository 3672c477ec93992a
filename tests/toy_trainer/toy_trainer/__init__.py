"""Stub of a third-party trainer and its plugin in one package; it trains nothing."""

from __future__ import annotations

from gem_core.trainers import SupportedTrainer, TrainerPlugin

TRAINER = TrainerPlugin(
    SupportedTrainer(
        name="Toy",
        package="toy_trainer",
        distribution="toy-trainer",
        versions=">=1,<2",
        hook="python -m toy_trainer",
        hook_modules=("toy_trainer.agent",),
    ),
    exporter="toy_trainer.export:write",
    recipe_writer="toy_trainer.repro:write",
    step_recorder="toy_trainer.record:record_step",
    learning_recorder="toy_trainer.record:record_learning",
    files={"agent": "toy_trainer.agent"},
)
