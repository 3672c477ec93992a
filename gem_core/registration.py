"""Environments and wrappers by name.

`register` files an `EnvSpec` under an id, `make` builds the environment, `EnvSpec.to_json` carries
it to another process or trainer. Third-party packages are found through the entry-point group
``gem_core.envs``: each entry names a module to import or a function to call, which registers.
"""

from __future__ import annotations

import ast
import difflib
import fnmatch
import importlib
import json
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from gem_core.core import Env, require_one_agent
from gem_core.errors import ConfigError, MissingDependency, UnknownEnv, UnknownName

if TYPE_CHECKING:
    import inspect

logger = logging.getLogger(__name__)

EnvFactory: TypeAlias = Callable[..., Env]
ENTRY_POINT_GROUP = "gem_core.envs"


@dataclass(frozen=True)
class WrapperSpec:
    """A registered wrapper and its keyword arguments."""

    name: str
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.kwargs.items())
        return f"{self.name}({arguments})" if arguments else self.name


WrapperLike: TypeAlias = str | WrapperSpec | Callable[[Env], Env]
"""A name or config string, a `WrapperSpec`, or a callable that wraps an environment."""


@dataclass(frozen=True)
class EnvSpec:
    """Everything needed to build an environment anywhere.

    Attributes:
        id: Registered id, ``family:Name-v0-variant``.
        entry_point: ``module:attribute``, or the callable itself (then it has no JSON form).
        kwargs: Keyword arguments of the constructor.
        wrappers: Applied in order, the last one outermost.
        description: One line for listings.
        extra: Extra of gem-core that the environment needs; None when it needs numpy only.
        deterministic: Same seed and actions give the same episode.
        stateful: `get_state` and `set_state` save and restore the whole episode.
        eval_kwargs: Added to `kwargs` for evaluation tasks, such as ``{"split": "test"}`` for a data set with
            a test split. Empty: `Env.items` tells evaluation items from those to train on, or seeds do.
        floor: Share of the episodes in which the best player that solves nothing succeeds, from 0 to 1, with
            these arguments; None where it is not declared (see `gem_core.checker.floors`).
    """

    id: str
    entry_point: str | EnvFactory
    kwargs: dict[str, Any] = field(default_factory=dict)
    wrappers: tuple[WrapperSpec, ...] = ()
    description: str = ""
    extra: str | None = None
    deterministic: bool = True
    stateful: bool = True
    eval_kwargs: dict[str, Any] = field(default_factory=dict)
    floor: float | None = None

    def make(self, **kwargs: Any) -> Env:
        """Build the environment; `kwargs` override the spec's."""
        merged = {**self.kwargs, **kwargs}
        factory = _load_entry_point(self)
        check_arguments(self.id, factory, merged)
        env = factory(**merged)
        for wrapper in self.wrappers:
            env = _apply_wrapper(env, wrapper)
        env.spec = replace(self, kwargs=merged)
        return env

    def to_json(self) -> str:
        """One line of JSON from which `from_json` makes an equal spec."""
        if not isinstance(self.entry_point, str):
            raise ConfigError(
                f"{self.id}: a spec has a JSON form only when its entry point is a 'module:attribute' "
                f"string, not {self.entry_point!r}"
            )
        data = {**self.__dict__, "wrappers": [[w.name, w.kwargs] for w in self.wrappers]}
        try:
            return json.dumps(data)
        except TypeError as error:
            raise ConfigError(f"{self.id}: keyword arguments must be JSON-able: {error}") from None

    @classmethod
    def from_json(cls, text: str) -> EnvSpec:
        """Inverse of `to_json`."""
        try:
            data = json.loads(text)
            wrappers = tuple(WrapperSpec(name, kwargs) for name, kwargs in data.pop("wrappers"))
            return cls(**data, wrappers=wrappers)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError(f"not the JSON form of an EnvSpec ({error}): {text[:200]}") from None


