"""Advantages on tensors against memory traffic alone: copying both inputs and writing two such outputs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import common
import torch

from gem_core import advantages
from gem_core.advantages import _tensors, get_estimator

ROWS, TOKENS, TURNS = 1024, 4096, 32
LIMIT, LIMIT_GROUPS = 6.0, 8.0
"""Maximum ratio to the peer, for estimators without and with groups."""

BUILTIN = (
    "rebn", "reinforce", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "grpo", "dr_grpo", "rloo",
    "opo", "maxrl", "gdpo", "mt_grpo", "gigpo", "remax", "rae", "gae",
)  # fmt: skip
READ = ("values", "reward_components")
"""Inputs with one value per token, which the peer also copies."""


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


def milliseconds(ours: Callable[[], Any], peer: Callable[[], Any], quick: bool) -> common.Pair:
    """Return our time and the time of the peer."""

    def one(work: Callable[[], Any]) -> Callable[[], int]:
        return lambda: len([work()])  # keep the result until it is complete, then free it

    return common.compare(
        one(ours), one(peer), seconds=0.02 if quick else 0.25, rounds=3 if quick else 9, clock="wall"
    ).times(1e3)


def run(quick: bool) -> list[common.Result]:
    torch.set_num_threads(2)
    rewards, mask = batch()
    number = mask.float()
    ids = _tensors.turn_ids_from_mask(mask)
    groups = torch.arange(ROWS) // 8
    half = rewards.bfloat16()

    def peer(*inputs: torch.Tensor) -> Callable[[], Any]:
        return lambda: moved(*inputs)

    needs: dict[str, Any] = {
        "group_ids": groups,
        "agent_ids": torch.arange(ROWS) % 2,
        "baselines": torch.zeros(ROWS),
        "values": rewards,
        "lengths": None,
        "state_keys": [[(row // 8 + turn) % 97 for turn in range(TURNS)] for row in range(ROWS)],
        "reward_components": rewards[:, :, None],
    }
    positive = rewards.abs()
    cases: dict[str, tuple[Callable[[], Any], Callable[[], Any], float | None]] = {
        "rebn, bool mask": (
            lambda: advantages.rebn.tensors(rewards, mask, gamma=0.9),
            peer(rewards, mask),
            None,
        ),
        "rebn, turn ids": (
            lambda: advantages.rebn.tensors(rewards, number, turn_ids=ids, gamma=0.9),
            peer(rewards, number, ids),
            None,
        ),
        "rebn, bfloat16": (
            lambda: advantages.rebn.tensors(half, number, gamma=0.9),
            peer(half, number),
            None,
        ),
    }
    for name in BUILTIN:
        estimator = get_estimator(name)
        arguments = {need: needs[need] for need in estimator.needs}
        moved_inputs = [positive, number, *(needs[n] for n in estimator.needs if n in READ)]
        compute = functools.partial(estimator.tensors, positive, number, gamma=0.9, **arguments)
        limit = LIMIT_GROUPS if "group_ids" in estimator.needs else LIMIT
        cases[name] = (compute, peer(*moved_inputs), limit)
    note = f"({ROWS}, {TOKENS}), {TURNS} turns per row, wall, 2 threads; peer: copy inputs, write 2 outputs"
    return [
        common.Result(
            f"advantages: {name}",
            *milliseconds(ours, peer_of, quick),
            unit="ms",
            at_most=limit,
            note=note,
        )
        for name, (ours, peer_of, limit) in cases.items()
    ]


if __name__ == "__main__":
    common.main(run)
