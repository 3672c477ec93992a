"""Tools with every kind of schema, and results of every kind, from a server that does not use the package."""

# ruff: noqa: E501

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import gem_core
from gem_chat._calls.formats import FORMATS
from gem_chat._calls.schema import problem
from gem_core.errors import ConfigError
from gem_envs.tools import _loop

pytest.importorskip("mcp", reason="needs the extra 'mcp'")

from gem_envs.tools.mcp import close_pools, mcp_tools
from gem_envs.tools.mcp._results import warn

SERVER = Path(__file__).with_name("raw_server.py")
NODE = {"type": "object", "properties": {"name": {"type": "string"}, "kids": {"type": "array"}}}
TREE = {**NODE["properties"], "kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}

# name: schema, good arguments, bad arguments (None if the schema allows everything)
SCHEMAS = {
    "union": ({"type": "object", "properties": {"q": {"type": ["string", "null"]}}}, {"q": None}, {"q": 3}),
    "required_union": (
        {"type": "object", "properties": {"q": {"type": ["string", "null"]}}, "required": ["q"]},
        {"q": "a"},
        {},
    ),
    "true": ({"type": "object", "properties": {"q": True}}, {"q": [1]}, {"r": 1}),
    "false": ({"type": "object", "properties": {"q": False, "r": {}}}, {"r": 1}, {"q": 1}),
    "no_types": ({"type": "object", "properties": {"q": {"type": []}}}, {"q": 1}, {"r": 1}),
    "empty_enum": ({"type": "object", "properties": {"q": {"enum": [], "examples": []}}}, {"q": 1}, {"r": 1}),
    "mixed_enum": ({"properties": {"q": {"enum": [1, "a", None, True, [2], {"b": 3}]}}}, {"q": {"b": 3}}, {"q": 2}),
    "const": ({"properties": {"q": {"const": 1}}, "required": ["q"]}, {"q": 1}, {"q": True}),
    "definitions": (
        {"properties": {"t": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": {"type": "object", "properties": TREE}}},
        {"t": {"name": "a", "kids": [{"name": "b", "kids": []}]}},
        {"t": {"kids": [{"kids": [{"name": 1}]}]}},
    ),
    "top_reference": (
        {"$ref": "#/definitions/A", "definitions": {"A": {"properties": {"n": {"type": "integer"}}, "required": ["n"]}}},
        {"n": 1},
        {"n": "1"},
    ),
    "itself": ({"properties": {"q": {"$ref": "#/properties/q"}, "r": {"$ref": "#"}}}, {"q": 1, "r": {"q": 2}}, {"s": 1}),
    "elsewhere": ({"properties": {"q": {"$ref": "https://example.com/q.json"}}}, {"q": 1}, {"r": 1}),
    "missing": ({"properties": {"q": {"$ref": "#/$defs/Nothing"}}}, {"q": 1}, {"r": 1}),
    "optional": (
        {"properties": {"q": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}}},
        {"q": None},
        {"q": 1},
    ),
    "one_of": (
        {"properties": {"q": {"oneOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string"}}]}}},
        {"q": ["a"]},
        {"q": [1]},
    ),
    "all_of": (
        {"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"required": ["b"]}]},
        {"a": 1, "b": 2},
        {"a": 1},
    ),
    "any_of_top": ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"b": 1}, {"c": 1}),
    "patterns": ({"properties": {"a": {}}, "patternProperties": {"^x": {}}, "additionalProperties": False}, {"x": 1}, None),
    "no_arguments": ({}, {}, None),
    "null_properties": ({"type": "object", "properties": None, "required": None}, {}, None),
    "list_properties": ({"type": "object", "properties": [], "required": True}, {"q": 1}, None),
    "bounds_of_text": ({"properties": {"q": {"type": "integer", "minimum": "1", "maxItems": "x"}}}, {"q": 1}, {"q": "1"}),
    "nullable_object": ({"type": ["object", "null"], "properties": {"q": {"type": "string"}}}, {"q": "a"}, {"q": 1}),
    "no_object": ({"type": "string"}, {"q": 1}, None),
    "old_types": ({"properties": {"q": {"type": [{"type": "string"}, "integer"]}, "r": {"type": "STRING"}}}, {"q": 1}, None),
    "list_schema": ([1, 2], {"q": 1}, None),
    "text_schema": ("a string", {"q": 1}, None),
    "null_schema": (None, {}, None),
    "true_schema": (True, {"q": 1}, None),
}  # fmt: skip
BROKEN = [5, None, {"description": "no name"}, {"name": 3}, {"name": "shut", "inputSchema": False}]
RESULTS = {
    "unknown_type": ({"content": [{"type": "hologram", "of": "a cat"}]}, '{"type": "hologram", "of": "a cat"}'),
    "text_under_schema": ({"content": [{"type": "text", "text": "plain"}]}, "plain"),
    "text_alone": ({"content": "just text"}, "just text"),
    "one_part": ({"content": {"type": "text", "text": "one"}}, "one"),
    "data_alone": ({"structuredContent": {"a": 1}}, '{"a": 1}'),
    "data_of_other_letters": ({"structuredContent": {"a": "né"}}, '{"a": "né"}'),
    "a_list_as_part": ({"content": [["né"]]}, '["né"]'),
    "data_list": ({"content": [], "structuredContent": [1, 2]}, "[1, 2]"),
    "wrong_data": ({"content": [{"type": "text", "text": "x"}], "structuredContent": {"a": "no"}}, "x"),
    "bad_link": ({"content": [{"type": "resource_link"}]}, "[resource_link: no text]"),
    "image": ({"content": [{"type": "image", "data": "?", "mimeType": "image/png"}]}, "[image: image/png]"),
    "file": ({"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}]}, "inside"),
    "binary": ({"content": [{"type": "resource", "resource": {"uri": "a:b", "blob": "aGk="}}]}, "[resource: a:b]"),
    "no_type": ({"content": [{"text": "t"}, {"type": "text"}, None]}, 't\n{"type": "text"}\nnull'),
    "nothing": ({"content": []}, "(The tool returned nothing.)"),
}  # fmt: skip
OUTPUT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.fixture(scope="module", autouse=True)
def _close():
    yield
    close_pools()


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    tools = [{"name": name, "inputSchema": schema} for name, (schema, _, _) in SCHEMAS.items()]
    tools += [
        {"name": name, "inputSchema": {}, "outputSchema": OUTPUT, "annotations": "no", "icons": 3}
        for name in RESULTS
    ]
    tools[0].pop("description", None)
    file = tmp_path_factory.mktemp("raw") / "what.json"
    results = {name: result for name, (result, _) in RESULTS.items()}
    what = {"tools": [*BROKEN, *tools, tools[1]], "results": results, "more": {"nextCursor": 3}}
    file.write_text(json.dumps(what))
    return f"{sys.executable} {SERVER} {file}"


def test_tools_that_cannot_be_called_are_left_out_by_name(command, caplog):
    warn.cache_clear()
    names = [tool.name for tool in mcp_tools(command=command, name="left", connect_timeout=20)]
    assert names == [*SCHEMAS, *RESULTS]
    assert len(caplog.records) == len(BROKEN) + 1
    assert "'shut'" in caplog.text


@pytest.mark.parametrize("form", FORMATS.names())
def test_every_schema_can_be_explained_and_called(command, form):
    tools = f"tools(tools=\"mcp(command='{command}')\", format='{form}', max_tool_uses=None)"
    env = gem_core.make("game:GuessTheNumber-v0-easy", wrappers=[tools, "time_limit(max_turns=500)"])
    observation, _ = env.reset(seed=0)
    for name in (*SCHEMAS, *RESULTS):
        assert name in observation
    assert "[1, 2]" in observation  # a schema that is no object is shown as it is
    wrapper = env.env
    assert len(wrapper.tools) == len(SCHEMAS) + len(RESULTS)
    for tool in wrapper.tools:
        if tool.name not in SCHEMAS:
            continue
        _, good, bad = SCHEMAS[tool.name]
        observation, *_, info = env.step(wrapper.format.write(tool, good))
        assert info.get("tool_results") == [{"name": tool.name, "ok": True, "server": "mcp"}], observation
        assert json.dumps(good) in observation
        if bad is not None:
            observation, *_, info = env.step(wrapper.format.write(tool, bad))
            assert info.get("invalid"), (tool.name, observation)
    env.close()


def test_the_example_of_a_schema_is_valid(command):
    tools = [tool for tool in mcp_tools(command=command) if tool.name in SCHEMAS]
    assert len(tools) == len(SCHEMAS)
    for tool in tools:
        shown = FORMATS.get("hermes").example(tool)
        (call,) = FORMATS.get("hermes").parse(shown, [tool])
        assert call.error is None, (tool.name, shown, call.error)


def test_only_leaves_out_a_tool(command):
    assert [tool.name for tool in mcp_tools(command=command, only=["const"])] == ["const"]
    with pytest.raises(ConfigError, match="unknown tools shut"):
        mcp_tools(command=command, only=["shut"])


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_reaches_the_model_as_text(command, name):
    (tool,) = mcp_tools(command=command, only=[name])
    result = _loop.run(tool.call({}, tool.begin()))
    assert (result.text, result.ok) == (RESULTS[name][1], True)


def test_names_that_become_the_same_stay_different(tmp_path):
    file = tmp_path / "what.json"
    file.write_text(json.dumps({"tools": [{"name": "a b"}, {"name": "a_b"}, {"name": "é"}, {"name": "1"}]}))
    tools = mcp_tools(command=f"{sys.executable} {SERVER} {file}")
    assert [tool.name for tool in tools] == ["a_b", "a_b_2", "t__", "t_1"]
    assert _loop.run(tools[1].call({"x": 1}, tools[1].begin())).text == '{"x": 1}'


def test_a_schema_that_branches_at_every_level_takes_no_time():
    kids = {"type": "array", "items": {"$ref": "#/$defs/T"}}
    tree = {"anyOf": [{"properties": {"kids": kids, "n": {"const": n}}} for n in range(4)]}
    value: dict = {"n": 9}
    for _ in range(200):
        value = {"kids": [value], "n": 9}
    schema = {"type": "object", "properties": {"t": {"$ref": "#/$defs/T"}}, "$defs": {"T": tree}}
    assert problem(schema, {"t": value}) is None or problem(schema, {"t": value})