_envs: dict[str, EnvSpec] = {}
_wrappers: dict[str, str] = {}
_families: dict[str, str] = {}
_loaded_groups: set[str] = set()
_entry_points_lock = threading.RLock()


# -- environments -----------------------------------------------------------------------------


def register(
    id: str,
    entry_point: str | EnvFactory,
    *,
    wrappers: str | WrapperSpec | Sequence[str | WrapperSpec] = (),
    description: str = "",
    extra: str | None = None,
    deterministic: bool = True,
    stateful: bool = True,
    eval_kwargs: dict[str, Any] | None = None,
    floor: float | None = None,
    **kwargs: Any,
) -> None:
    """File an environment under `id`; see `EnvSpec` for the arguments, `kwargs` go to the constructor.

    Raises:
        ConfigError: The id is taken by a different spec, the entry point is malformed, or the floor is not a
            share.
    """
    if isinstance(entry_point, str) and entry_point.count(":") != 1:
        raise ConfigError(f"{id}: entry point {entry_point!r} is not of the form 'module:attribute'")
    if floor is not None and not 0 <= floor <= 1:
        raise ConfigError(f"{id}: floor is a share of episodes, from 0 to 1, not {floor!r}")
    spec_wrappers = tuple(w for given in _as_sequence(wrappers) for w in _wrapper_specs(given))
    new = EnvSpec(
        id, entry_point, kwargs, spec_wrappers, description, extra, deterministic, stateful,
        eval_kwargs or {}, floor,
    )  # fmt: skip
    if _envs.get(id, new) != new:
        raise ConfigError(f"{id} is registered already, with {_envs[id].entry_point!r}")
    _envs[id] = new


def register_family(prefix: str, entry_point: str) -> None:
    """Have ``module:function`` called, which registers, before an id with this prefix is looked up or listed.

    For a family whose members are found out at some cost. The function is called until it has succeeded once.
    """
    _families[prefix] = entry_point


def spec(id: str) -> EnvSpec:
    """The `EnvSpec` filed under `id`; `UnknownEnv` with the closest ids when there is none."""
    if id not in _envs:
        _load_families(id)
    if id not in _envs:
        load_entry_points()
    if id not in _envs:
        raise UnknownEnv(f"no environment {id!r}.{suggest(id, _envs)} `gem-core envs` lists all.")
    return _envs[id]


def make(id: str | EnvSpec, *, wrappers: WrapperLike | Sequence[WrapperLike] = (), **kwargs: Any) -> Env:
    """Build an environment.

    Args:
        id: A registered id, or a spec.
        wrappers: Put around the environment, on top of the spec's own: a config string such as
            ``"concat_with_action, time_limit(max_turns=5)"``, a callable, or a sequence of these.
        **kwargs: Override the spec's keyword arguments of the constructor.

    Raises:
        UnknownEnv: No such id; the message holds the closest ones.
        MissingDependency: The environment needs an extra; the message holds the pip command.
        TypeError: An unknown keyword argument.
    """
    env_spec = id if isinstance(id, EnvSpec) else spec(id)
    return wrap(env_spec.make(**kwargs), wrappers)


def may_have_items(env_spec: EnvSpec) -> bool:
    """Whether the environment may have numbered items (`Env.items`), as far as its entry point tells.

    Raises:
        MissingDependency: As `make`.
    """
    factory = _load_entry_point(env_spec)
    return not (isinstance(factory, type) and issubclass(factory, Env) and factory.items is Env.items)


def list_envs(pattern: str = "*") -> list[str]:
    """Registered ids that match a shell-style pattern, sorted."""
    load_entry_points()
    _load_families(pattern)
    return sorted(fnmatch.filter(_envs, pattern))


def print_envs(pattern: str = "*") -> None:
    """Write the ids that match `pattern` to stdout, one a line, with their descriptions."""
    for id in list_envs(pattern):
        sys.stdout.write(f"{id:40} {_envs[id].description}".rstrip() + "\n")


