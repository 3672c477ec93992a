"""Checks the arguments of a call against the JSON schema of a tool, with messages for the model.

Supports the part of JSON Schema that tools use: ``type``, ``properties``, ``required``,
``additionalProperties``, ``items``, ``minItems``, ``maxItems``, ``enum``, ``const``, ``minimum``,
``maximum``, ``anyOf``, ``oneOf`` (as ``anyOf``), ``allOf``, ``$ref`` within the schema, and booleans as
schemas. Other keywords, and values that a keyword may not have, are left to the tool.
An argument that the schema does not name is rejected unless the schema sets ``"additionalProperties": true``
or names arguments in another way, such as ``anyOf`` or ``patternProperties``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard
from urllib.parse import unquote

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
OPEN = (
    "$ref", "$dynamicRef", "anyOf", "oneOf", "allOf", "not", "if", "patternProperties", "propertyNames",
    "dependentSchemas", "minProperties",
)  # fmt: skip
"""Keywords by which a schema names arguments elsewhere than in ``properties``."""

_LONGEST_CHAIN = 100
"""Maximum number of references that are followed one after the other."""
_MOST_STEPS = 20_000
"""Maximum number of schemas that one check visits, because ``anyOf`` can repeat a schema at each level."""


def problem(schema: Any, value: Any) -> str | None:
    """Return one line that says what is wrong with `value`, or None if it is valid.

    >>> problem({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, {})
    'the argument "n" is missing'
    """
    try:
        return _Check(schema).problem(schema, value, "", frozenset())
    except RecursionError:
        return "the arguments are nested too deeply"


def properties_of(schema: Any) -> dict[str, Any]:
    """Return the schemas of the arguments that ``properties`` names; empty if there are none."""
    named = schema.get("properties") if isinstance(schema, Mapping) else None
    return {str(key): value for key, value in named.items()} if isinstance(named, Mapping) else {}


def required_of(schema: Any) -> list[str]:
    """Return the names of the arguments that must be given."""
    names = schema.get("required") if isinstance(schema, Mapping) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list | tuple) else []


def resolved(root: Any, schema: Any) -> Any:
    """Return the schema that a ``$ref`` within `root` names, or `schema` if it has none.

    A reference that names nothing in `root`, or only itself, gives True, which allows everything.
    """
    seen: set[str] = set()
    while isinstance(schema, Mapping) and isinstance(reference := schema.get("$ref"), str):
        if reference in seen or len(seen) >= _LONGEST_CHAIN:
            return True
        seen.add(reference)
        schema = _target(root, reference)
    return schema


def _target(root: Any, reference: str) -> Any:
    """Return the part of `root` that a JSON pointer or an anchor names; True if there is none."""
    if not reference.startswith("#"):
        return True
    if reference[1:2] not in ("", "/"):
        named = [root.get(key) for key in ("$defs", "definitions")] if isinstance(root, Mapping) else []
        every = [one for group in named if isinstance(group, Mapping) for one in group.values()]
        anchored = (one for one in every if isinstance(one, Mapping) and one.get("$anchor") == reference[1:])
        return next(anchored, True)
    place = root
    for part in reference[2:].split("/") if len(reference) > 1 else ():
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(place, Mapping) and key in place:
            place = place[key]
        elif isinstance(place, list) and key.isdecimal() and int(key) < len(place):
            place = place[int(key)]
        else:
            return True
    return place


class _Check:
    """One check of a value; `root` is the schema in which references are looked up."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.steps = 0

    def problem(
        self, schema: Any, value: Any, where: str, seen: frozenset[str], *, whole: bool = True
    ) -> str | None:
        """Return what is wrong with `value`.

        Args:
            schema: Schema of the value.
            value: The value.
            where: Name of the value; empty for the arguments as a whole.
            seen: References followed since the check reached this value, which may not be followed again.
            whole: Whether the schema is all that describes the arguments, so that it must name each of them.
        """
        name = f'the argument "{where}"' if where else "the arguments"
        self.steps += 1
        if self.steps > _MOST_STEPS:
            return None
        if schema is False:
            return f"{name} must not be given"
        if not isinstance(schema, Mapping):
            return None
        for check in (_type_problem, _choice_problem, _number_problem, _length_problem):
            if message := check(schema, value, name):
                return message
        whole = whole and not any(keyword in schema for keyword in OPEN)
        if isinstance(value, dict) and (message := self._object_problem(schema, value, where, whole)):
            return message
        if isinstance(value, list) and isinstance(schema.get("items"), Mapping | bool):
            skipped = schema.get("prefixItems")
            first = len(skipped) if isinstance(skipped, list) else 0
            for index, item in enumerate(value[first:], first):
                if message := self.problem(schema["items"], item, f"{where}[{index}]", frozenset()):
                    return message
        return self._parts_problem(schema, value, where, name, seen)

    def _object_problem(
        self, schema: Mapping[str, Any], value: Mapping[str, Any], where: str, whole: bool
    ) -> str | None:
        properties = properties_of(schema)
        prefix = f"{where}." if where else ""
        for key in required_of(schema):
            if key not in value:
                return f'the argument "{prefix}{key}" is missing'
        known = ", ".join(f'"{prefix}{name}"' for name, one in properties.items() if one is not False)
        closed = not where and whole and bool(properties)
        others = schema.get("additionalProperties", not closed)
        for key, item in value.items():
            if properties.get(key, True) is False or (
                key not in properties and others is False and "patternProperties" not in schema
            ):
                return f'there is no argument "{prefix}{key:.80}"; there are: {known or "none"}'
            inner = properties.get(key, others)
            if key not in properties and "patternProperties" in schema:
                continue
            if message := self.problem(inner, item, f"{prefix}{key:.80}", frozenset()):
                return message
        return None

    def _parts_problem(
        self, schema: Mapping[str, Any], value: Any, where: str, name: str, seen: frozenset[str]
    ) -> str | None:
        """Check the schemas that describe the same value."""
        parts = list(schema["allOf"]) if isinstance(schema.get("allOf"), list) else []
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            seen |= {reference}
            parts.append(_target(self.root, reference))
        for part in parts:
            if message := self.problem(part, value, where, seen, whole=False):
                return message
        for keyword in ("anyOf", "oneOf"):
            choices = schema.get(keyword)
            if not isinstance(choices, list) or not choices:
                continue
            wrong = [self.problem(choice, value, where, seen, whole=False) for choice in choices]
            if None not in wrong:
                return self._closest(choices, wrong, value, name)
        return None

    def _closest(self, choices: Sequence[Any], wrong: Sequence[str | None], value: Any, name: str) -> str:
        """Return the message of the choice that has the type of the value, or one with all of them."""
        fits = [
            message
            for choice, message in zip(choices, wrong, strict=True)
            if isinstance(plain := resolved(self.root, choice), Mapping)
            and message is not None
            and _type_problem(plain, value, name) is None
        ]
        if len(fits) == 1:
            return fits[0]
        return "; or ".join(dict.fromkeys(message for message in wrong[:8] if message))


def _type_problem(schema: Mapping[str, Any], value: Any, name: str) -> str | None:
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not isinstance(kinds, list) or not kinds or any(_has_kind(value, kind) for kind in kinds):
        return None
    return f"{name} must be of type {' or '.join(map(str, kinds))}, not {_kind(value)}"


def _choice_problem(schema: Mapping[str, Any], value: Any, name: str) -> str | None:
    if "const" in schema and not same(value, schema["const"]):
        return f"{name} must be {_short(schema['const'])}"
    choices = schema.get("enum")
    if not isinstance(choices, list) or not choices or any(same(value, choice) for choice in choices):
        return None
    return f"{name} must be one of {', '.join(map(_short, choices))}"


def _number_problem(schema: Mapping[str, Any], value: Any, name: str) -> str | None:
    if not _is_number(value):
        return None
    low, most = schema.get("minimum"), schema.get("maximum")
    if _is_number(low) and value < low:
        return f"{name} must be at least {low}"
    if _is_number(most) and value > most:
        return f"{name} must be at most {most}"
    return None


def _length_problem(schema: Mapping[str, Any], value: Any, name: str) -> str | None:
    if not isinstance(value, list):
        return None
    low, most = schema.get("minItems"), schema.get("maxItems")
    if _is_number(low) and len(value) < low:
        return f"{name} must have at least {low} values"
    if _is_number(most) and len(value) > most:
        return f"{name} must have at most {most} values"
    return None


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal in JSON: ``1`` and ``1.0`` are, ``1`` and ``true`` are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _has_kind(value: Any, kind: Any) -> bool:
    if not isinstance(kind, str) or kind not in _TYPES:
        return True
    if isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool)):
        return True
    return kind == "integer" and isinstance(value, float) and value.is_integer()


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return next((kind for kind, types in _TYPES.items() if isinstance(value, types)), type(value).__name__)


def _short(value: Any) -> str:
    return repr(value) if isinstance(value, str) else json.dumps(value)


def kinds_of(root: Mapping[str, Any], schema: Any) -> set[Any]:
    """Return the types that a schema allows, as far as it names them."""
    schema = resolved(root, schema)
    if not isinstance(schema, Mapping):
        return set()
    choices = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(choices, list):
        plain = [one for choice in choices if isinstance(one := resolved(root, choice), Mapping)]
        return {str(one.get("type")) for one in plain} if len(plain) == len(choices) else set()
    kinds = schema.get("type")
    return {str(kind) for kind in (kinds if isinstance(kinds, list) else [kinds])}
