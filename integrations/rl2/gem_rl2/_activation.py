"""Activates GEM in a process of RL2: checks the config and replaces a few functions that RL2 looks up.

`gem_rl2.train` does this in every process before RL2 starts.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import multiprocessing
import os
from collections.abc import Callable
from typing import Any

from gem_core.trainers._interface import expect_listed, unsupported
from gem_rl2 import _SUPPORTED
from gem_rl2._estimators import AdvantageHook
from gem_rl2._options import check_config, plays_gem
from gem_rl2._session import EPISODE, Session
from gem_rl2._upstream import Upstream


def activate(config: Any, upstream: Upstream) -> None:
    """Check the config and install the hooks.

    Args:
        config: RL2's whole config.
        upstream: The installed RL2.

    Raises:
        GemError: The config or this version of RL2 is not supported.
    """
    if int(os.environ.get("RANK", "0")) == 0:
        check_config(config, upstream)
        session = Session.start(config, upstream) if plays_gem(config) else None
        if session is not None:
            hook_rollout(session, upstream)
        hook_advantages(config, upstream, session)
    if upstream.is_index:
        atexit.register(end_servers)  # before the handler of multiprocessing, which would wait for them


def hook_advantages(config: Any, upstream: Upstream, session: Session | None) -> None:
    """Replace the `compute_advantages` that RL2's trainer looks up.

    Args:
        config: RL2's whole config.
        upstream: The installed RL2.
        session: Session that plays the episodes; None if another environment file plays them.

    Raises:
        UnsupportedTrainer: RL2's trainer does not use that function.
    """
    trainer: Any = importlib.import_module("RL2.trainer.ppo")
    if getattr(trainer, "compute_advantages", None) is not upstream.compute_advantages:
        raise unsupported(_SUPPORTED, "RL2.trainer.ppo does not import compute_advantages")
    trainer.compute_advantages = AdvantageHook(
        upstream,
        failures_are_nan=upstream.is_index and session is not None,
        updates=config.actor.update_per_rollout,
        episodes=tuple if session is None else lambda: session.played,
    )


def hook_rollout(session: Session, upstream: Upstream) -> None:
    """Add GEM's metrics to RL2's metrics of a rollout, and detect when RL2 pauses its engines.

    A failed episode has a reward of NaN (in rl-square 0.0.2, a score of NaN), which is kept out of RL2's own
    metrics.
    """
    expect_listed(_SUPPORTED, f"rollout of {upstream.version}")
    rollout: Any = importlib.import_module("RL2.workers.rollout")
    log = rollout.gather_and_log

    def gather_and_log(metrics: dict[str, list[Any]], step: int, *args: Any, **kwargs: Any) -> None:
        is_test = any(name.endswith("/test") for name in metrics)
        split, suffix = ("eval", "/test") if is_test else ("train", "")
        numbers = metrics.pop(f"{EPISODE}/{'test' if is_test else 'train'}", None)
        own = session.report(split, step, numbers)
        metrics = {name: [v for v in values if v == v] for name, values in metrics.items()}  # without NaN
        metrics = {name: values for name, values in metrics.items() if values}
        log(metrics | {f"{name}{suffix}": [value] for name, value in own.items()}, step, *args, **kwargs)

    rollout.gather_and_log = gather_and_log
    if upstream.is_index:
        return
    group: Any = importlib.import_module("RL2.datasets.rl").SampleGroup
    group.to_all_tensor_dicts_and_metrics = keep_nan_out(group.to_all_tensor_dicts_and_metrics)
    request = rollout.async_request

    def async_request(url: Any, endpoint: str, *args: Any, **kwargs: Any) -> Any:
        if endpoint in ("pause_generation", "continue_generation"):
            session.paused = endpoint == "pause_generation"
        return request(url, endpoint, *args, **kwargs)

    rollout.async_request = async_request


def keep_nan_out(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method of a group of samples, so that dynamic filtering compares the played episodes only.

    RL2 drops a group if the standard deviation of its rewards is 0.
    """

    @functools.wraps(original)
    def converted(self: Any) -> Any:
        tensors, metrics = original(self)
        metrics["rewards"] = [reward for reward in metrics["rewards"] if reward == reward]
        return tensors, metrics

    return converted


def end_servers() -> None:
    """Stop the servers that rl-square 0.0.2 leaves running, so that the program can exit."""
    children = multiprocessing.active_children()
    for child in children:
        child.terminate()
    for child in children:
        child.join(timeout=10)
        if child.is_alive():
            child.kill()