# -- wrappers ---------------------------------------------------------------------------------


def register_wrapper(name: str, entry_point: str) -> None:
    """Make a wrapper class available to config strings under `name`."""
    if _wrappers.setdefault(name, entry_point) != entry_point:
        raise ConfigError(f"wrapper {name!r} is registered already, as {_wrappers[name]}")


def list_wrappers() -> list[str]:
    """Names of the registered wrappers, sorted."""
    load_entry_points()
    return sorted(_wrappers)


def wrapper_entry_points() -> dict[str, str]:
    """Name and entry point of every registered wrapper, for a process that has to know them too."""
    return dict(_wrappers)


def wrap(env: Env, wrappers: WrapperLike | Sequence[WrapperLike]) -> Env:
    """Put wrappers around `env`, the last one outermost; named ones are added to its spec."""
    for given in _as_sequence(wrappers):
        if callable(given):
            require_one_agent(env, "a wrapper")
            env = given(env)
            continue
        for wrapper in _wrapper_specs(given):
            require_one_agent(env, "a wrapper")
            env = _apply_wrapper(env, wrapper)
            if env.spec is not None:
                env.spec = replace(env.spec, wrappers=(*env.spec.wrappers, wrapper))
    return env


def _as_sequence(given: WrapperLike | Sequence[WrapperLike]) -> Sequence[WrapperLike]:
    """One wrapper as a list of it; a str is one, not a sequence of letters."""
    return given if isinstance(given, Sequence) and not isinstance(given, str) else [given]


def _wrapper_specs(given: WrapperLike) -> list[WrapperSpec]:
    """Parse ``"name, other(key=value)"`` into specs."""
    if isinstance(given, WrapperSpec):
        return [given]
    if not isinstance(given, str):
        raise ConfigError(
            f"wrapper {given!r}: expected a config string such as 'time_limit(max_turns=5)', a WrapperSpec "
            "or, in make and wrap, a callable"
        )
    return read_specs(given, what="wrappers", example="concat_with_action, time_limit(max_turns=5)")


def read_specs(given: str, *, what: str, example: str) -> list[WrapperSpec]:
    """Names with literal keyword arguments, as config strings have them.

    Args:
        given: Such as ``"name, other(key=value)"``.
        what: What it names, for messages.
        example: For messages.

    Raises:
        ConfigError: It cannot be read.
    """
    if not given.strip():
        return []
    try:
        node = ast.parse(given.strip(), mode="eval").body
        items = node.elts if isinstance(node, ast.Tuple) else [node]
        return [_wrapper_spec(item) for item in items]
    except (SyntaxError, TypeError, ValueError) as error:  # TypeError: a literal such as {[]: 1}
        raise ConfigError(
            f"{what} {given!r}: expected names with literal keyword arguments, such as {example!r} ({error})"
        ) from None


def _wrapper_spec(node: ast.expr) -> WrapperSpec:
    if isinstance(node, ast.Name):
        return WrapperSpec(node.id)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        arguments = {k.arg: ast.literal_eval(k.value) for k in node.keywords if k.arg}
        if len(arguments) == len(node.keywords):  # fewer: a ** or the same keyword twice
            return WrapperSpec(node.func.id, arguments)
    raise ValueError(f"cannot read {ast.unparse(node)!r}")


def _apply_wrapper(env: Env, wrapper: WrapperSpec) -> Env:
    if wrapper.name not in _wrappers:
        load_entry_points()
    if wrapper.name not in _wrappers:
        raise UnknownName(
            f"no wrapper {wrapper.name!r}.{suggest(wrapper.name, _wrappers)} "
            f"There are: {', '.join(list_wrappers())}"
        )
    factory = load_attribute(wrapper.name, _wrappers[wrapper.name])
    check_arguments(wrapper.name, factory, {"env": env, **wrapper.kwargs})
    wrapped: Env = factory(env, **wrapper.kwargs)
    return wrapped


