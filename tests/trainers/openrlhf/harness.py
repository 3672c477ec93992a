"""Runs OpenRLHF's own command on a CPU and records everything that it consumes.

Nothing is installed for it: ``cpu/`` is put on the import path, where Python finds ``sitecustomize.py`` and
OpenRLHF finds a stub of flash-attn.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import gem_openrlhf.agent

from tests.trainers.openrlhf import correction
from tests.trainers.processes import Kill, Run, run_environment, run_to_the_end, short_folder

CPU = Path(__file__).resolve().parent / "cpu"
TIMEOUT = 900
OURS = "gem_openrlhf.train_ppo_ray"
THEIRS = "openrlhf.cli.train_ppo_ray"
SHIMS = ("openrlhf_cpu", "openrlhf_fp32", "openrlhf_spy")

ENVIRONMENT = {
    "DS_ACCELERATOR": "cpu",
    "RAY_ADDRESS": "local",
    "RAY_OVERRIDE_RESOURCES": json.dumps({"CPU": 8, "GPU": 4, "object_store_memory": 400_000_000}),
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_prestart_worker_first_driver": "0",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
"""No code looks for the GPUs that Ray's configuration declares. Ray starts no idle workers, and vLLM runs its
engine and its worker in one process, as on a single GPU."""

GEM = {
    "train.agent_func_path": gem_openrlhf.agent.__file__,
    "data.label_key": "label",
    "algo.advantage.estimator": "rebn",
    "algo.advantage.gamma": "0.9",
    "gem.wrappers": "spy",
}
"""Flags that turn a command into a GEM command, and the spy."""

SMALL = {
    "data.input_key": "input",
    "data.max_len": "320",
    "rollout.max_new_tokens": "24",
    "rollout.batch_size": "4",
    "rollout.n_samples_per_prompt": "2",
    "rollout.micro_batch_size": "4",
    "train.batch_size": "8",
    "train.micro_batch_size": "4",
    "actor.num_gpus_per_node": "1",
    "ref.num_gpus_per_node": "1",
    "critic.num_gpus_per_node": "1",
    "reward.num_gpus_per_node": "1",
    "vllm.num_engines": "1",
    "vllm.enforce_eager": None,
    "vllm.gpu_memory_utilization": "0.05",
    "vllm.sync_backend": "gloo",
    "ds.attn_implementation": "eager",
    "actor.adam.lr": "1e-3",
    "actor.lr_scheduler": "constant",
    "actor.max_norm": "1e9",
    "algo.kl.init_coef": "0",
}
"""Flags for a machine with two cores and a tiny model."""


def run_openrlhf(
    folder: Path,
    model: Path,
    data: Path | str,
    flags: Mapping[str, str | None] | None = None,
    *,
    gem: Mapping[str, str | None] = GEM,
    module: str = OURS,
    shims: Sequence[str] = SHIMS,
    scheme: str = "icepop",
    environment: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
    kill: Kill | None = None,
) -> Run:
    """Run the command in `folder` until it ends; `flags` take precedence over `SMALL`, `SMALL` over `gem`.

    Args:
        folder: Working folder, created if it is missing.
        model: Folder of the model.
        data: List of data, such as a JSON Lines file with one prompt per row; each prompt is used once.
        flags: Flags without the leading ``--``; None for a switch.
        gem: See `GEM`.
        module: `OURS` or `THEIRS`.
        shims: Modules of ``cpu/``.
        scheme: Log-prob correction, a key of `correction.LEVEL`; any but "off" adds the engine's log-probs.
        environment: Additional environment variables.
        timeout: Time limit in seconds.
        kill: Process to kill before the run ends.
    """
    variables = {**ENVIRONMENT, "GEM_OPENRLHF_CPU": ",".join(shims), **(environment or {})}
    env = run_environment(folder, CPU, variables=variables)
    places = {
        "actor.model_name_or_path": str(model),
        "data.prompt_dataset": str(data),
        "ckpt.output_dir": str(folder / "model"),
        "ckpt.path": str(folder / "checkpoints"),
        "logger.tensorboard_dir": str(folder / "tensorboard"),
        "logger.wandb.run_name": "run",
    }
    command = [
        sys.executable,
        "-m",
        module,
        *words({**gem, **SMALL, **correction.flags(scheme), **places, **(flags or {})}),
    ]
    with short_folder() as ray_folder:
        env["RAY_TMPDIR"] = ray_folder
        return run_to_the_end(command, folder=folder, env=env, timeout=timeout, kill=kill)


def words(flags: Mapping[str, str | None]) -> list[str]:
    """Return flags as words of a command line."""
    result = []
    for name, value in flags.items():
        result += [f"--{name}"] if value is None else [f"--{name}", *(value.split() or [""])]
    return result
