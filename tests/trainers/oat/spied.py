"""What Oat's loss consumed and its optimizer was given, from the files that ``cpu/oat_spy.py`` wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.trainers.evidence import Row, Update


@dataclass
class OatUpdate(Update):
    """One step of the optimizer, and the names of the episodes that were collected for it."""

    collected: list[str]


def updates(spy: Path) -> list[OatUpdate]:
    """The optimizer's steps in order, the rows of all ranks together."""
    names = [json.loads(line)["episode"] for line in (spy / "env.jsonl").read_text().splitlines()]
    ranks = [
        _updates_of_rank(spy, pid, names)
        for pid in sorted({path.stem.split("-")[1] for path in spy.glob("*.pt")})
    ]
    for steps in zip(*ranks, strict=True):
        for other in steps[1:]:
            assert other.collected == steps[0].collected
            steps[0].rows.extend(other.rows)
    return ranks[0]


def _updates_of_rank(spy: Path, pid: str, names: list[str]) -> list[OatUpdate]:
    found: list[OatUpdate] = []
    rows: list[Row] = []
    before, played, sampled = 0, 0, {}
    for path in sorted(spy.glob(f"*-{pid}-*.pt"), key=lambda path: path.stem.split("-")[2]):
        saved = torch.load(path, weights_only=False)
        if path.name.startswith("batch"):
            before, played, sampled = played, saved["played"], saved["sampled"]
        elif path.name.startswith("loss"):
            rows += [_row(saved, number, sampled) for number in range(len(saved["loss"]))]
        else:
            collected = list(dict.fromkeys(names[before:played]))
            found.append(OatUpdate(rows, saved["weights"], saved["gradients"], collected))
            rows = []
    return found


def _row(saved: dict[str, Any], number: int, sampled: dict[tuple[int, ...], Any]) -> Row:
    """Column n of the loss is about token n + 1; the policy's part of it is minus the advantage."""
    tokens = saved["input_ids"][number][saved["att_mask"][number].bool()].tolist()
    prompt_length, rollout = sampled[tuple(tokens)]
    columns = slice(prompt_length - 1, len(tokens) - 1)
    mask = saved["mask"][number].int().tolist()
    assert not any(mask[: columns.start]), "a token of the prompt is in the loss"
    assert not any(mask[columns.stop :]), "padding is in the loss"
    return Row(
        prompt=tokens[:prompt_length],
        response=tokens[prompt_length:],
        mask=mask[columns],
        advantages=(-saved["loss"][number])[columns].tolist(),
        old=saved["logps"][number][columns].tolist(),
        rollout=rollout,
        reference=None,
    )
