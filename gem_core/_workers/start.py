"""`start_worker`: start a worker of either kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from gem_core._workers.worker import Worker

WorkerKind: TypeAlias = Literal["process", "ray"]


def start_worker(
    kind: WorkerKind, label: str, main: Callable[..., None], args: Sequence[Any], grace: float
) -> Worker:
    """Start a worker without waiting for it.

    Args:
        kind: ``process``, or ``ray`` for an actor of the running Ray.
        label: End of its name.
        main: Function of a module that runs in the worker: ``main(connection, *args)``. It ends soon after
            the parent has closed the connection.
        args: Its arguments; they must be picklable.
        grace: Seconds that a process has after the end of this one before it is killed.
    """
    if kind == "process":
        from gem_core._workers.processes import ProcessWorker

        return ProcessWorker(label, main, args, grace)
    from gem_core._workers.ray_actors import RayWorker

    return RayWorker(label, main, args)
