"""Checks that the interfaces that a plugin overrides exist in the trainer with the same parameters.

    expect(SUPPORTED, PPOActor, "step", "self", "prompts", "formatted_prompts", "references")

A plugin runs these checks when it imports the trainer's modules, before any model is loaded. A version that
fails a check is rejected; an untested newer version that passes all of them is accepted.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Collection, Sequence
from types import ModuleType
from typing import Any

from gem_core._util.entry_points import load_attribute
from gem_core.errors import ConfigError, UnsupportedTrainer
from gem_core.trainers._plugin import SupportedTrainer

_ADDED_BY_RAY = "_ray_trace_ctx"
"""Ray adds this parameter to the methods of an actor."""


def expect(
    trainer: SupportedTrainer, owner: ModuleType | type, name: str, *parameters: str, exact: bool = True
) -> Any:
    """Return a function or method of the trainer after checking the names of its parameters.

    Args:
        trainer: Trainer, for the message.
        owner: Module or class of the trainer.
        name: Attribute of `owner`, or a dotted path such as ``Class.method``.
        parameters: Names of all parameters in order, including ``self``.
        exact: Whether to reject further parameters. False compares only the first ones.

    Raises:
        UnsupportedTrainer: The attribute is missing or has other parameters. The message names the installed
            version and the supported ones.
    """
    return expect_one_of(trainer, owner, name, [parameters], exact=exact)


def expect_one_of(
    trainer: SupportedTrainer,
    owner: ModuleType | type,
    name: str,
    signatures: Sequence[tuple[str, ...]],
    *,
    exact: bool = True,
) -> Any:
    """Do the same as `expect`, but accept several signatures.

    Raises:
        UnsupportedTrainer: The attribute is missing, or its parameters match none of `signatures`.
    """
    function = find(owner, name)
    if function is not None:
        present = parameters_of(function)
        if any(expected == (present if exact else present[: len(expected)]) for expected in signatures):
            return function
    problem = "is missing" if function is None else f"takes ({', '.join(present)})"
    expected = " or ".join(f"({', '.join(signature)})" for signature in signatures)
    raise unsupported(trainer, f"{_path(owner, name)} {problem}: expected {expected}")


def expect_arguments(
    trainer: SupportedTrainer, owner: ModuleType | type, name: str, arguments: Collection[str]
) -> None:
    """Check that a function or class of the trainer takes these keyword arguments, among others.

    Args:
        trainer: Trainer, for the message.
        owner: Module or class of the trainer.
        name: As in `expect`.
        arguments: Names of the arguments.

    Raises:
        UnsupportedTrainer: The attribute or an argument is missing.
    """
    function = find(owner, name)
    present = () if function is None else parameters_of(function)
    missing = [argument for argument in arguments if argument not in present]
    if missing:
        problem = "is missing" if function is None else f"has no argument {' and no '.join(missing)}"
        raise unsupported(trainer, f"{_path(owner, name)} {problem}")


def expect_same(trainer: SupportedTrainer, owner: ModuleType | type, name: str, replacement: Any) -> None:
    """Check that a function of the trainer has the parameters of the one that replaces it.

    Args:
        trainer: Trainer, for the message.
        owner: Module or class of the trainer.
        name: As in `expect`.
        replacement: Function that replaces it. For a class, its public methods are checked.

    Raises:
        UnsupportedTrainer: As in `expect`.
    """
    functions = {name: replacement}
    if isinstance(replacement, type):
        functions = {f"{name}.{key}": value for key, value in vars(replacement).items() if key[0] != "_"}
    for path, function in functions.items():
        # A wrapper may have a copy of the original's signature, with Ray's parameter; its code has its own.
        original = find(owner, path)
        while hasattr(function, "__wrapped__") and function.__wrapped__ is not original:
            function = function.__wrapped__
        code = function.__code__
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARKEYWORDS)
        expect(trainer, owner, path, *code.co_varnames[:count])


def expect_fields(trainer: SupportedTrainer, cls: type, names: Sequence[str], *, exact: bool = True) -> None:
    """Check the fields of a dataclass or Pydantic model of the trainer.

    Args:
        trainer: Trainer, for the message.
        cls: Class to check.
        names: Names of its fields, in order if `exact`.
        exact: Whether to reject other fields. False only requires that these fields exist.

    Raises:
        UnsupportedTrainer: The fields differ.
    """
    fields = getattr(cls, "model_fields", None)
    present = tuple(fields if fields is not None else (field.name for field in dataclasses.fields(cls)))
    if present != tuple(names) if exact else not set(names) <= set(present):
        problem = f"has the fields {', '.join(present)}: expected {', '.join(names)}"
        raise unsupported(trainer, f"{_path(cls)} {problem}")


def expect_names(trainer: SupportedTrainer, owner: type, method: str, names: Collection[str]) -> None:
    """Check that the code of a method of the trainer still uses these attributes or globals.

    Use it for attributes that exist only after a model is loaded, and for calls without which an override has
    no effect.

    Args:
        trainer: Trainer, for the message.
        owner: Class of the trainer.
        method: Name of the method.
        names: Names that its code must use.

    Raises:
        UnsupportedTrainer: The method is missing, or does not use one of the names.
    """
    code = getattr(find(owner, method), "__code__", None)
    missing = sorted(set(names).difference(code.co_names if code else ()))
    if missing:
        raise unsupported(trainer, f"{_path(owner, method)} does not use {', '.join(missing)}")


def expect_listed(trainer: SupportedTrainer, section: str) -> None:
    """Check the version of the trainer, and the interfaces that the plugin's ``interface.json`` lists.

        {"loop": {
            "acme.loops:Loop acme.loops:AsyncLoop": {"run": "self prompt ...", "stop": "self"},
            "acme.loops:Worker": {"uses": {"start": "loop_class pool"}},
            "acme.loops:Output": {"fields": ["token_ids", "reward"]}
        }}

    The file, in the folder of the plugin's package, maps sections to owners, ``module:class`` separated by
    spaces, and their members: a method with the names of its parameters, where ``...`` allows further ones;
    "uses" with the names that the code of a method has to use; or "fields" with a list of fields that have to
    exist. An actor class of Ray stands for the class inside it.

    Args:
        trainer: Trainer of the plugin.
        section: Section to check, such as the name of the plugin's module.

    Raises:
        UnsupportedTrainer: No supported version is installed, a class is missing, or see `expect`,
            `expect_names`, and `expect_fields`.
    """
    trainer.require()
    for owners, members in trainer.read_table("interface.json", section).items():
        for name in owners.split():
            try:
                owner = load_attribute(trainer.package, name)
            except ConfigError:
                raise unsupported(trainer, f"{name.replace(':', '.')} is missing") from None
            owner = getattr(getattr(owner, "__ray_metadata__", None), "modified_class", owner)
            for member, names in members.items():
                if isinstance(names, list):
                    expect_fields(trainer, owner, names, exact=False)
                elif isinstance(names, dict):
                    for method, used in names.items():
                        expect_names(trainer, owner, method, used.split())
                else:
                    parameters = names.removesuffix("...").split()
                    expect(trainer, owner, member, *parameters, exact=not names.endswith("..."))


def find(owner: ModuleType | type, name: str) -> Any:
    """Return the attribute at a dotted path, or None if a part of the path is missing."""
    value: Any = owner
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def parameters_of(function: Any) -> tuple[str, ...]:
    """Return the parameter names of a function, or of the function that its decorators wrap."""
    return tuple(name for name in inspect.signature(function).parameters if name != _ADDED_BY_RAY)


def _path(owner: ModuleType | type, name: str = "") -> str:
    parts = [owner.__name__] if isinstance(owner, ModuleType) else [owner.__module__, owner.__qualname__]
    return ".".join([*parts, name] if name else parts)


def unsupported(trainer: SupportedTrainer, problem: str) -> UnsupportedTrainer:
    """Return the error for a trainer whose interface differs from the expected one.

    Args:
        trainer: Trainer, for the message.
        problem: Description of the difference.
    """
    return UnsupportedTrainer(
        f"{trainer.package}: {trainer.name} {trainer.installed_version() or 'from a checkout'} has another "
        f"interface: {problem}. Supported versions: {trainer.distribution}{trainer.versions}"
    )
