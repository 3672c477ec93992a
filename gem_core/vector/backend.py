"""What a vector env asks of the thing that runs its slots, and the plainest such thing."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from gem_core.core import Env
from gem_core.errors import CallOrderError
from gem_core.vector.slot import Slot, SlotPlan

Call: TypeAlias = tuple[int, str, tuple[Any, ...]]
"""Index of a slot, name of one of its methods (``reset`` or ``step``), arguments."""

Reply: TypeAlias = tuple[int, Any]
"""Index of a slot and what the method returned."""


class Backend(abc.ABC):
    """Runs calls on slots; at most one call per slot at a time."""

    name: str

    @abc.abstractmethod
    def submit(self, calls: Sequence[Call], *, batch: bool) -> None:
        """Start calls without waiting for them.

        Args:
            calls: On distinct slots without a call under way.
            batch: The caller will wait for all of them, so their replies may travel together.
        """

    @abc.abstractmethod
    def wait(self, timeout: float | None) -> list[Reply]:
        """Block until there is a reply, for at most `timeout` seconds; None is without limit.

        Returns:
            Every reply at hand; none when the time is over or the backend was closed.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Close every environment and end every thread and process; wakes a `wait` elsewhere."""

    def run(self, calls: Sequence[Call]) -> list[Any]:
        """Carry out calls and wait for all of them; results in the order of `calls`."""
        self.submit(calls, batch=True)
        results: dict[int, Any] = {}
        while len(results) < len(calls):
            replies = self.wait(None)
            if not replies:
                raise CallOrderError("the vector env was closed while it waited for its environments")
            results.update(replies)
        return [results[index] for index, _, _ in calls]


class InlineBackend(Backend):
    """One environment after the other in the caller's thread: best for cheap ones."""

    name = "inline"

    def __init__(self, plans: Sequence[SlotPlan], probes: Mapping[int, Env]) -> None:
        self._slots = build_slots(plans, probes)
        self._replies: list[Reply] = []

    def submit(self, calls: Sequence[Call], *, batch: bool) -> None:
        self._replies += [(index, getattr(self._slots[index], name)(*args)) for index, name, args in calls]

    def wait(self, timeout: float | None) -> list[Reply]:
        replies, self._replies = self._replies, []
        return replies

    def run(self, calls: Sequence[Call]) -> list[Any]:
        slots = self._slots
        return [getattr(slots[index], name)(*args) for index, name, args in calls]

    def close(self) -> None:
        for slot in self._slots:
            slot.close()


def build_slots(plans: Sequence[SlotPlan], probes: Mapping[int, Env]) -> list[Slot]:
    """All slots, or none: when one cannot be built, the others are closed again.

    Args:
        plans: One per slot.
        probes: Environments that are built already, by the index of their slot.
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
