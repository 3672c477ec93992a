"""Whether trainers compute what gem_core computes, in one step and over whole runs.

A record holds what a trainer's loss consumed in one step on tasks and answers that are the same for
all trainers (`Record`). `compare` puts it beside the record of gem_core itself, level by level:

1. rollout: tokens, turns, rewards, flags and stop reasons of every episode are equal;
2. advantages: what the loss consumed equals what gem_core's estimator gives;
3. update: the gradient before the optimizer's step equals that of the reference trainer.

`compare_learning` compares whole runs, level 4: success after training, over seeds.
"""

from gem_core.consistency.compare import Comparison, ConsistencyLevel, compare
from gem_core.consistency.learning import Equivalence, LearningRun, compare_learning, read_runs
from gem_core.consistency.record import Played, Record, read_records

__all__ = [
    "Comparison",
    "Equivalence",
    "LearningRun",
    "ConsistencyLevel",
    "Played",
    "Record",
    "compare",
    "compare_learning",
    "read_records",
    "read_runs",
]
