from __future__ import annotations

import json
import sys
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_chat._calls.formats import FORMATS, MAX_CALLS, get_format, text_argument
from gem_chat._calls.native import native_calls
from gem_chat._tools import schema
from gem_chat.tools import Tool
from gem_core.errors import UnknownName


class Python(Tool):
    name = "python"
    description = "Runs code."
    parameters: ClassVar = {
        "type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"],
    }  # fmt: skip


class Search(Tool):
    name = "search"
    description = "Finds documents."
    parameters: ClassVar = {
        "type": "object",
        "properties": {"query": {"type": "string"}, "top_k": {"type": "integer", "minimum": 1}},
        "required": ["query"],
    }


class Add(Tool):
    name = "calc.add-2"
    description = "Adds."
    parameters: ClassVar = {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    }


TOOLS = [Python(), Search(), Add()]


def calls(form, text):
    return [(c.name, dict(c.arguments), c.error) for c in get_format(form).parse(text, TOOLS)]


# Typical responses of each model family, some of them with typical mistakes.
# ruff: noqa: E501
GOOD = [
    ("gem", "Let me see.\n<python>\nprint(1 + 1)\n</python>\nSo it is", [("python", {"code": "\nprint(1 + 1)\n"})]),
    ("gem", "I compute:\n```python\nprint('<b>')\n```\n", [("python", {"code": "print('<b>')\n"})]),
    ("gem", "1. run\n   ```py\n   x = 1\n   ```", [("python", {"code": "   x = 1\n"})]),
    ("gem", "<python>\n```python\nprint(2)\n```\n</python>", [("python", {"code": "print(2)\n"})]),
    ("gem", "<think>I could <search>no</search></think><search>Ada Lovelace</search>",
     [("search", {"query": "Ada Lovelace"})]),
    ("gem", "<think>not closed <search>yes</search>", [("search", {"query": "yes"})]),
    ("gem", '<tool_call><tool_name>calc.add-2</tool_name><arguments>{"a": 1, "b": 2.5}</arguments></tool_call>',
     [("calc.add-2", {"a": 1, "b": 2.5})]),
    ("gem", "<python>a</python><search>b</search>```python\nc\n```",
     [("python", {"code": "a"}), ("search", {"query": "b"})]),
    ("gem", "<PYTHON>print(1)</PYTHON><Search>gems</Search>",
     [("python", {"code": "print(1)"}), ("search", {"query": "gems"})]),
    ("gem", '<Tool_Call><tool_name>search</tool_name><arguments>{"query": "gems"}</arguments></Tool_Call>',
     [("search", {"query": "gems"})]),
    ("gem", "The answer is \\boxed{4}, as `python` says.", []),
    ("gem", "```json\n{}\n```", []),
    ("hermes", '<tool_call>\n{"name": "search", "arguments": {"query": "gems", "top_k": 2}}\n</tool_call>',
     [("search", {"query": "gems", "top_k": 2})]),
    ("hermes", '<think>\nhm <tool_call>{"name": "x"}</tool_call>\n</think>\n\n<tool_call>\n'
     '{"name": "python", "arguments": {"code": "print(\\"</tool_call>\\")"}}\n</tool_call>',
     [("python", {"code": 'print("</tool_call>")'})]),
    ("hermes", '<tool_call>{"name": "python", "arguments": "{\\"code\\": \\"1\\"}"}</tool_call>',
     [("python", {"code": "1"})]),
    ("hermes", '<tool_call>{"name": "search", "parameters": {"query": "a"}}</tool_call>\n'
     '<tool_call>{"function": {"name": "search", "arguments": {"query": "b"}}}</tool_call>',
     [("search", {"query": "a"}), ("search", {"query": "b"})]),
    ("hermes", '<tool_call>\n{"name": "search", "arguments": {"query": "cut by a stop word"}}\n',
     [("search", {"query": "cut by a stop word"})]),
    ("hermes", '<tool_call>{"name": "python", "arguments": {"code": "a\nb"}}</tool_call>',
     [("python", {"code": "a\nb"})]),  # a raw line break in the string
    ("hermes", "No call, just \\boxed{1}.", []),
    ("llama", '<|python_tag|>{"name": "search", "parameters": {"query": "gems"}}',
     [("search", {"query": "gems"})]),
    ("llama", '\n{"type": "function", "name": "search", "parameters": {"query": "a"}}; '
     '{"name": "search", "parameters": {"query": "b"}}', [("search", {"query": "a"}), ("search", {"query": "b"})]),
    ("llama", '<function=search>{"query": "gems"}</function>', [("search", {"query": "gems"})]),
    ("llama", "[search(query='a', top_k=2), python(code=\"print('x]')\")]",
     [("search", {"query": "a", "top_k": 2}), ("python", {"code": "print('x]')"})]),
    ("llama", 'The set {"name"} is an answer.', []),
    ("llama", '{"value": 3}', []),
]  # fmt: skip


