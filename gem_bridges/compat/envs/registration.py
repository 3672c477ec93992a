"""`make`, `make_vec`, and `register` with GEM's arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gem_bridges.compat.envs._arguments import IGNORED, Attributes
from gem_core import Env, EnvSpec, Info, Observation, Wrapper, _registration, print_envs, register
from gem_core import make_vec as make_vector
from gem_core._core import ResetOptions, ResetResult, StepResult
from gem_core._registration import WrapperLike
from gem_core.vector import VectorEnv

__all__ = ["ENV_REGISTRY", "EnvSpec", "make", "make_vec", "print_envs", "register"]


class GemStyleEnv(Attributes, Wrapper):
    """An environment with the attributes and conventions of GEM's.

    A limit that truncates an episode also terminates it, so that programs that only look at ``terminated``
    stop; a step after the end returns the last observation again, without a reward. The info always has
    ``metrics``, with ``success`` at the end of an episode.

    Args:
        env: The environment.
        env_id: Its id.
        seed: Seed for a first reset that is called without one; None draws a random seed.

    Attributes:
        env_id: Id of the environment.
        entry_point: Entry point of its spec.
        seed: The argument `seed`.
        max_turns: Turn limit; None if there is no limit or it is drawn at each reset.
    """

    state_fields = ("last",)

    def __init__(self, env: Env, env_id: str = "", seed: int | None = None) -> None:
        super().__init__(env)
        self.env_id = env_id
        self.entry_point = None if env.spec is None else env.spec.entry_point
        self.seed = seed
        self.last: list[Any] | None = None  # observation and flag truncated of an episode that has ended
        self.max_turns: int | None = _argument(env, "max_turns")
        if seed is not None:
            env.random.seed(seed)

    @property
    def unwrapped(self) -> Env:
        """This environment, because GEM's programs expect GEM's attributes there."""
        return self

    def reset(
        self,
        seed: int | None = None,
        idx: int | None = None,
        *,
        options: ResetOptions | None = None,
    ) -> ResetResult:
        """Start an episode; `idx` selects an item of a dataset."""
        if idx is not None:
            options = {**(options or {}), "index": idx}
        return super().reset(seed, options=options)

    def on_reset(self, observation: Observation, info: Info) -> ResetResult:
        info.setdefault("metrics", {})
        self.last = None
        return observation, info

    def step(self, action: str) -> StepResult:
        if self.last is not None:
            observation, truncated = self.last
            return observation, 0.0, True, truncated, {"metrics": {}}
        return super().step(action)

    def on_step(self, action: str, result: StepResult) -> StepResult:
        observation, reward, terminated, truncated, info = result
        info["metrics"] = dict(info.get("metrics") or {})
        if "success" in info:
            info["metrics"]["success"] = float(info["success"])
        if terminated or truncated:
            self.last = [observation, truncated]
        return observation, reward, terminated or truncated, truncated, info

    def spawn(self, same_state: bool = False, **changes: Any) -> Any:
        """Return a new environment with the same arguments of `make`, except for `changes`."""
        if not changes:
            return super().spawn(same_state)
        assert self.spec is not None
        return make(self.env_id, **{**self.spec.kwargs, "seed": self.seed, **changes})


def make(env_id: str, *, seed: int | None = None, **kwargs: Any) -> GemStyleEnv:
    """Build an environment, as `gem_core.make` does.

    Args:
        env_id: Registered id.
        seed: Seed for a first reset that is called without one.
        **kwargs: Arguments of the constructor. Those of GEM that have no meaning here (``use_mp``,
            ``verbose``, ``load_from_cache_file``, ``max_workers``, ``sandbox_type``, and ``max_turns`` of a
            dataset) and ``dataset=None`` are dropped if the constructor lacks them.
    """
    return GemStyleEnv(_registration.make(env_id, **_accepted(env_id, kwargs)), env_id, seed)


def make_vec(
    env_ids: str | Sequence[str],
    wrappers: Sequence[WrapperLike] | None = None,
    vec_kwargs: Sequence[Mapping[str, Any]] | None = None,
    async_mode: bool = False,
    seed: int = 0,
    **kwargs: Any,
) -> VectorEnv:
    """Build a vector env in this process, so that `VectorEnv.envs` has its environments.

    Args:
        env_ids: One id per environment.
        wrappers: Wrappers around each environment, the last one outermost.
        vec_kwargs: Arguments of the constructor of each environment; a ``seed`` among them seeds its first
            reset.
        async_mode: Whether to step the environments in threads.
        seed: Seed of the first environment; environment i gets ``seed + i``.
        **kwargs: Arguments of all constructors.
    """
    ids = [env_ids] if isinstance(env_ids, str) else list(env_ids)
    own: Sequence[Mapping[str, Any]] = [{}] * len(ids) if vec_kwargs is None else vec_kwargs
    return make_vector(
        ids,
        backend="thread" if async_mode else "inline",
        wrappers=wrappers or (),
        vec_kwargs=[_accepted(id, {**some, **kwargs}) for id, some in zip(ids, own, strict=True)],
        seed=seed,
    )


class _EnvRegistry(Mapping[str, EnvSpec]):
    """Read-only view of the registered environments."""

    def __getitem__(self, env_id: str) -> EnvSpec:
        if env_id not in _registration.list_envs(env_id):
            raise KeyError(env_id)
        return _registration.spec(env_id)

    def __iter__(self) -> Iterator[str]:
        return iter(_registration.list_envs())

    def __len__(self) -> int:
        return len(_registration.list_envs())


ENV_REGISTRY: Mapping[str, EnvSpec] = _EnvRegistry()


def _accepted(env_id: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments without those of GEM's arguments that the constructor lacks."""
    spec = _registration.spec(env_id)
    names = (*_registration.accepted_arguments(spec), "seed")
    dropped = {name for name in kwargs if name in IGNORED and name not in names}
    if kwargs.get("dataset", 0) is None:
        dropped.add("dataset")
    accepted = {name: value for name, value in kwargs.items() if name not in dropped}
    if "dataset" in accepted and "dataset_name" in spec.kwargs:
        accepted |= {"dataset": list(accepted["dataset"]), "dataset_name": None}
    return accepted


def _argument(env: Env, name: str) -> Any:
    """Return a constructor argument of an environment, or its default; None if there is neither."""
    base = env.unwrapped
    if env.spec is not None and name in env.spec.kwargs:
        return env.spec.kwargs[name]
    constructor: Callable[..., Any] = type(base).__init__
    parameter = inspect.signature(constructor).parameters.get(name)
    return None if parameter is None or parameter.default is parameter.empty else parameter.default
