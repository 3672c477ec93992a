"""The Ray backend: actors on any node of the cluster."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from gem_core._util.messages import error_line
from gem_core.errors import ConfigError, MissingDependency
from gem_core.vector.backend import GRACE, Call, SlotReply
from gem_core.vector.slices import Died, Ready, SliceBackend, Worker, build_slice, portable, run_call
from gem_core.vector.slot import Slot, SlotPlan


class RayWorker(Worker):
    """A Ray actor that holds a slice of the slots."""

    def __init__(self, indices: Sequence[int], actor: Any) -> None:
        super().__init__(f"Ray actor (environments {indices[0]} to {indices[-1]})", indices)
        self.actor = actor


class RayBackend(SliceBackend[RayWorker]):
    """Actors that hold a slice of the environments each, spread over the cluster.

    The actors reserve no CPU (``num_cpus=0``): trainers often reserve all CPUs for their placement groups,
    and waiting for an actor that is never scheduled would hang.
    """

    name = "ray"

    def __init__(self, plans: Sequence[SlotPlan], timeout: float | None, workers: int | None) -> None:
        self._ray = _import_ray()
        if not self._ray.is_initialized():
            raise ConfigError("backend 'ray' needs a running Ray: call ray.init() first")
        # filled by Ray's thread; close() puts None to wake a wait()
        self._events: queue.SimpleQueue[tuple[RayWorker, Future[Any]] | None] = queue.SimpleQueue()
        options = {"num_cpus": 0, "scheduling_strategy": "SPREAD", "max_restarts": 0}
        self._actor_class = self._ray.remote(SlotActor).options(**options)
        if workers is None:
            workers = min(len(plans), max(1, int(self._ray.cluster_resources().get("CPU", 1))))
        super().__init__(plans, timeout, workers)

    def _start(self, indices: Sequence[int]) -> RayWorker:
        worker = RayWorker(indices, self._actor_class.remote([self._plans[i] for i in indices]))
        self._watch(worker, worker.actor.ready.remote())
        return worker

    def _watch(self, worker: RayWorker, ref: Any) -> None:
        ref.future().add_done_callback(lambda future: self._events.put((worker, future)))

    def _post(self, worker: RayWorker, calls: Sequence[Call], batch: bool) -> None:
        for part in [calls] if batch else [[call] for call in calls]:
            self._watch(worker, worker.actor.run.remote(part))

    def _poll(self, timeout: float | None) -> list[tuple[RayWorker, list[SlotReply] | Ready | Died]]:
        events: list[tuple[RayWorker, list[SlotReply] | Ready | Died]] = []
        try:
            item = self._events.get(timeout=timeout)
            while item is not None:
                worker, future = item
                error = future.exception()
                result = future.result() if error is None else Died(f"failed ({error_line(error, 300)})")
                events.append((worker, result))
                item = self._events.get_nowait()
        except queue.Empty:
            pass
        return events

    def _kill(self, worker: RayWorker) -> None:
        self._ray.kill(worker.actor)

    def _stop(self, workers: Sequence[RayWorker]) -> None:
        if not self._ray.is_initialized():  # the actors ended with Ray
            return
        self._events.put(None)
        refs = [worker.actor.close.remote() for worker in workers]
        self._ray.wait(refs, num_returns=len(refs), timeout=GRACE)
        for worker in workers:
            self._kill(worker)


class SlotActor:
    """The actor class: holds a slice of the slots."""

    def __init__(self, plans: Sequence[SlotPlan]) -> None:
        self._plans = plans
        self._slots: dict[int, Slot] = {}

    def ready(self) -> Ready:
        """Build the environments. (An error in the constructor would reach the parent without its type.)"""
        try:
            self._slots = build_slice(self._plans)
        except BaseException as error:
            return Ready(portable(error))
        return Ready()

    def run(self, calls: Sequence[Call]) -> list[SlotReply]:
        """Run calls, one after the other."""
        return [run_call(self._slots, call) for call in calls]

    def close(self) -> None:
        """Close the environments."""
        for slot in self._slots.values():
            slot.close()


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingDependency("backend 'ray' needs Ray: pip install 'gem-core[ray]'") from error
    return ray
