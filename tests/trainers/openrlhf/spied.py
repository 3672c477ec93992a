"""Reads the files of `openrlhf_spy` in the format of the shared checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tests.trainers.evidence import Row, Update, steps_of_ranks, updates_of_ranks


def updates(spy: Path) -> list[Update]:
    """Return the optimizer's steps in order, with the rows of all ranks together."""
    return updates_of_ranks(spy, _updates_of_rank)


def ranks(spy: Path) -> list[list[Update]]:
    """Return the optimizer's steps of each rank, with its own rows."""
    return steps_of_ranks(spy, _updates_of_rank)


def losses(spy: Path) -> list[dict[str, Any]]:
    """Return the inputs of each call of the loss: lists of rows, by name."""
    return [torch.load(path) for path in _in_order(spy.glob("loss-*.pt"))]


def _in_order(paths: Any) -> list[Path]:
    return sorted(paths, key=lambda path: path.stem.split("-")[1:])


def _updates_of_rank(spy: Path, pid: str) -> list[Update]:
    result: list[Update] = []
    rows: list[Row] = []
    for path in _in_order(spy.glob(f"*-{pid}-*.pt")):
        saved = torch.load(path)
        if path.name.startswith("loss"):
            rows += rows_of(saved)
        else:
            result.append(Update(rows, saved["weights"], saved["gradients"]))
            rows = []
    assert not rows, "a loss without a step of the optimizer"
    return result


def rows_of(saved: dict[str, Any]) -> list[Row]:
    """Return the rows of a micro-batch; column j of OpenRLHF's tensors is for token j + 1."""
    rows = []
    for index, tokens in enumerate(saved["sequences"]):
        mask = [int(value) for value in saved["mask"][index]]
        start = mask.index(1) if any(mask) else 0
        part = slice(start, len(tokens) - 1)
        assert not any(mask[len(tokens) - 1 :])
        columns = [saved[name] and saved[name][index][part] for name in COLUMNS]
        rows.append(Row(tokens[: start + 1], tokens[start + 1 :], mask[part], *columns))
    return rows


COLUMNS = ("advantages", "old", "rollout", "reference")
