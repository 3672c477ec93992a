"""Estimators on a batch that is spread over the ranks of a process group. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gem_core.advantages._batch import Turns
from gem_core.advantages._inputs import IDS, PER_EPISODE
from gem_core.errors import ConfigError, NonFiniteReward

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

PER_TURN = ("values", "lengths", "reward_components", "state_keys")
"""Arguments of estimators with one entry per turn."""


class Ranks:
    """The ranks that compute advantages together, for one call of an estimator on each of them.

    Each rank calls `gather` or `give_up` once, so that none waits for a rank that has failed.

    Args:
        group: Group of `torch.distributed`; None for this process alone.
        call: Estimator and options, which must be the same on all ranks.
    """

    def __init__(self, group: ProcessGroup | None, call: object) -> None:
        self._group, self._call = group, repr(call)
        self._done = group is None

    def gather(self, part: Any) -> list[Any]:
        """Return the parts of all ranks, in the order of the ranks.

        Raises:
            NonFiniteReward: Another rank has failed; the message names it.
            ConfigError: Another rank calls the estimator with other options.
        """
        if self._group is None:
            return [part]
        self._done = True
        calls, parts = zip(*self._exchange((self._call, part)), strict=True)
        failed = [rank for rank, call in enumerate(calls) if call is None]
        if failed:
            raise NonFiniteReward(
                f"rank {failed[0]} of the process group could not compute its returns: see its error"
            )
        for rank, call in enumerate(calls):
            if call != calls[0]:
                raise ConfigError(f"ranks 0 and {rank} of the process group differ: {calls[0]} and {call}")
        return [*parts]

    def give_up(self) -> None:
        """Let the other ranks know that this one has failed, unless they have its part."""
        if not self._done:
            self._done = True
            self._exchange((None, None))

    def _exchange(self, message: tuple[str | None, Any]) -> list[tuple[str | None, Any]]:
        import torch.distributed as dist

        messages: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(messages, message, group=self._group)
        return messages


def pack(turns: Turns, arguments: Mapping[str, Any], *, with_lengths: bool) -> dict[str, Any]:
    """Return the turns of this rank with the arguments that belong to them, a few numbers per turn.

    Args:
        turns: The turns.
        arguments: Arguments of the estimator.
        with_lengths: Whether the estimator takes the lengths of turns.
    """
    part: dict[str, Any] = {"rewards": turns.rewards, "index": turns.index, "threads": turns.threads}
    for name, value in arguments.items():
        if value is None:
            continue
        if name in IDS:
            part[name] = turns.ids(name, value)
        elif name in PER_EPISODE:
            part[name] = turns.per_episode(name, value)
        elif name == "values":
            part[name] = turns.per_turn(name, value)
        elif name == "reward_components":
            part[name] = turns.components(name, value)
        elif name == "state_keys":
            part[name] = turns.turn_keys(name, value)
    if with_lengths:
        part["lengths"] = turns.lengths(arguments.get("lengths"))
    return part


def unpack(parts: Sequence[Mapping[str, Any]]) -> tuple[Turns, dict[str, Any], list[int]]:
    """Join the turns of all ranks.

    Args:
        parts: Result of `pack` on each rank.

    Returns:
        The turns; their arguments, as the numpy forms take them; and the number of episodes of each rank.

    Raises:
        ConfigError: Ranks have different arguments, or different numbers of components.
    """
    sizes = [int(part["index"].max(initial=-1)) + 1 for part in parts]
    firsts = np.cumsum([0, *sizes])
    index = np.concatenate([part["index"] + first for part, first in zip(parts, firsts, strict=False)])
    turns = Turns(np.concatenate([part["rewards"] for part in parts]), index, int(firsts[-1]))
    for part, first in zip(parts, firsts, strict=False):
        turns.threads |= {int(first) + number: threads for number, threads in part["threads"].items()}
    arguments: dict[str, Any] = {}
    for name in parts[0].keys() - {"rewards", "index", "threads"}:
        columns = [part[name] for part in parts if len(part["index"])]
        if name == "reward_components" and len({column.shape[1] for column in columns}) > 1:
            raise ConfigError(f"{name}: the ranks of the process group have different numbers of components")
        if name == "state_keys":
            keys = [key for column in columns for key in column]
            ends = [*turns.starts.tolist(), len(keys)]
            arguments[name] = [keys[a:b] for a, b in pairwise(ends)]
        elif name in PER_TURN:
            arguments[name] = np.split(np.concatenate(columns), turns.starts[1:]) if columns else []
        else:
            arguments[name] = [entry for column in columns for entry in column]
    return turns, arguments, sizes
