"""Activates GEM in a process of RL2: checks the config and replaces a few functions that RL2 looks up.

`gem_rl2.train` does so in every process before RL2 starts. Without it, `gem_rl2.env` does when RL2's rank 0
loads it as ``rollout.env_path``.
"""

from __future__ import annotations

import atexit
import importlib
import math
import multiprocessing
import os
import sys
from typing import Any

from gem_core.advantages.registry import TRAINER_NAMES
from gem_core.errors import UnsupportedTrainer
from gem_core.trainers.interface import expect
from gem_rl2 import SUPPORTED, session
from gem_rl2.estimators import AdvantageHook
from gem_rl2.options import check_config, plays_gem
from gem_rl2.upstream import Upstream, find

_active = False


def activate(config: Any = None) -> None:
    """Check the config and install the hooks, once per process.

    Args:
        config: RL2's whole config. None composes it as hydra did for the running program.

    Raises:
        GemError: The config or this version of RL2 is not supported.
    """
    global _active
    if _active:
        return
    upstream = find()
    if config is None:
        config = running_config()
    if int(os.environ.get("RANK", "0")) == 0:
        check_config(config, upstream)
        if plays_gem(config):
            session.use(session.Session(config, upstream))
            hook_rollout(session.current(), upstream)
        hook_advantages(config, upstream)
    if upstream.is_index:
        atexit.register(end_servers)  # before the handler of multiprocessing, which would wait for them
    _active = True


def running_config() -> Any:
    """Compose the config of the running hydra program again from its overrides."""
    from hydra import compose
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    hydra = HydraConfig.get()
    config = compose(hydra.job.config_name, list(hydra.overrides.task))
    OmegaConf.resolve(config)
    return config


def hook_advantages(config: Any, upstream: Upstream) -> None:
    """Replace the `compute_advantages` that RL2's trainer, a module or the main program, looks up."""
    hook = AdvantageHook(
        upstream,
        failures_are_nan=upstream.is_index and plays_gem(config),
        updates=config.actor.update_per_rollout,
        episodes=(lambda: session.current().played) if plays_gem(config) else tuple,
    )
    name = "compute_advantages"
    places = [sys.modules.get(module) for module in ("RL2.trainer.ppo", "__main__")]
    trainers = [place for place in places if getattr(place, name, None) is upstream.compute_advantages]
    for trainer in trainers:
        setattr(trainer, name, hook)
    if not trainers and config.adv.estimator in TRAINER_NAMES:
        raise UnsupportedTrainer(
            "gem_rl2: found no trainer that looks up compute_advantages; start RL2 with python -m "
            "gem_rl2.train or with python -m RL2.trainer.ppo"
        )


def hook_rollout(playing: session.Session, upstream: Upstream) -> None:
    """Add GEM's metrics to RL2's metrics of a rollout, and detect when RL2 pauses its engines.

    A failed episode has a reward of NaN (in rl-square 0.0.2, a score of NaN), which is kept out of RL2's own
    metrics.
    """
    rollout: Any = importlib.import_module("RL2.workers.rollout")
    group = "device_mesh" if upstream.is_index else "process_group"
    log = expect(SUPPORTED, rollout, "gather_and_log", "metrics", "step", group, "metrics_to_sum")

    def gather_and_log(metrics: dict[str, list[Any]], step: int, *args: Any, **kwargs: Any) -> None:
        is_test = any(name.endswith("/test") for name in metrics)
        split, suffix = ("eval", "/test") if is_test else ("train", "")
        numbers = metrics.pop(f"{session.EPISODE}/{'test' if is_test else 'train'}", None)
        own = playing.report(split, step, numbers)
        metrics = {name: kept for name, values in metrics.items() if (kept := _without_nan(values))}
        log(metrics | {f"{name}{suffix}": [value] for name, value in own.items()}, step, *args, **kwargs)

    rollout.gather_and_log = gather_and_log
    if upstream.is_index:
        return
    hook_groups(importlib.import_module("RL2.datasets.rl").SampleGroup)
    request = expect(
        SUPPORTED,
        rollout,
        "async_request",
        *("url", "endpoint", "method", "max_trials", "retry_delay", "kwargs"),
    )

    def async_request(url: Any, endpoint: str, *args: Any, **kwargs: Any) -> Any:
        if endpoint in ("pause_generation", "continue_generation"):
            playing.paused = endpoint == "pause_generation"
        return request(url, endpoint, *args, **kwargs)

    rollout.async_request = async_request


def hook_groups(kind: Any) -> None:
    """Exclude failed episodes from the rewards by which the newer tree filters groups of class `kind`."""
    make = expect(SUPPORTED, kind, "to_all_tensor_dicts_and_metrics", "self")

    def to_all_tensor_dicts_and_metrics(group: Any) -> Any:
        tensor_dicts, metrics = make(group)
        metrics["rewards"] = _without_nan(metrics["rewards"])
        return tensor_dicts, metrics

    kind.to_all_tensor_dicts_and_metrics = to_all_tensor_dicts_and_metrics


def _without_nan(values: list[Any]) -> list[Any]:
    """Return the values that are not NaN, the mark of a failed episode."""
    return [value for value in values if not (isinstance(value, float) and math.isnan(value))]


def end_servers() -> None:
    """End the servers that rl-square 0.0.2 leaves running, so that the program can end."""
    children = multiprocessing.active_children()
    for child in children:
        child.terminate()
    for child in children:
        child.join(timeout=10)
        if child.is_alive():
            child.kill()
