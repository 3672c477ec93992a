"""Turn-level advantage estimators: ReBN, REINFORCE, GRPO, RLOO, GAE, and others.

The functions of this package need numpy only and take lists of episodes. The same estimators for (rows,
tokens) tensors are in `gem_core.advantages.tensors`, which needs torch. `gem_core.advantages.registry`
returns either form by name.
"""

from gem_core.advantages.baselines import rae, remax, update_role_baselines
from gem_core.advantages.critic import gae
from gem_core.advantages.groups import dr_grpo, gdpo, grpo, maxrl, opo, reinforce_plus_plus_baseline, rloo
from gem_core.advantages.returns import normalize, rebn, reinforce, reinforce_plus_plus, returns, to_tokens
from gem_core.advantages.stats import ReturnStats
from gem_core.advantages.turn_groups import gigpo, mt_grpo

__all__ = [
    "ReturnStats",
    "dr_grpo",
    "gae",
    "gdpo",
    "gigpo",
    "grpo",
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
]
