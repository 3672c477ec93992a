"""Compare an upstream estimator with ours, and an entry with the code it names."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from importlib.metadata import version
from operator import attrgetter
from typing import Any

import numpy as np

from tests.trainers.upstream.batches import Batch, ours
from tests.trainers.upstream.entries import VERSIONS, Entry, entries

Call = Callable[[Batch], Any]
"""An upstream estimator: returns advantages as a matrix (N, T), read at the response tokens."""

TOLERANCE = 1e-6

DISTRIBUTIONS = {"oat": "oat-llm", "rl2": "rl-square"}
PACKAGES = {"rl2": "RL2"}


def distance(entry: Entry, call: Call, changes: dict[str, Any]) -> float:
    """Return the largest difference over all batches, relative to advantages above 1."""
    assert entry.ours is not None
    largest = 0.0
    for batch in entry.batches():
        theirs, mine = batch.at_tokens(call(batch)), ours(entry.ours, batch, changes)
        assert np.ptp(mine) > 0
        largest = max(largest, float(np.abs(theirs - mine).max() / max(1.0, np.abs(mine).max())))
    return largest


def check_entry(entry: Entry, call: Call) -> None:
    """Check that the estimators are equal with all changes, and differ without any one of them."""
    changes = dict(entry.changes)
    assert distance(entry, call, changes) <= TOLERANCE
    for name in changes:
        others = {key: value for key, value in changes.items() if key != name}
        assert distance(entry, call, others) > 4 * TOLERANCE, f"{name} makes no difference"


def check_current(trainer: str) -> None:
    """Check that the entries name the installed version, and functions that it has."""
    if trainer != "roll":
        assert version(DISTRIBUTIONS.get(trainer, trainer)) == VERSIONS[trainer]
    for entry in entries(trainer):
        file, _, name = entry.where.partition(": ")
        path = f"{PACKAGES.get(trainer, trainer)}/{file}".removesuffix(".py")
        function = attrgetter(name)(importlib.import_module(path.replace("/", ".")))
        assert (inspect.getsourcefile(inspect.unwrap(function)) or "").endswith(file)
