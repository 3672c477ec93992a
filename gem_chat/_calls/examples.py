"""Example values for JSON schemas, which show a model how to write the arguments of a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_chat._calls.schema import properties_of, required_of, resolved

_DEEPEST = 6
"""Levels of nested values; a schema may contain itself."""
_MOST_VALUES = 1000
"""Values of an example, because a schema that contains itself several times multiplies them at each level."""
_PLAIN: Mapping[str, Any] = {
    "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}, "null": None,
}  # fmt: skip


def example_arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments for a tool: the required ones, or all of them if the schema says nothing."""
    value = _Examples(schema).object(schema, 0, every="required" not in schema)
    return value if isinstance(value, dict) else {}


class _Examples:
    """Examples for the parts of one schema."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.left = _MOST_VALUES

    def value(self, schema: Any, depth: int) -> Any:
        """Return an example; "..." for a schema that allows anything."""
        self.left -= 1
        schema = resolved(self.root, schema) if self.left >= 0 else True
        if not isinstance(schema, Mapping):
            return "..."
        if "const" in schema:
            return schema["const"]
        for key in ("examples", "enum"):
            if isinstance(schema.get(key), list) and schema[key]:
                return schema[key][0]
        if depth > _DEEPEST:
            return "..."
        choice = self._choice(schema)
        if choice is not None and not properties_of(schema):
            return self.value(choice, depth + 1)
        kind = self.kind(schema)
        if kind == "object":
            return self.object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind in ("integer", "number"):
            return _bounded(schema, _PLAIN[kind])
        return _PLAIN.get(kind, "...")

    def kind(self, schema: Mapping[str, Any]) -> str:
        """Return the type of an example: the first one that is not null."""
        kinds = schema.get("type")
        kinds = kinds if isinstance(kinds, list) else [kinds]
        named = [kind for kind in kinds if isinstance(kind, str)]
        others = [kind for kind in named if kind != "null"]
        if not named and (properties_of(schema) or "allOf" in schema):
            return "object"
        return next(iter(others or named), "string")

    def object(self, schema: Mapping[str, Any], depth: int, every: bool = False) -> dict[str, Any]:
        """Return the required properties of an object, including those of the parts that describe it."""
        self.left -= 1
        if depth > _DEEPEST or self.left < 0:
            return {}
        value: dict[str, Any] = {}
        if "$ref" in schema and isinstance(target := resolved(self.root, schema), Mapping):
            value |= self.object(target, depth + 1)
        parts = schema.get("allOf")
        for part in [*(parts if isinstance(parts, list) else ()), self._choice(schema)]:
            if isinstance(part := resolved(self.root, part), Mapping):
                value |= self.object(part, depth + 1)
        properties = properties_of(schema)
        for key in properties if every else required_of(schema):
            if properties.get(key, True) is not False:
                value[key] = self.value(properties.get(key, True), depth + 1)
        return value

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        min_items = schema.get("minItems")
        count = min(min_items, 4) if isinstance(min_items, int) else 0
        if depth >= _DEEPEST:
            return []
        return [self.value(schema.get("items", True), depth + 1) for _ in range(count)]

    def _choice(self, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the first alternative that is not null; None if there are no alternatives."""
        for keyword in ("anyOf", "oneOf"):
            choices = schema.get(keyword)
            for choice in choices if isinstance(choices, list) else ():
                one = resolved(self.root, choice)
                if isinstance(one, Mapping) and one.get("type") != "null":
                    return one
        return None


def _bounded(schema: Mapping[str, Any], value: float) -> float:
    """Return the value moved between ``minimum`` and ``maximum``."""
    for key, nearer in (("minimum", max), ("maximum", min)):
        bound = schema.get(key)
        if isinstance(bound, int | float) and not isinstance(bound, bool):
            value = nearer(value, bound)
    return value
