from random import Random

import pytest

from gem_bridges._actions import ActionGrammar, without_references
from gem_core.errors import ConfigError


def deep(depth):
    schema = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def wide():
    both = {f"D{i}": {"properties": {n: {"$ref": f"#/$defs/D{i + 1}"} for n in "abcd"}} for i in range(30)}
    return {"$ref": "#/$defs/D0", "$defs": {**both, "D30": {"type": "integer"}}}


SELF = {"$ref": "#/$defs/M"}


@pytest.mark.parametrize(
    "schema",
    [
        {**SELF, "$defs": {"M": SELF}},
        {"type": "object", "properties": {"m": SELF}, "$defs": {"M": SELF}},
        {**SELF, "$defs": {"M": {"$ref": "#/$defs/N"}, "N": SELF}},
        {**SELF, "$defs": {"M": {"type": "array", "items": SELF}}},
        {**SELF, "$defs": {"M": {"anyOf": [SELF, {"type": "null"}]}}},
        {"$ref": "#"},
        {"properties": {"a": {"$ref": "#"}}},
        {**SELF, "$defs": {}},
        SELF,
        {"$ref": "https://evil.example/schema"},
        {**SELF, "$defs": {"M": 3}},
        {"$ref": 3},
        {"$ref": {"a": []}},
        {"properties": {"a": 7}},
        deep(500),
        wide(),
        {"type": "array", "minItems": 10**9},
    ],
    ids=range(17),
)
def test_a_hostile_schema_is_an_error(schema):
    with pytest.raises(ConfigError):
        ActionGrammar(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": 3},
        {"type": "integer", "minimum": "x"},
        {"type": "array", "minItems": "x", "maxItems": 10**12},
        {"type": "object", "required": ["a"]},
        {"type": "object", "properties": [], "required": 3},
        {"type": "number", "maximum": float("inf")},
        {"anyOf": 3},
        {"type": "array", "items": []},
    ],
    ids=range(8),
)
def test_keywords_with_odd_values_are_ignored(schema):
    grammar = ActionGrammar(schema)
    assert grammar.instructions()
    assert grammar.read(grammar.sample(Random(0))).invalid is None


def test_references_inside_lists_and_with_escapes():
    schema = {"$ref": "#/$defs/a~1b/anyOf/1", "$defs": {"a/b": {"anyOf": [{}, {"type": "integer"}]}}}
    assert without_references(schema) == {"type": "integer"}
    twice = {"type": "array", "items": {"type": "integer"}}
    both = {"properties": {"a": SELF, "b": SELF}, "$defs": {"M": twice}}
    assert without_references(both)["properties"] == {"a": twice, "b": twice}