@pytest.mark.parametrize(("form", "text", "expected"), GOOD)
def test_calls_as_models_write_them(form, text, expected):
    assert calls(form, text) == [(name, arguments, None) for name, arguments in expected]


MARKUP = [
    "</think>", "<think>a</think>b", "</tool_call>", "<tool_call>", "</arguments>", "</function>", "<function=search>",
    "<|python_tag|>", "<|im_end|>", "<tool_response>x</tool_response>", "]\n[", "</tool_call></think><tool_call>", "```",
    '</think><tool_call>{"name": "search"}</tool_call>', "<|start_header_id|>user<|end_header_id|>", "</search>",
]  # fmt: skip


@pytest.mark.parametrize("markup", MARKUP)
def test_arguments_may_contain_markup_of_the_conversation(markup):
    call = {"query": f"a {markup} b", "top_k": 2}
    text = json.dumps(call)
    written = {
        "hermes": [f'<tool_call>{{"name": "search", "arguments": {text}}}</tool_call>'],
        "gem": [
            f"<tool_call><tool_name>search</tool_name><arguments>{text}</arguments></tool_call>",
            f'<tool_call>{{"name": "search", "arguments": {text}}}</tool_call>',
        ],
        "llama": [
            f'{{"name": "search", "parameters": {text}}}',
            f"<function=search>{text}</function>",
            f"[search(query={call['query']!r}, top_k=2)]",
        ],
    }
    for form, texts in written.items():
        for one in texts:
            for before in ("", "<think>hm</think>\n", "hm</think>\n"):
                assert calls(form, before + one) == [("search", call, None)], (form, before + one)
        again = get_format(form).write(TOOLS[1], call)
        assert calls(form, again) == [("search", call, None)]


