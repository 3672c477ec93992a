"""Turn-level advantage estimators: ReBN, REINFORCE, GRPO, RLOO and GAE.

The functions of this package need numpy only and take lists of episodes (`reference`). The same estimators
for (rows, tokens) tensors are in `gem_core.advantages.tensors`, which needs torch.
`gem_core.advantages.registry` returns either form by name.
"""

from gem_core.advantages.reference import (
    gae,
    grpo,
    normalize,
    rebn,
    reinforce,
    returns,
    rloo,
    to_tokens,
)
from gem_core.advantages.stats import ReturnStats

__all__ = [
    "ReturnStats",
    "gae",
    "grpo",
    "normalize",
    "rebn",
    "reinforce",
    "returns",
    "rloo",
    "to_tokens",
]
