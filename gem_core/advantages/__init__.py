"""Turn-level advantage estimators: ReBN, REINFORCE, GRPO, RLOO, GAE, and others.

Each estimator takes lists of episodes and needs numpy only. Its method `tensors` takes the (rows, tokens)
tensors of a trainer's batch, and needs torch. `get_estimator` finds estimators by name.
"""

from __future__ import annotations

from gem_core.advantages._baselines import rae, remax, update_role_baselines
from gem_core.advantages._batch import with_threads
from gem_core.advantages._critic import gae
from gem_core.advantages._groups import dr_grpo, gdpo, grpo, maxrl, opo, reinforce_plus_plus_baseline, rloo
from gem_core.advantages._registry import Estimator, estimator, get_estimator, list_estimators
from gem_core.advantages._returns import normalize, rebn, reinforce, reinforce_plus_plus, returns, to_tokens
from gem_core.advantages._stats import ReturnStats
from gem_core.advantages._threads import Threads
from gem_core.advantages._turn_groups import gigpo, mt_grpo

__all__ = [
    "Estimator",
    "ReturnStats",
    "Threads",
    "dr_grpo",
    "estimator",
    "gae",
    "gdpo",
    "get_estimator",
    "gigpo",
    "grpo",
    "list_estimators",
    "maxrl",
    "mt_grpo",
    "normalize",
    "opo",
    "rae",
    "rebn",
    "reinforce",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "remax",
    "returns",
    "rloo",
    "to_tokens",
    "update_role_baselines",
    "with_threads",
]
