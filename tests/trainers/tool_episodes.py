"""Episodes with native tool calls for the tests of trainers: an environment, chat templates, and scripts."""

# ruff: noqa: E501
from __future__ import annotations

from typing import Any

from gem_chat import get_syntax
from gem_chat.tools import Tool, ToolCall, ToolResult
from gem_core import Env, register
from gem_envs.tools import Tools

ENV = "test:Boxes"
FORMATS = ("hermes", "xml", "glm")


class Look(Tool):
    name = "look"
    description = "Looks into a box."
    parameters = {"type": "object", "properties": {"box": {"type": "integer"}}, "required": ["box"]}  # noqa: RUF012

    async def call(self, arguments: Any, state: Any) -> ToolResult:
        return ToolResult(f'box "{arguments["box"]}" is empty', reward=0.25)


class Boxes(Env):
    """Pays 1 for the answer "right" and ends."""

    format_error_reward = -0.5

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.begin_episode(seed)
        return "Which box is full?", {}

    def step(self, action: str) -> Any:
        self.require_reset()
        self.end_episode()
        return "The end.", float("right" in action), True, False, {"success": "right" in action}


def boxes() -> Env:
    return Tools(Boxes(), tools=Look(), max_calls=2)


register(ENV, boxes)


def template(name: str, begin: str, end: str) -> str:
    """Return a chat template that writes calls in a syntax.

    Args:
        name: Name of the syntax, one of `FORMATS`.
        begin: Text before a message, with the field ``role``.
        end: Token after a message.
    """
    form = {
        "hermes": '<tool_call>\n{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}\n</tool_call>',
        "xml": "<tool_call>\n<function={{ f.name }}>\n{% for k, v in f.arguments.items() %}<parameter={{ k }}>"
        "{{ '\n' }}{{ v }}\n</parameter>\n{% endfor %}</function>\n</tool_call>",
        "glm": "<tool_call>{{ f.name }}{% for k, v in f.arguments.items() %}{{ '\n' }}<arg_key>{{ k }}</arg_key>"
        "{{ '\n' }}<arg_value>{{ v }}</arg_value>{% endfor %}{{ '\n' }}</tool_call>",
    }[name]  # fmt: skip
    result = "{{ m.content | tojson }}" if name == "glm" else "<tool_response>{{ m.content }}</tool_response>"
    opening = begin.replace("ROLE", "{{ 'user' if m.role == 'tool' else m.role }}")
    return (
        "{% if tools %}" + begin.replace("ROLE", "system") + "{{ tools | tojson }}" + end + "{% endif %}"
        "{% for m in messages %}" + opening + "{% if m.role == 'tool' %}" + result + "{% else %}{{ m.content }}"
        "{% for c in m.tool_calls or [] %}{% set f = c.function %}" + form + "{% endfor %}{% endif %}" + end
        + "{% endfor %}{% if add_generation_prompt %}" + begin.replace("ROLE", "assistant") + "{% endif %}"
    )  # fmt: skip


def first_call() -> ToolCall:
    """Return a call that pays 0.25."""
    return ToolCall("look", {"box": 1})


def scripts(name: str, end: str) -> list[tuple[list[str], list[float]]]:
    """Return the responses of some episodes and the rewards of their turns."""
    syntax = get_syntax(name)
    look = [first_call(), ToolCall("look", {"box": 2})]
    wrong = ToolCall("look", {"box": "many"})
    return [
        ([text + end for text in texts], rewards)
        for texts, rewards in [
            ([syntax.write(look[:1]), "right"], [0.25, 1.0]),
            ([syntax.write(look), "<think>hm</think>left"], [0.5, 0.0]),
            (["I look. " + syntax.write([wrong]), syntax.write(look[1:]), "right"], [-0.5, 0.25, 1.0]),
            (["left"], [0.0]),
        ]
    ]


def assert_native(prompt: str, texts: list[str]) -> None:
    """Check that the last prompt of an episode of `scripts` has the schema once, and each result in a turn."""
    assert prompt.count("Looks into a box.") == 1
    assert "Result of" not in prompt
    calls = sum(text.count("<tool_call>") for text in texts)
    assert prompt.count("is empty") + prompt.count("The call was not made") == calls
