"""Runs RL2's own PPO trainer on a CPU and records everything that it consumed.

There are two versions: ``index`` is the installed rl-square 0.0.2; ``tree`` is the newer source tree in
RL2_HOME.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

from gem_rl2 import _ENV_PATH
from gem_rl2._rows import write

from gem_core.tasks import EnvChoice, make_tasks
from tests.trainers.processes import Run, run_environment, run_to_the_end

CPU = Path(__file__).resolve().parent / "cpu"
TIMEOUT = 600
HOME = os.environ.get("RL2_HOME", "")
GUESS, MASTERMIND = "game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy"

ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
}

BOTH = [
    "adv.estimator=rebn",
    "adv.gamma=0.9",
    "actor.max_length_per_device=1024",
    "actor.max_grad_norm=1e9",
    "trainer.project=gem",
    "trainer.experiment_name=cpu",
    "trainer.use_wandb=true",
]
SMALL = {
    "index": [
        *BOTH,
        "train_data.prompts_per_rollout=8",
        "rollout.max_turns=8",
        "rollout.train_sampling_params.max_new_tokens=24",
        "actor.lr=1e-3",
        "actor.gradient_checkpointing=false",
        "actor.warmup_ratio=0",
    ],
    "tree": [
        *BOTH,
        "rollout.train.prompts_per_rollout=8",
        "rollout.test.prompts_per_rollout=4",
        "rollout.train.sampling_params.max_new_tokens=24",
        "actor.dtype=float32",
        "actor.optimizer.lr=1e-3",
        "actor.enable_gradient_checkpointing=false",
        "actor.scheduler.warmup_ratio=0",
        "trainer.total_steps=3",
    ],
}
"""Overrides for a machine with two cores and a tiny model, and for the spies."""


def data_words(
    folder: Path,
    version: str,
    train: int,
    num_eval: int,
    envs: Iterable[str],
    seed: int,
    eval_envs: Iterable[str] | None = None,
) -> list[str]:
    """Write a file of training tasks and a file of evaluation tasks; return the overrides that name them."""
    envs = list(envs)
    write(make_tasks(list(map(EnvChoice.parse, envs)), train, seed=seed), folder / "train.jsonl")
    watched = map(EnvChoice.parse, envs if eval_envs is None else eval_envs)
    held = [task for source in watched for task in make_tasks([source], num_eval, split="eval")]
    write(held, folder / "test.jsonl")
    places = ("train_data", "test_data") if version == "index" else ("rollout.train", "rollout.test")
    return [f"{places[0]}.path={folder}/train.jsonl", f"{places[1]}.path={folder}/test.jsonl"]


def run_rl2(
    folder: Path,
    model: Path,
    *overrides: str,
    version: str = "index",
    module: str = "gem_rl2.train",
    ranks: int = 1,
    wrappers: str = "spy",
    spies: str = "rl2_log,rl2_spy",
    tasks: int = 24,
    num_eval: int = 4,
    envs: Iterable[str] = (GUESS, MASTERMIND),
    eval_envs: Iterable[str] | None = None,
    seed: int = 0,
    timeout: float = TIMEOUT,
) -> Run:
    """Run the trainer in `folder` until it ends by itself; `overrides` take precedence over `SMALL`.

    In the version ``index``, the number of tasks determines the number of steps.
    """
    variables = {**ENVIRONMENT, "GEM_RL2_TESTS": spies, "GEM_ENGINE_SEED": str(seed)}
    launcher = ["-m", "torch.distributed.run", f"--nproc_per_node={ranks}", f"--master_port={free_port()}"]
    if ranks == 1:  # torchrun would only add a process, which takes seconds to import torch
        launcher = []
        variables |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
        variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    env = run_environment(folder, CPU, variables=variables)
    env.pop("RL2_HOME", None)
    if version == "tree":
        env["RL2_HOME"] = HOME
    words = [
        *SMALL[version], *data_words(folder, version, tasks, num_eval, envs, seed, eval_envs),
        f"actor.model_name={model}", f"hydra.run.dir={folder}/hydra", f"trainer.save_dir={folder}/saved",
    ]  # fmt: skip
    words += [f"+gem.wrappers={wrappers}"] if wrappers else []
    program = [str(CPU / "rl2_run.py"), module, *last_wins([*words, *overrides])]
    command = [sys.executable, *launcher, *program]
    return run_to_the_end(command, folder=folder, env=env, timeout=timeout)


def last_wins(overrides: list[str]) -> list[str]:
    """Keep the last of several overrides of an option; hydra rejects duplicates."""
    by_key = {override.lstrip("+").split("=", 1)[0]: override for override in overrides}
    return list(by_key.values())


def free_port() -> int:
    """Return a free port for the ranks to meet."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def metrics_of(run: Run) -> dict[int, dict[str, float]]:
    """Return the logged metrics of each step."""
    steps: dict[int, dict[str, float]] = {}
    for line in (run.spy / "metrics.jsonl").read_text().splitlines():
        logged = json.loads(line)
        steps.setdefault(logged.pop("step"), {}).update(logged)
    return steps


__all__ = ["_ENV_PATH", "Run", "data_words", "metrics_of", "run_rl2"]