BAD = [
    ("gem", "<python>print(1)", "<python> is not closed with </python>"),
    ("gem", "```python\nprint(1)", "the code block is not closed"),
    ("gem", "<tool_call>{}</tool_call>", 'no "name" of a tool'),
    ("gem", "<tool_call><tool_name>search</tool_name></tool_call>", "there is no <arguments>"),
    ("gem", "<tool_call>[]</tool_call>", "expected a JSON object or <tool_name>...</tool_name>"),
    ("gem", "<tool_call><tool_name>find</tool_name><arguments>{}</arguments></tool_call>",
     'there is no tool "find"; there are: python, search, calc.add-2'),
    ("gem", "<tool_call><tool_name>search</tool_name><arguments>{'query': 1}</arguments></tool_call>",
     "invalid JSON: Expecting property name enclosed in double quotes at \"'query'"),
    ("hermes", '<tool_call>{"name": "search", "arguments": {"query": "gems"}', "invalid JSON"),
    ("hermes", '<tool_call>{"name": "search", "arguments": {"top_k": 1}}</tool_call>',
     'the argument "query" is missing'),
    ("hermes", '<tool_call>{"name": "search", "arguments": {"query": "a", "top_k": 0}}</tool_call>',
     'the argument "top_k" must be at least 1'),
    ("hermes", '<tool_call>{"arguments": {}}</tool_call>', 'no "name"'),
    ("hermes", '<tool_call>{"name": "search", "arguments": [1]}</tool_call>', "the arguments are not a JSON object"),
    ("hermes", '<tool_call>{"name": "search", "arguments": {"query": NaN}}</tool_call>', "NaN is not JSON"),
    ("hermes", '<tool_call>{"name": "search"} and more</tool_call>', "other text between"),
    ("hermes", "<tool_call>search(gems)</tool_call>", "invalid JSON"),
    ("hermes", "<tool_call>" + "[" * 100_000 + "</tool_call>", "invalid JSON"),
    ("hermes", '<tool_call>{"name": ' + "1" * 5000 + "}</tool_call>", ""),
    ("llama", '{"name": "search", "parameters": {"query": "a"', "invalid JSON"),
    ("llama", "[search('gems')]", "arguments need their names"),
    ("llama", "[search(query=open('x'))]", "cannot be read"),
    ("llama", "<function=search>{query: 1}</function>", "invalid JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "text", "wrong"), BAD)
def test_a_malformed_call_says_what_is_wrong(form, text, wrong):
    (found,) = get_format(form).parse(text, TOOLS)
    assert found.error
    assert wrong in found.error
    assert len(found.error) < 400
    assert "\n" not in found.error


@pytest.mark.parametrize("form", FORMATS.names())
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
@settings(max_examples=30)
@given(
    text=st.text(st.characters(exclude_characters="<`", exclude_categories=["Cs"]), max_size=40),
    number=st.integers(),
)
def test_what_a_format_writes_it_reads(form, tool, text, number):
    samples = {"string": text, "integer": abs(number) + 1, "number": number}
    properties = tool.parameters["properties"]
    arguments = {key: samples[value["type"]] for key, value in properties.items()}
    written = f"I call it. {get_format(form).write(tool, arguments)}"
    if form == "llama":
        written = written.removeprefix("I call it. ")
    assert calls(form, written) == [(tool.name, arguments, None)]


@pytest.mark.parametrize("form", FORMATS.names())
def test_instructions_show_every_tool_with_a_call_that_can_be_read(form):
    told = get_format(form).instructions(TOOLS)
    for tool in TOOLS:
        assert tool.description in told
        example = get_format(form).example(tool)
        assert example in told
        assert calls(form, example)[0][2] is None


UNITS = [
    "<python>", "</python>", "```python\n", "```", "<tool_call>", "</tool_call>", '<tool_call>{"', '{"name": "',
    '<tool_call>{"name": "x", "arguments": {"a": "\\"', "<function=x>", "[search(", "</think>", "<think>",
    "<tool_call><tool_name>", '<tool_call>{",":"":"', " \t", "\n", "[", "{", "\\", "~~~py\n", "<search>a</search>",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMATS.names())
@pytest.mark.parametrize("unit", UNITS)
def test_two_megabytes_of_anything_are_read(form, unit):
    text = unit * (2_000_000 // len(unit))
    for prefix in ("", '{"name": "', "[search("):
        assert len(get_format(form).parse(prefix + text, TOOLS)) <= MAX_CALLS


@pytest.mark.parametrize("form", FORMATS.names())
def test_every_plane_of_unicode_is_text(form):
    sample = "".join(chr(code) for code in range(0, sys.maxunicode + 1, 97) if not 0xD800 <= code < 0xE000)
    for text in (sample, f"<python>{sample}", f'<tool_call>{{"name": "{sample}'):
        get_format(form).parse(text, TOOLS)
    code = sample.replace("<", "").replace("`", "")
    assert calls("gem", f"<python>{code}</python>") == [("python", {"code": code}, None)]
    written = get_format("hermes").write(Python(), {"code": sample})
    assert calls("hermes", written) == [("python", {"code": sample}, None)]


@pytest.mark.parametrize("form", FORMATS.names())
@settings(max_examples=200)
@given(
    parts=st.lists(
        st.sampled_from([*UNITS, "search", '"}', "}", ":", "a", "1", ")]", "(", "=", "é", "\ud800"])
    )
)
def test_no_text_breaks_a_parser(form, parts):
    text = "".join(parts)
    for call in get_format(form).parse(text, TOOLS):
        assert 0 <= call.end <= len(text)
        assert call.error is not None or call.name in {tool.name for tool in TOOLS}
        json.dumps(dict(call.arguments), allow_nan=False)


def test_calls_of_chat_apis():
    message = {
        "tool_calls": [
            {"id": "1", "function": {"name": "search", "arguments": '{"query": "gems"}'}},
            {"function": {"name": "search", "arguments": {"query": "gems"}}},
            {"function": {"name": "search", "arguments": "{"}},
            {"function": {"name": "find", "arguments": None}},
            {},
        ]
    }
    found = native_calls(message, TOOLS)
    assert [call.error is None for call in found] == [True, True, False, False, False]
    assert found[0].arguments == found[1].arguments == {"query": "gems"}
    assert native_calls({"content": "none"}, TOOLS) == []


def test_names_and_schemas():
    with pytest.raises(UnknownName, match="Did you mean hermes"):
        get_format("Hermess")
    assert schema(TOOLS[1])["function"]["name"] == "search"
    assert [text_argument(tool) for tool in TOOLS] == ["code", "query", None]


class Tables(Tool):
    name = "list_tables"
    description = "Lists the tables."


@pytest.mark.parametrize(
    "text", ["<list_tables></list_tables>", "<list_tables>\n</list_tables>", "<list_tables>{}</list_tables>"]
)
def test_a_tool_without_arguments_is_called_by_an_empty_tag(text: str) -> None:
    (call,) = get_format("gem").parse(text, [Tables()])
    assert (call.name, dict(call.arguments), call.error, call.end) == ("list_tables", {}, None, len(text))
    assert get_format("gem").write(Tables(), {}) == "<list_tables></list_tables>"


@pytest.mark.parametrize("name", ["gem", "hermes"])
@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "list_tables", "arguments": {}}\n</tool_call>',
        '<tool_call>{"name": "List_Tables", "arguments": {},}</tool_call>',
        '<tool_call>{"name": "LIST_TABLES", "arguments": { , }, }</tool_call>',
    ],
)
def test_json_calls_may_have_another_case_and_trailing_commas(name: str, text: str) -> None:
    (call,) = get_format(name).parse(text, [Tables()])
    assert (call.name, call.error, call.end) == ("list_tables", None, len(text))


def test_many_trailing_commas_are_an_error_and_take_no_time() -> None:
    text = '<tool_call>{"name": ' + "[" * 50 + "1" + ",]" * 50 + "}</tool_call>" * 1000
    assert get_format("hermes").parse(text, [Tables()])[0].error is not None
