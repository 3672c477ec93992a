"""Reads what RL2's loss and optimizer consumed from the files that ``cpu/rl2_spy.py`` wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from tests.trainers.evidence import Row, Update


def updates(spy: Path, model: Any) -> list[Update]:
    """Return the optimizer's steps in order, with rows of all ranks and tensors in the order of `model`."""
    ranks = [
        updates_of_rank(spy, rank, model)
        for rank in sorted({path.stem.split("-")[1] for path in spy.glob("*.pt")})
    ]
    for steps in zip(*ranks, strict=True):
        for other in steps[1:]:
            steps[0].rows.extend(other.rows)
    return ranks[0]


def updates_of_rank(spy: Path, rank: str, model: Any) -> list[Update]:
    names = [name for name, _ in model.named_parameters()]
    found, rows = [], []
    for path in sorted(spy.glob(f"*-{rank}-*.pt"), key=lambda path: path.stem.split("-")[2]):
        saved = torch.load(path, weights_only=False)
        if path.name.startswith("loss"):
            rows += rows_of(saved)
        else:
            weights, gradients = saved["weights"], saved["gradients"]
            assert set(weights) == set(names)
            found.append(Update(rows, [weights[n] for n in names], [gradients[n] for n in names]))
            rows = []
    return found


def rows_of(saved: dict[str, list[list[Any]]]) -> list[Row]:
    """Read the rows; RL2 predicts token t + 1 at position t, from states without the last token."""
    rows = []
    for index, states in enumerate(saved["states"]):
        mask = saved["action_mask"][index]
        if not any(mask):
            rows.append(Row([], [], [], saved["advantages"][index], [], None, None))
            continue
        start = mask.index(1) + 1
        last = [
            a if m else s for a, m, s in zip(saved["actions"][index], mask, [*states[1:], 0], strict=True)
        ]
        tokens = [states[0], *last]
        assert tokens[:-1] == states
        column = {name: values[index][start - 1 :] for name, values in saved.items() if name != "states"}
        rows.append(
            Row(
                tokens[:start],
                tokens[start:],
                mask[start - 1 :],
                column["advantages"],
                column["logps"],
                column["llm_logps"],
                column.get("ref_logps"),
            )
        )
        assert not any(saved["advantages"][index][: start - 1])
    return rows


def sampled(spy: Path) -> list[list[dict[str, list[Any]]]]:
    """Return the columns of the sampled tokens of each row, for each step of the optimizer of one rank."""
    found: list[list[dict[str, list[Any]]]] = [[]]
    for path in sorted(spy.glob("*-0-*.pt"), key=lambda path: path.stem.split("-")[2]):
        if not path.name.startswith("loss"):
            found.append([])
            continue
        saved = torch.load(path, weights_only=False)
        for index, mask in enumerate(saved["action_mask"]):
            places = [place for place, on in enumerate(mask) if on]
            row = {name: [values[index][place] for place in places] for name, values in saved.items()}
            found[-1].append(row)
    return found[:-1]


def join_aborted(spy: Path) -> int:
    """Join the requests around each pause in ``engine.jsonl`` into one; return how many were cut."""
    requests = [json.loads(line) for line in (spy / "engine.jsonl").read_text().splitlines()]
    whole: list[dict[str, Any]] = []
    aborted = [request for request in requests if request["finish_reason"] == "abort"]
    begun = [request for request in aborted if request["response"]]
    for request in requests:
        if request["finish_reason"] == "abort":
            continue
        while before := [b for b in begun if b["prompt"] + b["response"] == request["prompt"]]:
            (first,) = before
            begun.remove(first)
            request = {
                **request,
                "prompt": first["prompt"],
                "response": first["response"] + request["response"],
                "logprobs": first["logprobs"] + request["logprobs"],
            }
        whole.append(request)
    (spy / "engine.jsonl").write_text("".join(json.dumps(request) + "\n" for request in whole))
    return len(aborted)
