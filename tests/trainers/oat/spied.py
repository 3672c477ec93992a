"""Reads what Oat's loss and optimizer consumed from the files that ``cpu/oat_spy.py`` wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.trainers.evidence import Row, Update


@dataclass
class OatUpdate(Update):
    """One step of the optimizer, and the numbers of the environment steps collected for it."""

    begun: int
    played: int
    collected: list[str]
    """Names of the episodes."""


def updates(spy: Path) -> list[OatUpdate]:
    """Return the optimizer's steps in order, with the rows of all ranks."""
    steps = spy / "env.jsonl"  # missing if the environments are not wrapped in a spy
    lines = steps.read_text().splitlines() if steps.exists() else []
    names = [json.loads(line)["episode"] for line in lines]
    ranks = [
        _updates_of_rank(spy, pid)
        for pid in sorted({path.stem.split("-")[1] for path in spy.glob("update-*.pt")})
    ]
    for steps in zip(*ranks, strict=True):
        first = steps[0]
        for other in steps[1:]:
            assert other.played == first.played
            first.rows.extend(other.rows)
        begun = min(step.begun for step in steps)  # a rank may begin after another one has played
        first.collected = list(dict.fromkeys(names[begun : first.played]))
    return ranks[0]


@dataclass
class CriticStep:
    """One step of the critic's optimizer.

    Attributes:
        values: The critic's value of each state of a turn, by the token ids of the state.
        weights: Weights before the step.
        gradients: Gradients of all rows.
    """

    values: dict[tuple[int, ...], float]
    weights: list[torch.Tensor]
    gradients: list[torch.Tensor | None]


def critic_steps(spy: Path) -> list[CriticStep]:
    """Return the steps of the critic of a run with one learner, in order."""
    found: list[CriticStep] = []
    values: dict[tuple[int, ...], float] = {}
    paths = [path for kind in ("value", "critic") for path in spy.glob(f"{kind}-*.pt")]
    for path in sorted(paths, key=lambda path: path.stem.split("-")[2]):
        saved = torch.load(path, weights_only=False)
        if path.name.startswith("value"):
            values[tuple(saved["state"])] = saved["values"][-1]
        else:
            found.append(CriticStep(values, saved["weights"], saved["gradients"]))
            values = {}
    return found


def _updates_of_rank(spy: Path, pid: str) -> list[OatUpdate]:
    found: list[OatUpdate] = []
    rows: list[Row] = []
    batch: dict[str, Any] = {}
    paths = [path for kind in ("batch", "loss", "update") for path in spy.glob(f"{kind}-{pid}-*.pt")]
    for path in sorted(paths, key=lambda path: path.stem.split("-")[2]):
        saved = torch.load(path, weights_only=False)
        if path.name.startswith("batch"):
            batch = saved
        elif path.name.startswith("loss"):
            rows += [_row(saved, number, batch["sampled"]) for number in range(len(saved["loss"]))]
        else:
            weights, gradients = saved["weights"], saved["gradients"]
            assert rows, "the spy has seen no loss before this update"
            found.append(OatUpdate(rows, weights, gradients, batch["begun"], batch["played"], []))
            rows = []
    return found


def _row(saved: dict[str, Any], number: int, sampled: dict[tuple[int, ...], Any]) -> Row:
    """Read a row; column n of the loss belongs to token n + 1, and its policy term is minus the advantage."""
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
