"""Runs Oat on a CPU from its command line and records everything that it consumed.

There are two ways: in one process, with Oat's actor, learner, collector, and DeepSpeed, and the stubs in
``cpu/stubs`` for vLLM, Launchpad, and Plasma; or unmodified, with the real packages if they are installed.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

from tests.trainers.oat import libstdcxx
from tests.trainers.oat.forks import run_forked
from tests.trainers.processes import Run, run_environment, run_to_the_end

CPU = Path(__file__).resolve().parent / "cpu"
STUBS = CPU / "stubs"
TIMEOUT = 600
LOG = "metrics.jsonl"

ENVIRONMENT = {
    "DS_ACCELERATOR": "cpu",
    "VLLM_USE_V1": "0",
    "USE_TF": "0",
}

GAME = "game:GuessTheNumber-v0-easy"
MIX = ["game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy"]

SMALL = {
    "gpus": "1",
    "collocate": "",
    "no-flash-attn": "",
    "no-bf16": "",
    "zero-stage": "0",
    "no-use-fused-lm-head": "",
    "shm-size-mb": "100",
    "beta": "0",
    "gamma": "0.9",
    "tis-c": "None",  # weights of 1 up to rounding, which would be indistinguishable from the advantages
    "max-norm": "1e9",
    "max-model-len": "512",
    "generate-max-length": "24",
    "rollout-batch-size": "16",
    "rollout-batch-size-per-device": "16",
    "train-batch-size": "16",
    "train-batch-size-per-device": "8",
    "max-train": "48",
    "learning-rate": "1e-3",
    "lr-scheduler": "constant",
    "lr-warmup-ratio": "0",
    "eval-steps": "-1",
    "eval-temperature": "1",
    "wrappers": "spy",
    "modules": "oat_cpu oat_log oat_spy",
    "env-id": " ".join(MIX),
}
"""Flags for a machine with two cores and a tiny model, and for the spies. "" marks a flag without a value."""


def command(model: Path, folder: Path, **flags: str | None) -> list[str]:
    """Return the command line; `flags` override `SMALL`, and None removes a flag."""
    words: dict[str, str | None] = {**SMALL, "pretrain": str(model), "save-path": str(folder / "out")}
    words |= {name.replace("_", "-"): value for name, value in flags.items()}
    parts = [(f"--{name}", *value.split()) for name, value in words.items() if value is not None]
    return [sys.executable, "-m", "gem_oat.train", *(word for part in parts for word in part)]


def environment(folder: Path, *, stubs: bool = True, spy: Path | None = None) -> dict[str, str]:
    """Return the environment variables of a run; the spies write into `spy`, or ``folder/spy`` if None."""
    spy = spy or folder / "spy"
    for needed in (folder, spy):
        needed.mkdir(parents=True, exist_ok=True)
    variables = {**ENVIRONMENT, "GEM_SPY": str(spy), "GEM_CHAOS": str(spy), "GEM_OAT_LOG": str(folder / LOG)}
    if stubs:
        return run_environment(folder, STUBS, CPU, variables={**variables, "GEM_OAT_STUB": "1"})
    variables["LD_PRELOAD"] = libstdcxx.preload(folder)
    variables["VLLM_CPU_OMP_THREADS_BIND"] = "all"  # vLLM 0.8.5 crashes at the newer "nobind"
    return run_environment(folder, CPU, variables=variables, distributions={"vllm-0.8.5+cpu": ""})


def run_oat(
    folder: Path,
    model: Path,
    *,
    stubs: bool = True,
    spy: Path | None = None,
    forked: bool = True,
    timeout: float = TIMEOUT,
    **flags: str | None,
) -> Run:
    """Run ``python -m gem_oat.train`` in `folder` until it ends.

    Args:
        folder: Working folder.
        model: Folder of the model.
        stubs: Whether stubs replace vLLM, Launchpad, and Plasma.
        spy: Folder of the spies' files; None for ``spy`` in `folder`.
        forked: Whether to save the imports, if there are stubs (`forks`); else the command is started.
        timeout: Time limit in seconds.
        flags: As in `command`.
    """
    env, words = environment(folder, stubs=stubs, spy=spy), command(model, folder, **flags)
    if stubs and forked:
        return run_forked(words[3:], folder=folder, env=env, timeout=timeout)
    return run_to_the_end(words, folder=folder, env=env, timeout=timeout)


def metrics_of(run: Run) -> list[dict[str, Any]]:
    """Return Oat's metrics in order: one record per step and per separate evaluation."""
    return [json.loads(line) for line in (run.folder / LOG).read_text().splitlines()]


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
