from __future__ import annotations

import asyncio
import threading
from typing import ClassVar

import pytest

from gem_chat import _tools as base
from gem_chat._calls.schema import problem
from gem_chat._tools import ENTRY_POINT_GROUP, list_tools
from gem_chat.tools import Tool, ToolResult, make_tools, register_tool
from gem_core._util.entry_points import _loaded_groups
from gem_core.errors import ConfigError, MissingDependency, UnknownName
from gem_envs.tools import _loop


class Counter(Tool):
    name = "counter"
    description = "Counts its calls."
    parameters: ClassVar = {"type": "object", "properties": {"by": {"type": "integer"}}}

    def __init__(self, start: int = 0) -> None:
        self.start = start

    async def call(self, arguments, state):
        state.data["n"] = state.data.get("n", self.start) + arguments.get("by", 1)
        return ToolResult(str(state.data["n"]), metadata={"thread": threading.current_thread().name})


class Named(Tool):
    description = "Has the name it is given."

    def __init__(self, name):
        self.name = name


def two(prefix="x"):
    return [Named(f"{prefix}.one"), Named(f"{prefix}.two")]


@pytest.fixture(autouse=True)
def table(monkeypatch):
    monkeypatch.setattr(base._tools, "_values", base._tools.registered())
    register_tool("counter", Counter)
    register_tool("two", two)


def test_each_episode_has_a_state_of_its_own():
    (tool,) = make_tools("counter(start=5)")
    first, second = tool.begin(), tool.begin()

    async def play():
        await tool.call({"by": 2}, first)
        return (await tool.call({}, first)).text, (await tool.call({}, second)).text

    assert asyncio.run(play()) == ("8", "6")
    assert (first.data, second.data) == ({"n": 8}, {"n": 6})


def test_tools_come_from_strings_objects_and_lists_of_both():
    given = Counter()
    assert [tool.name for tool in make_tools("counter(start=1), two(prefix='y')")] == [
        "counter", "y.one", "y.two",
    ]  # fmt: skip
    assert make_tools(given) == [given]
    assert [tool.name for tool in make_tools([given, "two"])] == ["counter", "x.one", "x.two"]
    assert make_tools("") == []
    assert {"counter", "two"} <= set(list_tools())


def test_mistakes_are_reported_in_one_line():
    with pytest.raises(UnknownName, match="Did you mean counter"):
        make_tools("countr")
    with pytest.raises(TypeError, match="accepted keyword arguments: start"):
        make_tools("counter(stop=1)")
    with pytest.raises(ConfigError, match="two tools have the name 'counter'"):
        make_tools("counter, counter")
    with pytest.raises(ConfigError, match="tools 'counter\\(': expected names"):
        make_tools("counter(")
    with pytest.raises(ConfigError, match="invalid tool name 'no blanks'"):
        make_tools(Named("no blanks"))
    with pytest.raises(ConfigError, match="does not define name"):
        make_tools(Named(""))
    with pytest.raises(ConfigError, match="already registered"):
        register_tool("counter", two)
    with pytest.raises(ConfigError, match="entry point 'no_colon': expected 'module:attribute'"):
        register_tool("other", "no_colon")
    register_tool("needy", "package_that_is_not_there:Tool", extra="search")
    with pytest.raises(MissingDependency, match=r"pip install 'gem-core\[search\]'"):
        make_tools("needy")


def test_parameters_have_to_be_an_object():
    tool = Counter()
    tool.parameters = {"type": "string"}
    with pytest.raises(ConfigError, match="expected a JSON schema of type 'object'"):
        make_tools(tool)


def test_an_installed_package_brings_tools(monkeypatch):
    class EntryPoint:
        name, dist = "theirs", None

        def load(self):
            return lambda: register_tool("theirs", Counter)

    seen = []
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: seen.append(group) or [EntryPoint()])
    _loaded_groups.discard(ENTRY_POINT_GROUP)
    try:
        (tool,) = make_tools("theirs")
    finally:
        _loaded_groups.discard(ENTRY_POINT_GROUP)
    assert isinstance(tool, Counter)
    assert seen == ["gem_core.tools"]


def test_sync_callers_and_other_loops_share_the_background_loop():
    tool = Counter()
    state = tool.begin()
    assert _loop.run(tool.call({}, state)).metadata["thread"] == "gem-tools"
    inside = asyncio.run(_loop.on_background(tool.call({}, state)))
    assert (inside.text, inside.metadata["thread"]) == ("2", "gem-tools")
    with pytest.raises(RuntimeError, match="await it instead"):
        _loop.run(_run_inside(tool, state))


async def _run_inside(tool, state):
    return _loop.run(tool.call({}, state))


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("work", ["waits", "computes", "fails"])
def test_a_canceled_call_has_ended_on_the_background_loop_before_its_caller_goes_on(work, turns):
    begun = ended = 0

    async def call():
        nonlocal begun, ended
        begun += 1
        try:
            if work == "waits":
                await asyncio.sleep(60)
            await asyncio.sleep(0)
            if work == "fails":
                raise ValueError
        finally:
            try:
                await asyncio.sleep(0.005)
            finally:
                ended += 1

    async def play():
        async def wait():
            await _loop.on_background(call())

        task = asyncio.ensure_future(wait())
        for _ in range(turns):
            await asyncio.sleep(0.0005)
        canceled = task.cancel()
        await asyncio.wait({task})
        assert begun == ended
        assert task.cancelled() == canceled
        if not canceled:
            task.exception()

    asyncio.run(play())


SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 1, "maximum": 9},
        "kind": {"enum": ["a", "b"]},
        "list": {"type": "array", "items": {"type": "string"}},
        "deep": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
    },
    "required": ["n"],
}


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"n": 3, "kind": "a", "list": ["x"], "deep": {"x": 1, "more": 2}}, None),
        ({"n": 3.0}, None),
        ({}, 'the argument "n" is missing'),
        ([], "the arguments must be of type object, not array"),
        ({"n": "3"}, 'the argument "n" must be of type integer, not string'),
        ({"n": True}, 'the argument "n" must be of type integer, not boolean'),
        ({"n": 0}, 'the argument "n" must be at least 1'),
        ({"n": 10}, 'the argument "n" must be at most 9'),
        ({"n": 1, "kind": "c"}, "the argument \"kind\" must be one of 'a', 'b'"),
        ({"n": 1, "list": ["a", None]}, 'the argument "list[1]" must be of type string, not null'),
        ({"n": 1, "deep": {}}, 'the argument "deep.x" is missing'),
        ({"n": 1, "m": 1}, 'there is no argument "m"; there are: "n", "kind", "list", "deep"'),
    ],
)
def test_arguments_are_checked_against_the_schema(arguments, wrong):
    assert problem(SCHEMA, arguments) == wrong


def test_a_schema_without_properties_or_with_more_of_them_takes_anything():
    assert problem({"type": "object"}, {"x": 1}) is None
    assert problem({**SCHEMA, "additionalProperties": True}, {"n": 1, "x": 1}) is None
