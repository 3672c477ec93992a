"""Whether a trainer computes what gem_core computes: records of one step, and their comparison.

A record holds what a trainer's loss consumed in one step on tasks and answers that are the same for
all trainers (`Record`). `compare` puts it beside the record of gem_core itself, level by level:

1. rollout: tokens, turns, rewards, flags and stop reasons of every episode are equal;
2. advantages: what the loss consumed equals what gem_core's estimator gives;
3. update: the gradient before the optimizer's step equals that of the reference trainer.
"""

from gem_core.consistency.compare import Comparison, Level, compare
from gem_core.consistency.record import Played, Record, read_records

__all__ = ["Comparison", "Level", "Played", "Record", "compare", "read_records"]
