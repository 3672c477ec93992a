"""Checks the arguments of a call against the JSON schema of a tool, with messages for the model.

Supports the part of JSON Schema that tools use: ``type``, ``properties``, ``required``,
``additionalProperties``, ``items``, ``minItems``, ``maxItems``, ``enum``, ``minimum``, ``maximum``. Other
keywords are left to the tool.
An argument that the schema does not name is rejected unless the schema sets ``"additionalProperties": true``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def problem(schema: Mapping[str, Any], value: Any, where: str = "") -> str | None:
    """Return one line that says what is wrong with `value`, or None if it is valid.

    >>> problem({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, {})
    'the argument "n" is missing'
    """
    name = f'the argument "{where}"' if where else "the arguments"
    kinds = schema.get("type")
    if kinds is not None and not _is_any(value, [kinds] if isinstance(kinds, str) else kinds):
        types = kinds if isinstance(kinds, str) else " or ".join(map(str, kinds))
        return f"{name} must be of type {types}, not {_kind(value)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{name} must be one of {', '.join(map(repr, schema['enum']))}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            return f"{name} must be at least {schema['minimum']}"
        if value > schema.get("maximum", value):
            return f"{name} must be at most {schema['maximum']}"
    if isinstance(value, dict):
        return _object_problem(schema, value, where)
    if isinstance(value, list) and (message := _length_problem(schema, value, name)):
        return message
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for number, item in enumerate(value):
            if message := problem(schema["items"], item, f"{where}[{number}]"):
                return message
    return None


def _length_problem(schema: Mapping[str, Any], value: list[Any], name: str) -> str | None:
    if len(value) < schema.get("minItems", 0):
        return f"{name} must have at least {schema['minItems']} values"
    if len(value) > schema.get("maxItems", len(value)):
        return f"{name} must have at most {schema['maxItems']} values"
    return None


def _object_problem(schema: Mapping[str, Any], value: Mapping[str, Any], where: str) -> str | None:
    properties = schema.get("properties", {})
    prefix = f"{where}." if where else ""
    for key in schema.get("required", ()):
        if key not in value:
            return f'the argument "{prefix}{key}" is missing'
    for key, item in value.items():
        if key in properties:
            if message := problem(properties[key], item, f"{prefix}{key}"):
                return message
        elif schema.get("additionalProperties", bool(where) or not properties) is False:
            known = ", ".join(f'"{prefix}{name}"' for name in properties) or "none"
            return f'there is no argument "{prefix}{key:.80}"; there are: {known}'
    return None


def _is_any(value: Any, kinds: list[str]) -> bool:
    for kind in kinds:
        if kind not in _TYPES:
            return True
        if isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool)):
            return True
        if kind == "integer" and isinstance(value, float) and value.is_integer():
            return True
    return False


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return next(kind for kind, types in _TYPES.items() if isinstance(value, types))
