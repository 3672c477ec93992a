"""Runs verl's `main_ppo` on a Ray cluster of two nodes on this machine.

    python -m tests.trainers.verl.cluster OVERRIDES

As on two machines, each node has its own import path: the folder ``head`` or ``worker`` of the working folder
comes first. ``ray_init._temp_dir`` of the overrides is the folder of the cluster.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import ray._private.utils
from ray.cluster_utils import Cluster

TEMP_DIR = "+ray_kwargs.ray_init._temp_dir="
ARGUMENTS = {"num_cpus": 8, "num_gpus": 1, "object_store_memory": 400_000_000}


def main() -> None:
    """Start the cluster and run verl in it."""
    (temp_dir,) = (word.removeprefix(TEMP_DIR) for word in sys.argv if word.startswith(TEMP_DIR))
    # Other programs on this machine would find the address there, and join the cluster.
    ray._private.utils.write_ray_address = lambda *args, **kwargs: None
    cluster = Cluster()
    for name in ("head", "worker"):
        path = os.pathsep.join([str(Path(name).resolve()), os.environ["PYTHONPATH"]])
        first = {"temp_dir": temp_dir, "include_dashboard": False} if name == "head" else {}
        cluster.add_node(**ARGUMENTS, **first, env_vars={"PYTHONPATH": path})
    kept = [word for word in sys.argv[1:] if not word.lstrip("+").startswith("ray_kwargs.ray_init.")]
    sys.argv[1:] = [*kept, f"+ray_kwargs.ray_init.address='{cluster.address}'"]
    runpy.run_module("verl.trainer.main_ppo", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
