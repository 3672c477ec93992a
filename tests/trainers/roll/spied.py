"""Reads the inputs of ROLL's loss and optimizer (see ``cpu/roll_workers.py``)."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.trainers.evidence import Row, Update

PAD = 0
"""Padding token of the tiny models."""


def updates(spy: Path) -> list[Update]:
    """Return the optimizer's steps in order."""
    found, rows = [], []
    for path in sorted(spy.glob("*.pt"), key=lambda path: path.stem.split("-")[1]):
        saved = torch.load(path, weights_only=False)
        if path.name.startswith("loss"):
            rows += [_row(saved, number) for number in range(len(saved["input_ids"]))]
        else:
            found.append(Update(rows, saved["weights"], saved["gradients"]))
            rows = []
    return found


def _row(saved: dict[str, torch.Tensor], number: int) -> Row:
    """Return a row without its padding; ROLL shifts log-probs and advantages by one."""
    length = int(saved["attention_mask"][number].sum())
    mask = saved["response_mask"][number][:length].int().tolist()
    start = mask.index(1) if any(mask) else length - 1
    ids = saved["input_ids"][number][:length].tolist()

    def shifted(name: str) -> list[float]:
        values: list[float] = saved[name][number][max(start - 1, 0) : length - 1].tolist()
        return values

    off = saved["advantages"][number].clone()
    off[saved["response_mask"][number][1:].bool()] = 0
    assert not off.any()  # ROLL's token mean ignores the mask
    # If a response ends with the pad token, ROLL does not keep its last log-prob.
    padded = any(m and token == PAD for m, token in zip(mask, ids, strict=True))
    return Row(
        prompt=ids[:start],
        response=ids[start:],
        mask=mask[start:],
        advantages=shifted("advantages"),
        old=shifted("old"),
        rollout=None if padded else shifted("infer_logprobs"),
        reference=None,
    )
