"""Comparison of trainers with gem_core, in one step and over whole runs.

A `Record` holds the inputs of a trainer's loss in one step, with the same tasks and responses for all
trainers. `compare` compares it with the record of gem_core itself, level by level:

1. rollout: tokens, turns, rewards, flags, and stop reasons of every episode are equal;
2. advantages: the loss uses the advantages that gem_core's estimator computes;
3. update: the gradient before the optimizer step equals the gradient of the reference trainer.

Level 4, `compare_learning`, compares whole runs over seeds by their success after training.
"""

from __future__ import annotations

from gem_lab.consistency._compare import compare
from gem_lab.consistency._record import Played, Record

__all__ = [
    "Played",
    "Record",
    "compare",
]
