"""Which advantage estimators count what: exact batches, and a grade for each estimator.

`batches.json` is data for any project: batches of rows, with the exact advantages of every turn as fractions.
A turn has its row within the episode, its response tokens, its reward, the number of tokens before it in the
row (`gap`), and its thread (`gem_core.advantages.Threads`). An episode that failed is one masked row.

    estimators = {"mine": Estimator("group mean", my_function)}     # of `Rows`, to (rows, tokens)
    grades = grade(estimators)
"""

from __future__ import annotations

from gem_lab._conform._grade import Estimator, grade
from gem_lab._conform._rows import Rows, read_batches

__all__ = ["Estimator", "Rows", "grade", "read_batches"]
