"""`Wrapper`, the base class of environments that wrap other environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from gem_core._core import Env, Info, Observation, ResetOptions, ResetResult, Split, StepResult
from gem_core._util.copies import copy_state
from gem_core.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self

    from gem_core._spec import EnvSpec


class _Forwarded:
    """Descriptor that reads and writes an attribute on the wrapped environment."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, wrapper: Wrapper | None, owner: type | None = None) -> Any:
        return self if wrapper is None else getattr(wrapper.env, self.name)

    def __set__(self, wrapper: Wrapper, value: Any) -> None:
        setattr(wrapper.env, self.name, value)


def _forwarded() -> Any:
    return _Forwarded()


class Wrapper(Env):
    """An environment that wraps another one.

    Attributes that the wrapper does not have are read from the inner environment on each access, so they are
    never stale. Subclasses override the hooks `on_reset`, `on_action`, and `on_step`, which serve sync and
    async calls alike:

        class Shout(Wrapper):
            def on_reset(self, observation, info):
                return observation.upper(), info

    A wrapper that overrides `step` itself should override `astep` too.
    """

    blocking: bool | Literal["cpu"] = _forwarded()
    max_return: float | None = _forwarded()
    format_error_reward: float = _forwarded()
    oracle_certain: bool = _forwarded()
    shows_images: bool = _forwarded()
    reward_components: tuple[str, ...] = _forwarded()
    call_readers: Sequence[Any] = _forwarded()
    spec: EnvSpec | None = _forwarded()
    random: Random = _forwarded()
    _running: bool = _forwarded()
    _action_random: Random | None = _forwarded()

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = object.__new__(cls)
        self._init_args = (args, kwargs)
        return self

    def __init__(self, env: Env) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        if name == "env" or name.startswith("__"):  # absent while unpickling: do not recurse
            raise AttributeError(name)
        return getattr(self.env, name)

    # -- hooks --------------------------------------------------------------------------------

    def on_reset(self, observation: Observation, info: Info) -> ResetResult:
        """Modify the result of `reset`."""
        return observation, info

    def on_action(self, action: str) -> str:
        """Change the action before the inner environment sees it."""
        return action

    def on_step(self, action: str, result: StepResult) -> StepResult:
        """Modify the `result` of `step`; `action` is the caller's action, before `on_action`."""
        return result

    # -- the contract, through the hooks ------------------------------------------------------

    def reset(self, seed: int | None = None, *, options: ResetOptions | None = None) -> ResetResult:
        if options is None:
            observation, info = self.env.reset(seed)
            return self.on_reset(observation, info)
        result = self.on_reset(*self.env.reset(seed, options=self._inner_options(options)))
        self._restore_fields(options)
        return result

    def step(self, action: str) -> StepResult:
        return self.on_step(action, self.env.step(self.on_action(action)))

    async def areset(self, seed: int | None = None, *, options: ResetOptions | None = None) -> ResetResult:
        if type(self).reset is not Wrapper.reset:  # overridden without an async version
            return await super().areset(seed, options=options)
        if options is None:  # also for an areset without the parameter
            return self.on_reset(*await self.env.areset(seed))
        result = self.on_reset(*await self.env.areset(seed, options=self._inner_options(options)))
        self._restore_fields(options)
        return result

    async def astep(self, action: str) -> StepResult:
        if type(self).step is not Wrapper.step:  # overridden without an async version
            return await super().astep(action)
        return self.on_step(action, await self.env.astep(self.on_action(action)))

    def close(self) -> None:
        self.env.close()

    def check_services(self) -> None:
        self.env.check_services()

    def rest(self) -> None:
        self.env.rest()

    def items(self, split: Split) -> Sequence[int] | None:
        return self.env.items(split)

    def sample_random_action(self) -> str:
        return self.env.sample_random_action()

    def oracle_action(self) -> str | None:
        return self.env.oracle_action()

    def verify(self, action: str) -> bool | None:
        return self.env.verify(action)

    def get_state(self) -> dict[str, Any]:
        return {
            "env": self.env.get_state(),
            "fields": {name: copy_state(getattr(self, name)) for name in self.state_fields},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.env.set_state(state["env"])
        for name in self.state_fields:
            setattr(self, name, copy_state(state["fields"][name]))

    def spawn(self, same_state: bool = False) -> Self:
        args, kwargs = self._init_args
        if args:
            sibling = type(self)(self.env.spawn(), *args[1:], **kwargs)
        else:
            sibling = type(self)(**{**kwargs, "env": self.env.spawn()})
        if same_state:
            sibling.set_state(self.get_state())
        return sibling

    def _inner_options(self, options: ResetOptions | None) -> ResetOptions | None:
        """Return the options for the inner environment, whose state is part of this wrapper's state."""
        if options is None or "state" not in options:
            return options
        state = options["state"]
        if not isinstance(state, Mapping) or not {"env", "fields"} <= state.keys():
            raise ConfigError(
                f"options['state'] is not a state of {self!r}; pass what get_state() of the same stack of "
                "wrappers returned"
            )
        return {**options, "state": state["env"]}

    def _restore_fields(self, options: ResetOptions | None) -> None:
        if options is not None and "state" in options:
            for name, value in options["state"]["fields"].items():
                setattr(self, name, copy_state(value))

    @property
    def unwrapped(self) -> Env:
        return self.env.unwrapped

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.env!r}>"
