"""GEM environments and ReBN inside an unmodified verl.

    python -m verl.trainer.main_ppo <your config> algorithm.adv_estimator=rebn \\
        +actor_rollout_ref.rollout.agent.agent_loop_manager_class=gem_verl.GemAgentLoopManager ...

verl imports the classes named in a config on first use; this module works without verl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core.trainers import SupportedTrainer, TrainerPlugin, lazy_exports
from gem_core.trainers._plugin import EPISODE_SUPPLIES

if TYPE_CHECKING:
    from gem_verl._dataset import GemDataset
    from gem_verl._manager import GemAgentLoopManager

__all__ = [
    "GemAgentLoopManager",
    "GemDataset",
    "TRAINER",
]

_SUPPORTED = SupportedTrainer(
    name="verl",
    package="gem_verl",
    distribution="verl",
    versions=">=0.9.1,<0.10",
    hook='the "verl.plugins" entry point, and class names in the config',
    hook_modules=("gem_verl.plugin", "gem_verl.dataset"),
    entry_point=("verl.plugins", "gem_core"),
    required_features=(
        ("0.7", "rollout.agent.agent_loop_manager_class"),
        ("0.8", "reward per token in the output of an agent loop"),
        ("0.9", "v1 trainer to register a mode with"),
        ("0.9.1", "validation metrics that skip an episode without a value"),
    ),
    own_estimators=(
        "gae",
        "gdpo",
        "gpg",
        "grpo",
        "grpo_passk",
        "grpo_vectorized",
        "opo",
        "optimal_token_baseline",
        "reinforce_plus_plus",
        "reinforce_plus_plus_baseline",
        "remax",
        "rloo",
        "rloo_vectorized",
        "tir_optimal_token_baseline",
    ),
    supplies=(*EPISODE_SUPPLIES, "values"),
)
TRAINER = TrainerPlugin(
    _SUPPORTED,
    exporter="gem_verl._rows:write",
    recipe_writer="gem_verl._repro:write",
    preflight="gem_verl._preflight:check",
    conform="gem_verl._conform:estimators",
)

__getattr__, __dir__ = lazy_exports(
    _SUPPORTED,
    {
        "_manager": ["GemAgentLoopManager"],
        "_dataset": ["GemDataset"],
    },
)
