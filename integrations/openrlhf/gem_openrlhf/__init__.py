"""GEM environments and ReBN inside an unmodified OpenRLHF.

    python -m gem_openrlhf.train_ppo_ray <OpenRLHF's flags> --algo.advantage.estimator rebn \\
        --train.agent_func_path $(gem-core path openrlhf-agent) ...

Your own agent file can subclass `GemExecutor`; OpenRLHF is imported only then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core.trainers import SupportedTrainer, TrainerPlugin, lazy_exports
from gem_core.trainers._plugin import EPISODE_SUPPLIES

if TYPE_CHECKING:
    from gem_openrlhf._executor import GemExecutor

__all__ = [
    "GemExecutor",
    "TRAINER",
]

_SUPPORTED = SupportedTrainer(
    name="OpenRLHF",
    package="gem_openrlhf",
    distribution="openrlhf",
    versions=">=0.11.0,<0.12",
    hook="python -m gem_openrlhf.train_ppo_ray, or gem_openrlhf.hooks.setup as Ray's setup hook",
    hook_modules=("gem_openrlhf.train_ppo_ray", "gem_openrlhf.hooks", "gem_openrlhf.agent"),
    own_estimators=(
        "dr_grpo",
        "flash_reinforce",
        "gae",
        "group_norm",
        "reinforce",
        "reinforce_baseline",
        "rloo",
    ),
    supplies=EPISODE_SUPPLIES,
)
TRAINER = TrainerPlugin(
    _SUPPORTED,
    exporter="gem_openrlhf._labels:write",
    recipe_writer="gem_openrlhf._repro:write",
    files={"agent": "gem_openrlhf.agent"},
    preflight="gem_openrlhf._train_ppo_ray:check",
    conform="gem_openrlhf._conform:estimators",
)

__getattr__, __dir__ = lazy_exports(_SUPPORTED, {"_executor": ["GemExecutor"]})
