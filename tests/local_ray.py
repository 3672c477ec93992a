"""A Ray cluster for the tests of one module."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any


def start_local_ray(folder: str, **options: Any) -> Any:
    """Start a small local cluster with two CPUs and return its context.

    Args:
        folder: Folder of Ray; a short path, because Ray puts sockets below it, whose paths are limited to 107
            characters.
        **options: Further arguments of `ray.init`.
    """
    import ray

    return ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        _temp_dir=folder,
        object_store_memory=80 * 2**20,
        log_to_driver=False,
        # actors start processes of their own, so idle ones that wait for tasks would only take time
        _system_config={"enable_worker_prestart": False, "prestart_worker_first_driver": False},
        **options,
    )


@contextlib.contextmanager
def local_ray(**options: Any) -> Iterator[str]:
    """Start a local cluster with two CPUs, yield its address, and stop it.

    Args:
        **options: Further arguments of `ray.init`.
    """
    import ray

    with tempfile.TemporaryDirectory(prefix="gem-ray-", ignore_cleanup_errors=True) as folder:
        context = start_local_ray(folder, configure_logging=False, **options)
        try:
            yield context.address_info["address"]
        finally:
            ray.shutdown()
