"""Schemas of tools from a server that references without end or in great number cannot freeze."""

from __future__ import annotations

import json

import pytest

from gem_chat._calls.examples import example_arguments
from gem_chat._calls.schema import problem, resolved

ITSELF = {"$ref": "#/$defs/T"}
FAN = {str(n): {"$ref": "#/$defs/T"} for n in range(30)}
TREE = {"type": "object", "properties": FAN, "required": list(FAN)}
CHAIN = {f"n{n}": {"$anchor": f"n{n}", "$ref": f"#n{n + 1}"} for n in range(3000)}
HOSTILE = {
    "tree of thirty": {"$ref": "#/$defs/T", "$defs": {"T": TREE}},
    "all of thirty": {"allOf": [ITSELF] * 30, "$defs": {"T": {"allOf": [ITSELF] * 30}}},
    "choices": {"anyOf": [{"$ref": "#"}] * 30, "oneOf": [{"$ref": "#"}] * 30},
    "items of itself": {"type": "array", "minItems": 10**9, "items": {"$ref": "#"}},
    "chain of anchors": {"$ref": "#n0", "$defs": CHAIN},
    "cycle": {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}},
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_has_a_small_example_and_a_quick_check(name):
    schema = HOSTILE[name]
    assert len(json.dumps(example_arguments(schema))) < 200_000
    value = {"0": {"0": {"0": [1, 2, {"0": {}}]}}}
    message = problem(schema, value)
    assert message is None or len(message) < 1000
    assert resolved(schema, schema) is not None
