"""Which advantage estimators count what: exact batches, and a grade for each estimator.

`batches.json` is data for any project: batches of rows, with the exact advantages of every turn as fractions.
A turn has its row within the episode, its response tokens, its reward, the number of tokens before it in the
row (`gap`), and its thread (`gem_core.advantages.Threads`). An episode that failed is one masked row.

    estimators = {"mine": GradedEstimator("group mean", my_function)}     # of `ExactRows`, to (rows, tokens)
    grades = grade_estimators(estimators)
"""

from __future__ import annotations

from gem_lab._conform._grade import GradedEstimator, estimators_of_plugin, grade_estimators
from gem_lab._conform._rows import ExactRows, read_batches

__all__ = ["ExactRows", "GradedEstimator", "estimators_of_plugin", "grade_estimators", "read_batches"]
