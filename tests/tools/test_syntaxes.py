"""The syntaxes of native calls: what models write, what is wrong with it, and what a syntax writes itself."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_chat import get_syntax
from gem_chat._calls.native import ProbeTool, find_calls
from gem_chat._calls.reading import MAX_CALLS
from gem_chat._calls.syntaxes import ALL, SYNTAXES
from gem_chat.tools import Tool, ToolCall
from gem_core.errors import UnknownName


class Search(Tool):
    name = "search"
    description = "Finds documents."
    parameters: ClassVar = {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "top_k": {"type": "integer"},
            "exact": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "filter": {"type": "object"},
            "after": {"type": ["string", "null"]},
            "weight": {"type": "number"},
        },
        "required": ["query"],
    }


class Now(Tool):
    name = "now"
    description = "Tells the time."
    parameters: ClassVar = {"type": "object", "properties": {}}


TOOLS = [Search(), Now()]


def read(name: str, text: str) -> list[tuple[str, dict[str, Any], str | None]]:
    return [(call.name, dict(call.arguments), call.error) for call in get_syntax(name).parse(text, TOOLS)]


# ruff: noqa: E501
A, TWO = {"query": "a b", "top_k": 2}, {"query": "c"}
GOOD = [
    ("hermes", '<tool_call>\n{"name": "search", "arguments": {"query": "a b", "top_k": 2}}\n</tool_call>\n<tool_call>\n{"name": "search", "arguments": {"query": "c"}}\n</tool_call>'),
    ("tool_calls", '\n<tool_calls>[{"name": "search", "arguments": {"query": "a b", "top_k": 2}, "id": "x1"}, {"name": "search", "arguments": {"query": "c"}}]</tool_calls>'),
    ("tool_calls", '<tool_calls>\n{"name": "search", "arguments": {"query": "a b", "top_k": 2}}\n{"name": "search", "arguments": {"query": "c"}}\n</tool_calls>'),
    ("nemotron", '<think>hm</think><TOOLCALL>[{"name": "search", "arguments": {"query": "a b", "top_k": 2}}, {"name": "search", "arguments": {"query": "c"}}]</TOOLCALL>'),
    ("mistral-list", '[TOOL_CALLS][{"name": "search", "arguments": {"query": "a b", "top_k": 2}, "id": "abc123def"}, {"name": "search", "arguments": {"query": "c"}, "id": "abc123deg"}]'),
    ("mistral-list", '[TOOL_CALLS] [{"name": "search", "arguments": {"query": "a b", "top_k": 2}}, {"name": "search", "arguments": {"query": "c"}}]'),
    ("mistral", '[THINK]x [TOOL_CALLS]now[ARGS]{}[/THINK]Let me see.[TOOL_CALLS]search[ARGS]{"query": "a b", "top_k": 2}[TOOL_CALLS]search[ARGS]{"query": "c"}'),
    ("mistral", '[TOOL_CALLS]search{"query": "a b", "top_k": 2}[TOOL_CALLS]search{"query": "c"}'),
    ("mistral-id", '[TOOL_CALLS]search[CALL_ID]abc123def[ARGS]{"query": "a b", "top_k": 2}[TOOL_CALLS]search[CALL_ID]abc123deg[ARGS]{"query": "c"}'),
    ("cohere", '<|START_THINKING|>I search.<|END_THINKING|><|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "search", "parameters": {"query": "a b", "top_k": 2}},\n    {"tool_call_id": "1", "tool_name": "search", "parameters": {"query": "c"}}\n]<|END_ACTION|>'),
    ("apertus", '<|inner_prefix|>hm<|inner_suffix|><|tools_prefix|>[{"search": {"query": "a b", "top_k": 2}}, {"search": {"query": "c"}}]<|tools_suffix|>'),
    ("kimi", 'I search.<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>{"query": "a b", "top_k": 2}<|tool_call_end|><|tool_call_begin|>functions.search:1<|tool_call_argument_begin|>{"query": "c"}<|tool_call_end|><|tool_calls_section_end|>'),
    ("deepseek-v3", '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n{"query": "a b", "top_k": 2}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n{"query": "c"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'),
    ("deepseek-v3.1", '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{"query": "a b", "top_k": 2}<｜tool▁call▁end｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{"query": "c"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'),
    ("deepseek-v3.2", 'So:\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="search">\n<｜DSML｜parameter name="query" string="true">a b</｜DSML｜parameter>\n<｜DSML｜parameter name="top_k" string="false">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name="search">\n<｜DSML｜parameter name="query" string="true">c</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>'),
    ("solar", '<|think|>hm<|end|><|tool_calls|><|tool_call:begin|>x1<|tool_call:name|>search<|tool_call:args|>{"query": "a b", "top_k": 2}<|tool_call:end|><|tool_call:begin|>x2<|tool_call:name|>search<|tool_call:args|>{"query": "c"}<|tool_call:end|><|calls|>'),
    ("functionary", '<function=search>{"query": "a b", "top_k": 2}</function><function=search>{"query": "c"}</function>'),
    ("functionary-v3.2", 'search\n{"query": "a b", "top_k": 2}>>>search\n{"query": "c"}'),
    ("xml", "thoughts</think>\n\n<tool_call>\n<function=search>\n<parameter=query>\na b\n</parameter>\n<parameter=top_k>\n2\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=search>\n<parameter=query>\nc\n</parameter>\n</function>\n</tool_call>"),
    ("seed", "<seed:think>x</seed:think><seed:tool_call>\n<function=search>\n<parameter=query>a b</parameter>\n<parameter=top_k>2</parameter>\n</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=search>\n<parameter=query>c</parameter>\n</function>\n</seed:tool_call>"),
    ("glm", "<think></think>\n<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>a b</arg_value>\n<arg_key>top_k</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>c</arg_value>\n</tool_call>"),
    ("glm", "</think><tool_call>search<arg_key>query</arg_key><arg_value>a b</arg_value><arg_key>top_k</arg_key><arg_value>2</arg_value></tool_call><tool_call>search<arg_key>query</arg_key><arg_value>c</arg_value></tool_call>"),
    ("hy3", "<tool_calls:opensource>\n<tool_call:opensource>search<tool_sep:opensource>\n<arg_key:opensource>query</arg_key:opensource>\n<arg_value:opensource>a b</arg_value:opensource>\n<arg_key:opensource>top_k</arg_key:opensource>\n<arg_value:opensource>2</arg_value:opensource>\n</tool_call:opensource>\n<tool_call:opensource>search<tool_sep:opensource>\n<arg_key:opensource>query</arg_key:opensource>\n<arg_value:opensource>c</arg_value:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>"),
    ("minimax-m2", '<minimax:tool_call>\n<invoke name="search">\n<parameter name="query">a b</parameter>\n<parameter name="top_k">2</parameter>\n</invoke>\n<invoke name="search">\n<parameter name="query">c</parameter>\n</invoke>\n</minimax:tool_call>'),
    ("minimax-m3", '</mm:think>]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="search">]<]minimax[>[<query>a b]<]minimax[>[</query>]<]minimax[>[<top_k>2]<]minimax[>[</top_k>]<]minimax[>[</invoke>\n]<]minimax[>[<invoke name="search">]<]minimax[>[<query>c]<]minimax[>[</query>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>'),
    ("muse", '<atem:function_calls>\n<atem:invoke name="search">\n<atem:parameter name="query">a b</atem:parameter>\n<atem:parameter name="top_k">2</atem:parameter>\n</atem:invoke>\n<atem:invoke name="search">\n<atem:parameter name="query">c</atem:parameter>\n</atem:invoke>\n</atem:function_calls>'),
    ("minicpm", '<function name="search"><param name="query">a b</param><param name="top_k">2</param></function>\n<function name="search"><param name="query">c</param></function>'),
    ("kimi-k3", '<|open|>tools<|sep|><|open|>call tool="search" index="1"<|sep|><|open|>argument key="query" type="string"<|sep|>a b<|close|>argument<|sep|><|open|>argument key="top_k" type="number"<|sep|>2<|close|>argument<|sep|><|close|>call<|sep|><|open|>call tool="search" index="2"<|sep|><|open|>argument key="query" type="string"<|sep|>c<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>'),
    ("gemma4", '<|channel>thought\nhm <|tool_call>call:now{}<tool_call|><channel|><|tool_call>call:search{query:<|"|>a b<|"|>,top_k:2}<tool_call|><|tool_call>call:search{query:<|"|>c<|"|>}<tool_call|>'),
    ("lfm2", "<|tool_call_start|>[search(query='a b', top_k=2), search(query=\"c\")]<|tool_call_end|>"),
    ("olmo", "<function_calls>search(query='a b', top_k=2)</function_calls><function_calls>search(query='c')</function_calls>"),
    ("llama", '{"name": "search", "parameters": {"query": "a b", "top_k": 2}}; {"name": "search", "parameters": {"query": "c"}}'),
    ("gigachat", '<|function_call|>{"name": "search", "arguments": {"query": "a b", "top_k": 2}}\n{"name": "search", "arguments": {"query": "c"}}'),
    ("harmony", '<|channel|>analysis<|message|>to=functions.now {"x": 1}<|end|><|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"query": "a b", "top_k": 2}<|call|><|start|>assistant to=functions.search<|channel|>commentary json<|message|>{"query": "c"}<|call|>'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), GOOD)
def test_calls_as_models_write_them(name: str, text: str) -> None:
    assert read(name, text) == [("search", A, None), ("search", TWO, None)]


def test_every_syntax_has_an_example() -> None:
    assert {name for name, _ in GOOD} | {"deepseek-v4"} == set(SYNTAXES.names())
    with pytest.raises(UnknownName, match="Did you mean hermes"):
        get_syntax("hermess")


def test_ids_of_calls_are_read() -> None:
    ids = {name: [call.id for call in get_syntax(name).parse(text, TOOLS)] for name, text in GOOD}
    assert ids["kimi"] == ["functions.search:0", "functions.search:1"]
    assert ids["mistral-id"] == ["abc123def", "abc123deg"]
    assert ids["cohere"] == ["0", "1"]
    assert ids["solar"] == ["x1", "x2"]


@pytest.mark.parametrize("name", SYNTAXES.names())
@settings(max_examples=25, deadline=None)
@given(
    text=st.text(
        st.characters(exclude_characters="<>[]{}\"'`\\", exclude_categories=["C", "Z"]),
        min_size=1,
        max_size=30,
    ),
    number=st.integers(-(10**12), 10**12),
    weight=st.floats(allow_nan=False, allow_infinity=False, width=32),
    exact=st.booleans(),
    tags=st.lists(st.text(st.characters(categories=["L", "N"]), max_size=5), max_size=3),
)
def test_what_a_syntax_writes_it_reads(name, text, number, weight, exact, tags) -> None:
    """Round trip of every type, of one call and of several, with text before them where that is allowed."""
    arguments = {
        "query": text,
        "top_k": number,
        "weight": weight,
        "exact": exact,
        "tags": tags,
        "after": None,
    }
    calls = [ToolCall("search", arguments), ToolCall("search", {"query": "2"}), ToolCall("now", {})]
    for count in (1, 2, 3):
        written = get_syntax(name).write(calls[:count])
        for before in ("", "I look.\n") if name not in ("llama", "functionary-v3.2") else ("",):
            assert read(name, before + written) == [
                (call.name, call.arguments, None) for call in calls[:count]
            ]


# Texts that look like the end of something; a syntax without escapes cannot hold its own closing tags.
MARKUP = [
    "</think>", "<think>a</think>b", "</tool_call>", "<tool_call>", "</arguments>", "</function>", "<|im_end|>",
    "</parameter>", "</arg_value>", "<tool_response>x</tool_response>", "]\n[", "}}", "```", "</invoke>", "</param>",
    "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "[TOOL_CALLS]", "[ARGS]", "\n\n", '"', "'", "\\", "\\n", "{}",
    "<|tool_call_end|>", "<｜tool▁call▁end｜>", "<tool_call|>", "<|START_ACTION|>", "<channel|>", "[/THINK]", "é\u2028",
]  # fmt: skip


@pytest.mark.parametrize("name", SYNTAXES.names())
def test_arguments_may_contain_markup_of_the_conversation(name: str) -> None:
    for markup in MARKUP:
        call = ToolCall("search", {"query": f"a {markup} b", "top_k": 2})
        assert read(name, get_syntax(name).write([call])) == [("search", dict(call.arguments), None)], markup


@pytest.mark.parametrize("name", SYNTAXES.names())
def test_the_end_of_the_calls_is_found(name: str) -> None:
    calls = [ToolCall("search", {"query": "a"}), ToolCall("search", {"query": "b"})]
    written = get_syntax(name).write(calls)
    found = get_syntax(name).parse(written, TOOLS)
    assert (found[0].start, found[-1].end) == (0, len(written))


BAD = [
    ("hermes", "<tool_call>search</tool_call>", "invalid JSON"),
    ("hermes", "<tool_call>[]</tool_call>", "the list of calls is empty"),
    ("tool_calls", "<tool_calls>[1]</tool_calls>", "a call is a JSON object"),
    ("apertus", '<|tools_prefix|>[{"a": {}, "b": {}}]<|tools_suffix|>', "its only key"),
    ("nemotron", '<TOOLCALL>[{"name": "search"', "invalid JSON"),
    ("kimi", "<|tool_call_begin|>search<|tool_call_end|>", "expected <|tool_call_begin|>functions.name:0"),
    ("kimi", "<|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>{", "invalid JSON"),
    ("kimi", "<|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>{} x<|tool_call_end|>", "other text"),
    ("deepseek-v3", "<｜tool▁call▁begin｜>search<｜tool▁call▁end｜>", "expected <｜tool▁call▁begin｜>function"),
    ("mistral", "[TOOL_CALLS]", "expected [TOOL_CALLS]name[ARGS]{...}"),
    ("mistral", '[TOOL_CALLS]search[ARGS]{"query": ', "invalid JSON"),
    ("xml", "<tool_call>\n<function=search>\n<parameter=query>\na", 'the argument "query" is not closed'),
    ("xml", "<tool_call>search</tool_call>", "expected <tool_call>"),
    ("xml", "<tool_call>\n<function=search>\n<parameter=query>\na\n</parameter>", "expected an argument or </function>"),
    ("xml", "<tool_call>\n<function=search>\n<parameter=query>\na\n</parameter>\n<parameter=query>\nb\n</parameter>\n</function>\n</tool_call>", "given twice"),
    ("xml", "<tool_call>\n<function=search>\n<parameter=query>\na\n</parameter>\n<parameter=top_k>\nmany\n</parameter>\n</function>\n</tool_call>", "top_k"),
    ("glm", "<tool_call>search\n<arg_key>query</arg_key>", "expected an argument or </tool_call>"),
    ("glm", "<tool_call></tool_call>", "expected <tool_call>name"),
    ("minimax-m2", '<invoke name="search"><parameter name="query">a', "is not closed"),
    ("gemma4", "<|tool_call>call:search{query:a}<tool_call|>", "expected a value at 'a}"),
    ("gemma4", '<|tool_call>call:search{query:<|"|>a', "is not closed"),
    ("gemma4", "<|tool_call>call:search" + "{a:" * 1000, "nested too deeply"),
    ("gemma4", "<|tool_call>search()<tool_call|>", "expected call:name{...}"),
    ("lfm2", "<|tool_call_start|>[search('a')]<|tool_call_end|>", "arguments need their names"),
    ("lfm2", "<|tool_call_start|>", "cannot be read"),
    ("harmony", "<|channel|>commentary to=functions.search <|constrain|>json<|message|>{query", "invalid JSON"),
    ("harmony", "<|channel|>commentary to=functions.search<|message|>{} and<|call|>", "other text"),
    ("harmony", "<|channel|>commentary to=functions.find<|message|>{}<|call|>", 'there is no tool "find"'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "wrong"), BAD)
def test_a_malformed_call_says_what_is_wrong(name: str, text: str, wrong: str) -> None:
    found = get_syntax(name).parse(text, TOOLS)
    assert [call.error is not None for call in found] == [True]
    assert wrong in str(found[0].error)
    assert len(str(found[0].error)) < 400


TYPES = [("7", 7, "top_k"), ("7", "7", "query"), ("true", True, "exact"), ("True", True, "exact"), ("null", None, "after"),
         ("None", None, "after"), ("2026", "2026", "after"), ("[1]", "[1]", "query"), ('["a"]', ["a"], "tags"),
         ('{"a": 1}', {"a": 1}, "filter"), ("1.5", 1.5, "weight"), (" x\n", " x\n", "query"), ("", "", "query")]  # fmt: skip


@pytest.mark.parametrize(("written", "value", "key"), TYPES)
def test_the_schema_decides_the_type_of_a_plain_text(written: str, value: Any, key: str) -> None:
    other = "" if key == "query" else "<parameter=query>\nx\n</parameter>\n"
    text = f"<tool_call>\n<function=search>\n{other}<parameter={key}>\n{written}\n</parameter>\n</function>\n</tool_call>"
    ((name, arguments, error),) = read("xml", text)
    assert (name, arguments[key], error) == ("search", value, None)


UNITS = [
    "<tool_call>", "</tool_call>", "<function=x>", "<parameter=a>", "</parameter>", "<arg_key>", "<arg_value>",
    "</arg_value>", "[TOOL_CALLS]", "[TOOL_CALLS]a[ARGS]{", "<|tool_call>call:a{", '<|"|>', "<|message|>", "<|start|>",
    " to=functions.a", "<|tool_call_begin|>", "<|tool_call_start|>[a(", "<invoke name=\"a\">", '<parameter name="a">',
    "]<]minimax[>[<a>", "<|open|>call tool=", "</think>", "<think>", "{", "[", '{"name": "', "\n", "<TOOLCALL>", ">>>a\n{",
]  # fmt: skip


@pytest.mark.parametrize("name", SYNTAXES.names())
def test_a_megabyte_of_anything_is_read_quickly(name: str) -> None:
    opening = get_syntax(name).write([ToolCall("search", {"query": "a"})])
    for unit in (*UNITS, opening, opening[: len(opening) // 2]):
        text = unit * (300_000 // len(unit))
        assert len(get_syntax(name).parse(text, TOOLS)) <= MAX_CALLS
        assert len(get_syntax(name).parse(opening[: 2 * len(opening) // 3] + text, TOOLS)) <= MAX_CALLS


@pytest.mark.parametrize("name", SYNTAXES.names())
@settings(max_examples=60, deadline=None)
@given(
    parts=st.lists(
        st.sampled_from([*UNITS, "search", '"}', "}", ":", "a", "1", ")]", "=", "é", "\ud800", ",", "null"])
    )
)
def test_no_text_breaks_a_parser(name: str, parts: list[str]) -> None:
    text = "".join(parts)
    for call in get_syntax(name).parse(text, TOOLS):
        assert 0 <= call.start <= call.end <= len(text)
        assert call.error is not None or call.name in {"search", "now"}
        json.dumps(dict(call.arguments), allow_nan=False)


@pytest.mark.parametrize("name", SYNTAXES.names())
def test_a_template_in_a_syntax_is_recognized(name: str) -> None:
    def render(messages, *, generate):
        text = "".join(f"[{message['role']}] {message['content']}\n" for message in messages[:1])
        for message in messages[1:]:
            calls = [
                ToolCall(entry["function"]["name"], entry["function"]["arguments"], id=entry["id"])
                for entry in message["tool_calls"]
            ]
            text += (
                "[assistant]" + get_syntax(name).write(calls) + ("<|call|>" if name == "harmony" else "<end>")
            )
        return text + "[assistant]" * generate

    found = find_calls(render)
    same = {"deepseek-v3.2", "deepseek-v4"} if name.startswith("deepseek-v3.2") else {name}
    assert found.syntax.name in same | {name}
    assert (found.text_arguments, found.several) == (False, True)


@pytest.mark.parametrize(
    "written",
    ["CALL", "<CALL>[{}]</CALL>", 'prefix {"name": "probe_tool", "parameters": {}}', "probe_tool(key='x')"],
)
def test_another_syntax_is_not_taken_for_one_of_these(written: str) -> None:
    """A syntax counts only if its parser reads exactly the calls of the probe in the whole text."""

    def render(messages, *, generate):
        return (
            "[user] Call it.\n"
            + "[assistant]" * (generate or len(messages) > 1)
            + written * (len(messages) > 1)
        )

    with pytest.raises(UnknownName, match="unknown syntax"):
        find_calls(render)
    assert [syntax.name for syntax in ALL if syntax.parse("no call at all", [ProbeTool()])] == []