# -- plumbing ---------------------------------------------------------------------------------


def suggest(name: str, known: Iterable[str]) -> str:
    """The closest known names as a question, or nothing when none is close."""
    lowered = {k.lower(): k for k in known}
    close = [lowered[k] for k in difflib.get_close_matches(name.lower(), lowered, n=3, cutoff=0.6)]
    return f" Did you mean {' or '.join(close)}?" if close else ""


def _load_families(pattern: str) -> None:
    """Load the families that could hold an id matching `pattern`."""
    start = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    with _entry_points_lock:
        for prefix in [p for p in _families if p.startswith(start) or start.startswith(p)]:
            entry_point = _families.pop(prefix)  # what it calls may come back here
            try:
                load_attribute(prefix, entry_point)()
            except BaseException:  # the next look-up tries again, and says why
                _families[prefix] = entry_point
                raise


def _load_entry_point(env_spec: EnvSpec) -> EnvFactory:
    if not isinstance(env_spec.entry_point, str):
        return env_spec.entry_point
    factory: EnvFactory = load_attribute(env_spec.id, env_spec.entry_point, env_spec.extra)
    return factory


def load_attribute(name: str, entry_point: str, extra: str | None = None) -> Any:
    """What an entry point ``module:attribute`` stands for; `name` is who it belongs to, for messages.

    Raises:
        MissingDependency: A package is not installed that comes with `extra`.
        ConfigError: There is no such module or attribute.
    """
    module, _, attribute = entry_point.partition(":")
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if extra is not None:
            raise MissingDependency(
                f"{name} needs the package {error.name!r}: pip install 'gem-core[{extra}]'"
            ) from error
        if not f"{module}.".startswith(f"{error.name}."):  # a package that the module needs
            raise
        raise ConfigError(f"{name}: entry point {entry_point!r} cannot be imported: {error}") from error
    if not hasattr(loaded, attribute):
        raise ConfigError(f"{name}: entry point {entry_point!r} does not exist: no {attribute} in {module}")
    return getattr(loaded, attribute)


def accepted_arguments(env_spec: EnvSpec) -> list[str]:
    """Names of the keyword arguments that the environment takes.

    Raises:
        MissingDependency: As `make`.
    """
    return _accepted(_signature(_load_entry_point(env_spec)))


def check_arguments(name: str, factory: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    """Raise a TypeError that names the accepted arguments, before anything is built."""
    signature = _signature(factory)
    try:
        signature.bind(*([None] if isinstance(factory, type) else []), **kwargs)
    except TypeError as error:
        accepted = ", ".join(_accepted(signature)) or "none"
        raise TypeError(f"{name}: {error}; accepted keyword arguments: {accepted}") from None


def _signature(factory: Callable[..., Any]) -> inspect.Signature:
    import inspect

    # Env.__new__ records any arguments, so the constructor's own signature is __init__'s.
    return inspect.signature(factory.__init__ if isinstance(factory, type) else factory)  # type: ignore[misc]


def _accepted(signature: inspect.Signature) -> list[str]:
    return [parameter for parameter in signature.parameters if parameter not in ("self", "env")]


def load_entry_points(group: str = ENTRY_POINT_GROUP) -> None:
    """Let installed packages register what they bring, once; a broken one warns and is passed over."""
    with _entry_points_lock:  # another thread waits until all are there; what they call may come back here
        if group in _loaded_groups:
            return
        _loaded_groups.add(group)
        from importlib.metadata import entry_points

        for entry_point in entry_points(group=group):
            try:
                loaded = entry_point.load()
                if callable(loaded):
                    loaded()
            except Exception as error:
                logger.warning(
                    "entry point %r of group %s was not loaded: %s: %s",
                    entry_point.name, group, type(error).__name__, error,
                )  # fmt: skip
