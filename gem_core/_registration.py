"""Environments and wrappers by name.

`register` stores an `EnvSpec` under an id, `make` builds the environment, and `EnvSpec.to_json` serializes
the spec for another process or trainer. Third-party packages register theirs through the entry-point group
``gem_core.envs``: each entry names a module to import or a function to call.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from gem_core._core import Env, require_one_agent
from gem_core._spec import EnvFactory, EnvSpec, WrapperSpec
from gem_core._util import entry_points
from gem_core._util.checks import check_number
from gem_core._util.expressions import parse_expression
from gem_core._util.registry import Registry
from gem_core.errors import ConfigError, UnknownEnv

ENTRY_POINT_GROUP = "gem_core.envs"

WrapperLike: TypeAlias = str | WrapperSpec | Callable[[Env], Env]
"""A name or config string, a `WrapperSpec`, or a callable that wraps an environment."""


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
    """Register an environment; see `EnvSpec` for the arguments. `kwargs` go to the constructor.

    Raises:
        ConfigError: The id is taken by a different spec, the entry point is malformed, or the floor is not
            between 0 and 1.
    """
    entry_points.check_entry_point(id, entry_point)
    check_number(f"{id}: floor", floor, 0, 1, optional=True)
    spec_wrappers = tuple(spec for wrapper in _as_sequence(wrappers) for spec in _wrapper_specs(wrapper))
    new = EnvSpec(
        id, entry_point, kwargs, spec_wrappers, description, extra, deterministic, stateful,
        eval_kwargs or {}, floor,
    )  # fmt: skip
    _envs.register(id, new)


def register_family(prefix: str, entry_point: str) -> None:
    """Register a function that registers all environments whose ids start with `prefix`.

    Use it for families whose members are expensive to find. The function is called before such an id is
    looked up or listed, until it has succeeded once.

    Args:
        prefix: Start of the ids.
        entry_point: ``module:function``.
    """
    _families[prefix] = entry_point


def register_scheme(
    prefix: str,
    entry_point: str,
    argument: str,
    *,
    description: str = "",
    extra: str | None = None,
    deterministic: bool = True,
    stateful: bool = True,
) -> None:
    """Register all ids ``prefix:NAME``, whatever the name, such as ``textarena:Wordle-v0``.

    Use it for environments that another package or a server names. They are not listed, and the entry point
    is imported only when one of them is made.

    Args:
        prefix: Text before the first colon of the ids.
        entry_point: ``module:attribute`` of the class or function that builds the environment.
        argument: Keyword argument of the constructor that receives the text after the colon.
        description: One line about all of them.
        extra: Extra of gem-core that they need.
        deterministic: As in `EnvSpec`, for all of them.
        stateful: As in `EnvSpec`, for all of them.

    Raises:
        ConfigError: The prefix is taken by a different scheme, or the entry point is malformed.
    """
    entry_points.check_entry_point(prefix, entry_point)
    template = EnvSpec(
        prefix, entry_point, description=description, extra=extra, deterministic=deterministic,
        stateful=stateful,
    )  # fmt: skip
    _schemes.register(prefix, (template, argument))


def spec(id: str) -> EnvSpec:
    """Return the `EnvSpec` registered under `id`, or of an id that belongs to a scheme or names a file.

    The id ``PATH.py:CLASS`` names a class in a Python file.

    Raises:
        UnknownEnv: There is none; the message holds the closest ids.
    """
    prefix, _, name = (id := str(id)).partition(":")
    if entry_points.is_file(prefix) and name:
        return EnvSpec(id, entry_points.absolute(id))
    if id not in _envs and prefix in _schemes.names():
        if not name:
            raise UnknownEnv(f"environment id {id!r}: expected a name after {prefix + ':'!r}")
        template, argument = _schemes.get(prefix)
        return replace(template, id=id, kwargs={argument: name})
    return _envs.get(id)


def make(id: str | EnvSpec, *, wrappers: WrapperLike | Sequence[WrapperLike] = (), **kwargs: Any) -> Env:
    """Build an environment.

    Args:
        id: A registered id, ``PATH.py:CLASS`` for a class in a Python file, or a spec.
        wrappers: Applied around the environment, on top of the spec's own: a config string such as
            ``"concat_with_action, time_limit(max_turns=5)"``, a callable, or a sequence of these.
        **kwargs: Override the spec's keyword arguments of the constructor.

    Raises:
        UnknownEnv: There is no such id; the message holds the closest ones.
        MissingDependency: The environment needs an extra; the message holds the pip command.
        TypeError: A keyword argument is unknown.
    """
    env_spec = id if isinstance(id, EnvSpec) else spec(id)
    kwargs = {**env_spec.kwargs, **kwargs}
    factory = _load_entry_point(env_spec)
    entry_points.check_arguments(env_spec.id, factory, kwargs)
    env: Env = factory(**kwargs)
    if not isinstance(env, Env):
        raise ConfigError(
            f"{env_spec.id}: {type(env).__name__} is not an environment; derive it from gem_core.Env, "
            "or from gem_bridges.compat.Env if it was written for GEM"
        )
    for wrapper in env_spec.wrappers:
        env = _apply_wrapper(env, wrapper)
    env.spec = replace(env_spec, kwargs=kwargs)
    return wrap(env, wrappers)


def accepted_arguments(env_spec: EnvSpec) -> list[str]:
    """Return the names of the keyword arguments that the environment accepts.

    Raises:
        MissingDependency: As for `make`.
    """
    return entry_points.argument_names(_load_entry_point(env_spec))


def may_have_items(env_spec: EnvSpec) -> bool:
    """Return whether the environment may have numbered items (`Env.items`), judging by its entry point.

    Raises:
        MissingDependency: As for `make`.
    """
    factory = _load_entry_point(env_spec)
    return not (isinstance(factory, type) and issubclass(factory, Env) and factory.items is Env.items)


def list_envs(pattern: str = "*") -> list[str]:
    """Return the registered ids that match a shell-style pattern, sorted."""
    return _envs.names(pattern)


def print_envs(pattern: str = "*") -> None:
    """Print the ids that match `pattern`, one per line, with their descriptions."""
    for id in list_envs(pattern):
        sys.stdout.write(f"{id:40} {spec(id).description}".rstrip() + "\n")


# -- wrappers ---------------------------------------------------------------------------------


def register_wrapper(name: str, entry_point: str) -> None:
    """Make a wrapper class available to config strings under `name`."""
    entry_points.check_entry_point(f"wrapper {name!r}", entry_point)
    _wrappers.register(name, entry_point)


def list_wrappers() -> list[str]:
    """Return the names of the registered wrappers, sorted."""
    return _wrappers.names()


def wrapper_entry_points() -> dict[str, str]:
    """Return the name and entry point of every registered wrapper, to register them in another process."""
    return _wrappers.registered()


def wrap(env: Env, wrappers: WrapperLike | Sequence[WrapperLike]) -> Env:
    """Apply wrappers to `env`, the last one outermost; named ones are added to its spec."""
    for wrapper in _as_sequence(wrappers):
        for one in [wrapper] if callable(wrapper) else _wrapper_specs(wrapper):
            require_one_agent(env, "a wrapper")
            if callable(one):
                env = one(env)
                continue
            env = _apply_wrapper(env, one)
            if env.spec is not None:
                env.spec = replace(env.spec, wrappers=(*env.spec.wrappers, one))
    return env


def read_specs(text: str, *, what: str, example: str) -> list[WrapperSpec]:
    """Parse names with literal keyword arguments, the syntax of config strings.

    Args:
        text: For example ``"name, other(key=value)"``.
        what: Kind of the names, for messages.
        example: Example of a valid text, for messages.

    Raises:
        ConfigError: The text cannot be parsed.
    """
    if not text.strip():
        return []
    try:
        node = parse_expression(text)
        items = node.elts if isinstance(node, ast.Tuple) else [node]
        return [_read_spec(item) for item in items]
    except (SyntaxError, TypeError, ValueError) as error:  # TypeError: a literal such as {[]: 1}
        raise ConfigError(
            f"{what} {text!r}: expected names with literal keyword arguments, such as {example!r} ({error})"
        ) from None


def _read_spec(node: ast.expr) -> WrapperSpec:
    if isinstance(node, ast.Name):
        return WrapperSpec(node.id)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        arguments = {k.arg: ast.literal_eval(k.value) for k in node.keywords if k.arg}
        if len(arguments) == len(node.keywords):  # fewer: a ** or the same keyword twice
            return WrapperSpec(node.func.id, arguments)
    raise ValueError(f"cannot read {ast.unparse(node)!r}")


def _as_sequence(wrappers: WrapperLike | Sequence[WrapperLike]) -> Sequence[WrapperLike]:
    """Return a single wrapper as a list; a str is one wrapper, not a sequence of letters."""
    return wrappers if isinstance(wrappers, Sequence) and not isinstance(wrappers, str) else [wrappers]


def _wrapper_specs(wrapper: WrapperLike) -> list[WrapperSpec]:
    """Return the specs in a config string such as ``"name, other(key=value)"``, or the spec itself."""
    if isinstance(wrapper, WrapperSpec):
        return [wrapper]
    if not isinstance(wrapper, str):
        raise ConfigError(
            f"wrapper {wrapper!r}: expected a config string such as 'time_limit(max_turns=5)', a WrapperSpec "
            "or, in make and wrap, a callable"
        )
    return read_specs(wrapper, what="wrappers", example="concat_with_action, time_limit(max_turns=5)")


def _apply_wrapper(env: Env, wrapper: WrapperSpec) -> Env:
    factory = entry_points.load_attribute(wrapper.name, _wrappers.get(wrapper.name))
    entry_points.check_arguments(wrapper.name, factory, {"env": env, **wrapper.kwargs})
    wrapped: Env = factory(env, **wrapper.kwargs)
    return wrapped


def _load_entry_point(env_spec: EnvSpec) -> EnvFactory:
    if not isinstance(env_spec.entry_point, str):
        return env_spec.entry_point
    factory: EnvFactory = entry_points.load_attribute(env_spec.id, env_spec.entry_point, env_spec.extra)
    return factory


def _load_families(pattern: str) -> None:
    """Load the families that could hold an id matching `pattern`."""
    start = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    with entry_points.lock:
        for prefix in [p for p in _families if p.startswith(start) or start.startswith(p)]:
            entry_point = _families.pop(prefix)  # the function may look up ids itself
            try:
                entry_points.load_attribute(prefix, entry_point)()
            except BaseException:  # the next look-up tries again and raises the reason
                _families[prefix] = entry_point
                raise


_envs: Registry[EnvSpec] = Registry(
    "environment", group=ENTRY_POINT_GROUP, load=_load_families, error=UnknownEnv,
    hint="`gem-core envs` lists all.",
)  # fmt: skip
_wrappers: Registry[str] = Registry("wrapper", group=ENTRY_POINT_GROUP)
_schemes: Registry[tuple[EnvSpec, str]] = Registry("scheme", group=ENTRY_POINT_GROUP)
_families: dict[str, str] = {}
