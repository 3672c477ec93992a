"""Advantages on tensors against moving the same memory: copy both inputs, write two outputs of that size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import common
import torch

from gem_core.advantages import tensors

ROWS, TOKENS, TURNS = 1024, 4096, 32
LIMIT = 6.0


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Return float32 rewards on every token, as with a KL penalty, and a mask of 32 unequal turns per row."""
    generator = torch.Generator().manual_seed(0)
    width = TOKENS // TURNS
    context = torch.randint(1, width // 2, (ROWS, TURNS, 1), generator=generator)
    mask = torch.arange(width) >= context
    return torch.randn(ROWS, TOKENS, generator=generator), mask.view(ROWS, TOKENS)


def moved(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return new copies of the inputs and two new outputs; this is the peer, which also allocates memory."""
    return (*(tensor.clone() for tensor in inputs), *(torch.full((ROWS, TOKENS), 1.0) for _ in range(2)))


def milliseconds(ours: Callable[[], Any], peer: Callable[[], Any], quick: bool) -> tuple[float, ...]:
    """Return our time, the time of the peer, and their ratio."""

    def one(work: Callable[[], Any]) -> Callable[[], int]:
        return lambda: len([work()])  # keep the result until it is complete, then free it

    pair = common.compare(
        one(ours), one(peer), seconds=0.02 if quick else 0.25, rounds=3 if quick else 9, clock="wall"
    )
    return 1e3 / pair.ours, 1e3 / pair.peer, 1 / pair.ratio


def run(quick: bool) -> list[common.Result]:
    torch.set_num_threads(2)
    rewards, mask = batch()
    number = mask.float()
    ids = tensors.turn_ids_from_mask(mask)
    groups = torch.arange(ROWS) // 8
    half = rewards.bfloat16()

    def peer(*inputs: torch.Tensor) -> Callable[[], Any]:
        return lambda: moved(*inputs)

    cases: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "rebn": (lambda: tensors.rebn(rewards, number, gamma=0.9), peer(rewards, number)),
        "rebn, bool mask": (lambda: tensors.rebn(rewards, mask, gamma=0.9), peer(rewards, mask)),
        "rebn, turn ids": (
            lambda: tensors.rebn(rewards, number, turn_ids=ids, gamma=0.9),
            peer(rewards, number, ids),
        ),
        "rebn, bfloat16": (lambda: tensors.rebn(half, number, gamma=0.9), peer(half, number)),
        "grpo": (lambda: tensors.grpo(rewards, number, groups), peer(rewards, number)),
        "gae": (
            lambda: tensors.gae(rewards, number, rewards, gamma=0.9),
            peer(rewards, number, rewards),
        ),
    }
    note = f"({ROWS}, {TOKENS}), {TURNS} turns a row, wall, 2 threads; peer: copy inputs, write 2 outputs"
    return [
        common.Result(
            f"advantages: {name}",
            *milliseconds(ours, peer_of, quick),
            unit="ms",
            at_most=LIMIT if name == "rebn" else None,
            note=note,
        )
        for name, (ours, peer_of) in cases.items()
    ]


if __name__ == "__main__":
    common.main(run)
