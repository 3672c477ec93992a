"""The interface of the backends that run the slots of a vector env, and the simplest backend."""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

from gem_core._core import Env, StepResult
from gem_core.errors import ConfigError
from gem_core.vector._slot import Slot, SlotPlan, failed_reset, failed_step

SlotCall: TypeAlias = tuple[int, str, tuple[Any, ...]]
"""Index of a slot, name of the method (``reset`` or ``step``), and its arguments."""

SlotReply: TypeAlias = tuple[int, Any]
"""Index of a slot and the return value of the method."""

GRACE = 5.0
"""Seconds that a closing backend gives running calls before it abandons or kills them."""


class Backend(abc.ABC):
    """Runs calls on slots; at most one call per slot at a time.

    One thread may `wait` while another one submits or closes.
    """

    name: str

    @abc.abstractmethod
    def submit(self, calls: Sequence[SlotCall], *, batch: bool) -> None:
        """Start calls without waiting for them.

        Args:
            calls: Calls on distinct slots that have no running call.
            batch: Whether the caller waits for all of them, so that their replies may be sent together.
        """

    @abc.abstractmethod
    def wait(self, timeout: float | None) -> list[SlotReply]:
        """Block until there is a reply, for at most `timeout` seconds; None means no limit.

        Returns:
            All replies that are ready; empty if the timeout expired or the backend was closed.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Close every environment, end every thread and process, and wake a `wait` in another thread."""

    def envs(self) -> list[Env | None]:
        """Return the environments, if they are in this process."""
        raise ConfigError(
            f"backend {self.name!r} keeps its environments in other processes: use 'inline' or 'thread' to "
            "access them"
        )


class InlineBackend(Backend):
    """Runs the environments one after another in the caller's thread; best for fast environments."""

    name = "inline"

    def __init__(self, plans: Sequence[SlotPlan], probes: Mapping[int, Env]) -> None:
        self._slots = build_slots(plans, probes)
        self._replies: list[SlotReply] = []

    def submit(self, calls: Sequence[SlotCall], *, batch: bool) -> None:
        self._replies += [(index, getattr(self._slots[index], name)(*args)) for index, name, args in calls]

    def wait(self, timeout: float | None) -> list[SlotReply]:
        replies, self._replies = self._replies, []
        return replies

    def step(self, indices: Sequence[int], actions: Sequence[str | None]) -> list[StepResult]:
        """Combine `submit` and `wait`, for speed; return results in the order of `indices`."""
        slots = self._slots
        return [slots[i].step(action) for i, action in zip(indices, actions, strict=True)]

    def envs(self) -> list[Env | None]:
        return [slot.env for slot in self._slots]

    def close(self) -> None:
        for slot in self._slots:
            slot.close()


class LossyBackend(Backend):
    """Base class of backends that can lose threads or workers; tracks pending calls and slots to rebuild."""

    def __init__(self, plans: Sequence[SlotPlan], timeout: float | None) -> None:
        self._plans = list(plans)
        self._timeout = timeout
        self._calls: dict[int, SlotCall] = {}  # without a reply so far
        self._repeated: set[int] = set()  # slots whose call was already given to a second worker
        self._replies: list[SlotReply] = []  # not returned yet

    def _begin(self, calls: Sequence[SlotCall]) -> None:
        for call in calls:
            index, method, args = call
            self._calls[index] = call
            if method == "reset":
                self._plans[index].note_reset(args[0])

    def _finish(self, index: int, result: Any) -> None:
        del self._calls[index]
        self._repeated.discard(index)
        self._replies.append((index, result))

    def _lose(self, indices: Collection[int], message: str) -> list[SlotCall]:
        """Cut the episodes of these slots, whose worker was lost.

        Returns:
            The steps to repeat on the new slots, which report that their episode was cut. A slot that was
            lost during a reset or a rebuild gets its reply here, so that it is not rebuilt forever.
        """
        repeat = []
        for index in indices:
            plan = self._plans[index]
            plan.note_loss(message)
            call = self._calls.get(index)
            if call is None:
                continue
            if call[1] == "reset":
                self._finish(index, failed_reset(message))
            elif index in self._repeated:
                self._finish(index, failed_step(message, plan.autoreset))
            else:
                self._repeated.add(index)
                repeat.append(call)
        return repeat

    def _take(self) -> list[SlotReply]:
        replies, self._replies = self._replies, []
        return replies


def build_slots(plans: Sequence[SlotPlan], probes: Mapping[int, Env]) -> list[Slot]:
    """Build all slots, or none: if one cannot be built, close the others.

    Args:
        plans: Plans, one per slot.
        probes: Environments that already exist, by the index of their slot.
    """
    slots: list[Slot] = []
    try:
        slots += (Slot(plan, probes.get(plan.index)) for plan in plans)
    except BaseException:
        for slot in slots:
            slot.close()
        for plan in plans[len(slots) :]:
            if plan.index in probes:
                probes[plan.index].close()
        raise
    return slots
