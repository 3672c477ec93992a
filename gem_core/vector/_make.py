"""`make_vec` builds a vector env."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, get_args

from gem_core._core import Env
from gem_core._registration import WrapperLike
from gem_core._registration import spec as registered_spec
from gem_core._spec import EnvSpec
from gem_core._util.checks import check_int, check_number, expected
from gem_core._util.messages import join_or
from gem_core._workers.recipe import EnvRecipe
from gem_core.errors import ConfigError
from gem_core.vector._backend import Backend, InlineBackend
from gem_core.vector._slot import AutoresetMode, SlotPlan
from gem_core.vector._threads import ThreadBackend
from gem_core.vector._vector_env import VectorEnv

BackendName: TypeAlias = Literal["auto", "inline", "thread", "process", "ray"]

MAX_THREADS = 64
"""Default maximum number of threads in the thread backend; waiting threads are cheap."""


def make_vec(
    id_or_ids: str | EnvSpec | Sequence[str | EnvSpec],
    num_envs: int | None = None,
    *,
    backend: BackendName = "auto",
    wrappers: WrapperLike | Sequence[WrapperLike] | None = (),
    seed: int | None = None,
    autoreset: AutoresetMode = AutoresetMode.SAME_STEP,
    timeout: float | None = None,
    max_workers: int | None = None,
    vec_kwargs: Sequence[Mapping[str, Any]] | None = None,
    async_mode: bool = False,
    **kwargs: Any,
) -> VectorEnv:
    """Build many environments behind one object.

    Results do not depend on the backend or the number of workers.

    Args:
        id_or_ids: One id or spec for all environments, or one per environment.
        num_envs: Number of environments, with a single id; None means 1.
        backend: ``inline`` (one environment after another in this thread), ``thread`` (a bounded pool, for
            environments that wait), ``process`` (worker processes with a slice each, for environments that
            compute), ``ray`` (actors; needs the extra ``ray`` and a running Ray), or ``auto``. ``auto``
            chooses processes if an environment has ``blocking = "cpu"`` and there is more than one core, else
            threads if an environment is ``blocking`` or there is a `timeout`, else inline.
        wrappers: Wrappers around every environment, as in `make`. None means no wrapper.
        seed: Seed of the first `VectorEnv.reset` that is called without one.
        autoreset: What happens when an episode ends.
        timeout: Maximum number of seconds for one reset or step of one environment (an autoreset is part of
            its step); None means no limit. Threads that hang are abandoned, workers that hang are killed.
        max_workers: Maximum number of threads, processes, or actors. None means 64 threads, one process per
            available core, or one actor per CPU of the Ray cluster; there are never more than `num_envs`.
        vec_kwargs: Constructor arguments of each environment, in addition to `kwargs`. An argument ``seed``
            among them seeds the environment's first reset.
        async_mode: Whether to keep ``auto`` from choosing inline.
        **kwargs: Constructor arguments of all environments.

    Raises:
        UnknownEnv: There is no such id.
        TypeError: The environment does not accept a keyword argument.
        ConfigError: An option is out of range, or options are incompatible.
        MissingDependency: The backend or an environment needs an extra.
    """
    own_kwargs, seeds = _split_seeds(vec_kwargs, seed)
    specs = _specs(id_or_ids, num_envs, kwargs, own_kwargs)
    check_number("timeout", timeout, above=0, optional=True)
    check_int("max_workers", max_workers, 1, optional=True)
    autoreset = AutoresetMode(autoreset)
    plans = [SlotPlan(i, EnvRecipe(spec, wrappers or ()), autoreset) for i, spec in enumerate(specs)]
    runner = _build_backend(backend, plans, timeout, max_workers, async_mode)
    return VectorEnv(runner, specs, autoreset, seeds)


def _specs(
    id_or_ids: str | EnvSpec | Sequence[str | EnvSpec],
    num_envs: int | None,
    kwargs: Mapping[str, Any],
    vec_kwargs: Sequence[Mapping[str, Any]] | None,
) -> list[EnvSpec]:
    if isinstance(id_or_ids, (str, EnvSpec)):
        check_int("num_envs", num_envs, 1, optional=True)
        count = num_envs if num_envs is not None else len(vec_kwargs) if vec_kwargs else 1
        ids: Sequence[str | EnvSpec] = [id_or_ids] * count
    else:
        ids = list(id_or_ids)
        if num_envs not in (None, len(ids)):
            raise ConfigError(f"num_envs={num_envs}: expected None or {len(ids)}, the number of ids")
    if not ids:
        raise ConfigError("a vector env needs at least one environment")
    if vec_kwargs is not None and len(vec_kwargs) != len(ids):
        raise ConfigError(
            f"vec_kwargs of length {len(vec_kwargs)}: expected {len(ids)} dicts, one per environment"
        )
    specs = []
    for i, id in enumerate(ids):
        spec = id if isinstance(id, EnvSpec) else registered_spec(id)
        own = vec_kwargs[i] if vec_kwargs is not None else {}
        specs.append(replace(spec, kwargs={**spec.kwargs, **kwargs, **own}))
    return specs


def _split_seeds(
    vec_kwargs: Sequence[Mapping[str, Any]] | None, seed: int | None
) -> tuple[list[dict[str, Any]] | None, int | list[int | None] | None]:
    """Return the constructor arguments without seeds, and the seeds of the first reset."""
    if vec_kwargs is None or not any("seed" in own for own in vec_kwargs):
        return None if vec_kwargs is None else [dict(own) for own in vec_kwargs], seed
    seeds = [own.get("seed", None if seed is None else seed + i) for i, own in enumerate(vec_kwargs)]
    return [{k: v for k, v in own.items() if k != "seed"} for own in vec_kwargs], seeds


def _build_backend(
    name: BackendName,
    plans: Sequence[SlotPlan],
    timeout: float | None,
    max_workers: int | None,
    async_mode: bool,
) -> Backend:
    if name not in get_args(BackendName):
        raise expected("backend", name, join_or(get_args(BackendName)))
    if name == "inline" and timeout is not None:
        raise ConfigError("backend 'inline' cannot interrupt an environment: use 'thread', or omit timeout")
    probes: dict[int, Env] = {}
    if name == "auto":
        probes = _probe(plans)
        name = _choose([env.blocking for env in probes.values()], async_mode or timeout is not None)
        if name == "process":
            for env in probes.values():
                env.close()
    if name == "inline":
        return InlineBackend(plans, probes)
    if name == "thread":
        return ThreadBackend(plans, probes, timeout, min(max_workers or MAX_THREADS, len(plans)))
    from gem_core.vector._slices import SliceBackend

    if name == "process":
        return SliceBackend("process", plans, timeout, min(max_workers or _usable_cores(), len(plans)))
    from gem_core._workers.ray_actors import cluster_cpus

    return SliceBackend("ray", plans, timeout, min(max_workers or cluster_cpus(), len(plans)))


def _probe(plans: Sequence[SlotPlan]) -> dict[int, Env]:
    """Build one environment per id, by the index of the first slot with that id."""
    first = {plan.recipe.spec.id: plan for plan in reversed(plans)}
    probes: dict[int, Env] = {}
    try:
        for plan in first.values():
            probes[plan.index] = plan.recipe.make()
    except BaseException:
        for env in probes.values():
            env.close()
        raise
    return probes


def _choose(blocking: Sequence[bool | Literal["cpu"]], concurrent: bool) -> BackendName:
    """Choose the backend for ``auto`` from the `Env.blocking` of each id."""
    if "cpu" in blocking and _usable_cores() > 1:
        return "process"
    return "thread" if concurrent or any(blocking) else "inline"


def _usable_cores() -> int:
    """Return the number of cores that this process may use, which a container often restricts."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
