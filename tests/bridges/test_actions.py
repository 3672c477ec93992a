"""The text forms of typed actions."""

from __future__ import annotations

import json
import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_bridges._actions import ActionGrammar, describe_values, random_value, without_references
from gem_chat._calls.schema import problem
from gem_core.errors import ConfigError

COLORS = {"enum": ["Red", "green"]}
COUNT = {"type": "integer", "minimum": 1, "maximum": 6}
PAIR = {
    "type": "array",
    "items": {"type": "number", "minimum": -1, "maximum": 1},
    "minItems": 2,
    "maxItems": 2,
}
POINT = {
    "$defs": {"Unit": {"type": "number", "minimum": 0, "maximum": 1}},
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/Unit"}, "label": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
    "required": ["x"],
    "additionalProperties": False,
}
SCHEMAS = [COLORS, COUNT, PAIR, POINT, {"type": "boolean"}, {"type": "string"}]


@pytest.mark.parametrize(
    ("schema", "response", "value"),
    [
        (COLORS, r"I take \boxed{red}", "Red"),
        (COLORS, r"\boxed{\text{GREEN}}", "green"),
        (COUNT, r"first \boxed{9}, no: \boxed{ 4 }", 4),
        (PAIR, r"\boxed{[0.5, -1]}", [0.5, -1]),
        (POINT, r'\boxed{{"x": 0.25}}', {"x": 0.25}),
        ({"type": "boolean"}, r"\boxed{true}", True),
        ({"type": "string"}, r"\boxed{go north}", "go north"),
    ],
)
def test_an_action_is_read_from_the_last_box(schema, response, value):
    assert ActionGrammar(schema).read(response) == (value, None, "")


@pytest.mark.parametrize(
    ("schema", "response", "kind", "reason"),
    [
        (COLORS, "red", "format", "no .boxed"),
        (COLORS, r"\boxed{blue}", "format", "one of: Red, green"),
        (COUNT, r"\boxed{7}", "illegal", "the action must be at most 6"),
        (COUNT, r"\boxed{" + "9" * 5000 + "}", "illegal", "at most 6"),
        (COUNT, r"\boxed{two}", "format", "not a whole number"),
        (PAIR, r"\boxed{[NaN, 0]}", "format", "a JSON list of 2 values"),
        (PAIR, r"\boxed{[0]}", "illegal", "at least 2 values"),
        (POINT, r'\boxed{{"y": 1}}', "illegal", '"x" is missing'),
        (POINT, r"\boxed{" + "[" * 5000 + "}", "format", "a JSON object"),
    ],
)
def test_a_bad_action_has_a_kind_and_a_reason(schema, response, kind, reason):
    action = ActionGrammar(schema).read(response)
    assert (action.value, action.invalid) == (None, kind)
    assert re.search(reason, action.reason)


@given(st.text())
def test_no_text_raises(text):
    for schema in SCHEMAS:
        for response in (text, f"\\boxed{{{text}}}"):
            action = ActionGrammar(schema).read(response)
            assert (action.value is None) == (action.invalid is not None)


@given(st.sampled_from(SCHEMAS), st.integers(0, 2**32))
def test_a_sampled_action_fits_and_is_read_back(schema, seed):
    grammar = ActionGrammar(schema)
    value = random_value(grammar.schema, Random(seed))
    assert problem(grammar.schema, value) is None
    assert grammar.read(grammar.write(value)) == (value, None, "")


def test_a_whole_response_is_encodable_text():
    grammar = ActionGrammar({"type": "string"}, whole=True)
    assert grammar.read("say \ud800 \\boxed{1}").value == "say \ufffd \\boxed{1}"
    assert grammar.instructions() == ""
    with pytest.raises(ConfigError, match="actions are of type integer"):
        ActionGrammar(COUNT, whole=True)


def test_instructions_name_every_field():
    text = ActionGrammar(POINT).instructions()
    assert text.startswith("Answer with \\boxed{action}, where the action is a JSON object with")
    assert '"x": a number from 0 to 1; "label": text' in text
    assert (
        describe_values(without_references({"anyOf": [{"type": "integer"}, {"type": "string"}]}))
        == "a JSON value"
    )
    assert json.dumps(without_references(POINT)).count("$") == 0


def _doubling(levels: int) -> dict:
    """Return a schema that has 2**levels parts without references."""
    pair = {n: {"properties": {x: {"$ref": f"#/$defs/{n + 1}"} for x in "ab"}} for n in range(levels)}
    return {"$ref": "#/$defs/0", "$defs": {**{str(n): one for n, one in pair.items()}, str(levels): {}}}


def _nested(levels: int, keyword: str) -> dict:
    schema: dict = {"type": "string"}
    for _ in range(levels):
        schema = {
            keyword: {"x": schema} if keyword == "properties" else [schema] if keyword == "anyOf" else schema
        }
    return schema


HOSTILE = {
    "itself": {"properties": {"m": {"$ref": "#/$defs/M"}}, "$defs": {"M": {"$ref": "#/$defs/M"}}},
    "root": {"$ref": "#"},
    "two": {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}},
    "with other keys": {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "$ref": "#/$defs/A"}}},
    "tree": {"$ref": "#/$defs/T", "$defs": {"T": {"properties": {"kid": {"$ref": "#/$defs/T"}}}}},
    "list of itself": {"items": {"$ref": "#"}, "type": "array"},
    "any of itself": {"anyOf": [{"type": "null"}, {"$ref": "#"}]},
    "spelled apart": {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/%24defs/A"}}},
    "a growing path": {
        "$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A/$defs/A", "$defs": {"A": {"$ref": "#"}}}},
    },
    "nothing": {"$ref": "#/$defs/M"},
    "nothing behind a name": {"$ref": "#/type/x", "type": "object"},
    "no text": {"$ref": 7},
    "another place": {"$ref": "https://example.com/a.json"},
    "chain": {"$ref": "#/$defs/0", "$defs": {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(5000)}},
    "deep": _nested(5000, "properties"),
    "deep list": _nested(900, "items"),
    "deep choice": _nested(900, "anyOf"),
    "doubling": _doubling(40),
    "wide": {"properties": {str(n): {} for n in range(50_000)}},
    "not a schema": {"properties": {"a": 5}},
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_schema_without_end_is_a_config_error(name):
    with pytest.raises(ConfigError, match=r"schema of|reference"):
        ActionGrammar(HOSTILE[name])


def test_a_schema_may_be_named_twice_and_deep():
    twice = {"properties": {x: {"$ref": "#/$defs/U"} for x in "ab"}, "$defs": {"U": {"type": "integer"}}}
    assert without_references(twice) == {"properties": {x: {"type": "integer"} for x in "ab"}}
    assert without_references({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "string"}}}) == {
        "type": "string"
    }
    assert without_references(_nested(50, "items"))
