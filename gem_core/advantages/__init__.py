"""Advantages at the level of turns: ReBN and its neighbours.

This package is numpy only: lists of episodes in, lists of arrays out (`reference`). The same
estimators on (rows, tokens) tensors live in `gem_core.advantages.tensors`, which needs torch, and
`gem_core.advantages.registry` finds either form by name.
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
