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

from gem_core.trainers.exports import lazy_exports
from gem_core.trainers.plugin import SupportedTrainer, TrainerPlugin

SUPPORTED = SupportedTrainer(
    name="TRL",
    package="gem_trl",
    distribution="trl",
    versions=">=1.12,<1.17",
    hook="GemGRPOTrainer in your script, or python -m gem_trl.grpo with TRL's own flags",
    hook_modules=("gem_trl.trainer", "gem_trl.grpo"),
    supplies=(
        "group_ids",
        "lengths",
        "env_ids",
        "agent_ids",
        "state_keys",
        "reward_components",
        "truncated",
    ),
)
TRAINER = TrainerPlugin(
    SUPPORTED,
    exporter="gem_trl.dataset:write",
    recipe_writer="gem_trl.repro:write",
    preflight="gem_trl.grpo:check",
)

__getattr__, __dir__ = lazy_exports(
    SUPPORTED,
    {
        "config": ["GemConfig"],
        "dataset": ["tasks"],
        "playing": ["rollout"],
        "rewards": ["episode_return"],
        "tool_loop": ["environment"],
        "trainer": ["GemGRPOTrainer"],
    },
)
