"""`ScriptedPolicy`: answers an agent offline with calls of its tools, then with a text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gem_core._util.foreign_json import read_json
from gem_core.rollout import Generation

CHAT_TEMPLATE = (
    "{% if tools %}<tools>\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}</tools>\n{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' %}"
    "<|im_start|>user\n<tool_response>\n{{ m.content }}\n</tool_response><|im_end|>\n"
    "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}"
    '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n'
    "</tool_call>{% if not loop.last %}\n{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Chat template of the policy, which shows tools as Qwen's do."""

_MOST = 8
"""Maximum number of answers with a call, for agents that forget how far they are."""
_TURN = "<|im_start|>assistant\n"
_SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""What mini-swe-agent takes for the end, in a command."""
_COMMANDS = ("echo hello > hello.txt", "echo hello > hello.txt && cat hello.txt", "ls")
_BY_TYPE: Mapping[str, Any] = {"string": "text", "boolean": False, "array": [], "object": {}}


class ScriptedPolicy:
    """Makes a call with a thought and a text, two calls at once, a call with other spaces, then says "Done.".

    It calls the tool ``act`` of an environment if there is one, else a shell.

    Args:
        tokenizer: Tokenizer with `CHAT_TEMPLATE`.

    Attributes:
        samples: Prompt and response of each call, in the order of the calls.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.samples: list[tuple[list[int], list[int]]] = []

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        """Return the next response of the script."""
        prompt = self._tokenizer.decode(list(prompt_ids))
        end = self._tokenizer.encode("<|im_end|>", add_special_tokens=False)
        text = next_answer(prompt) if len(self.samples) < _MOST else "Done."
        ids = [*self.encode(text), *end][:max_tokens]
        self.samples.append((list(prompt_ids), ids))
        return Generation(ids, [-0.1] * len(ids), "stop")

    def encode(self, text: str) -> list[int]:
        """Return the tokens that are sampled for a text."""
        return [*self._tokenizer.encode(text, add_special_tokens=False)]


def next_answer(prompt: str) -> str:
    """Return the response of the script to a prompt; how far it is follows from the number of answers."""
    _, _, shown = prompt.rpartition("<tools>\n")
    lines = shown.partition("\n</tools>")[0].splitlines() if shown != prompt else []
    tools = [read_json(line)["function"] for line in lines]
    turn = prompt.count(_TURN) - 1
    tool = _to_call(tools)
    if tool is None:
        return "Done."
    if turn == 0:
        return f"<think>\nFirst, this.\n</think>\n\nI begin.\n\n{_call(tool, turn, space='  ')}"
    if turn == 1:
        return f"{_call(tool, turn)}\n{_call(tool, turn + 1)}"
    if turn == 2:
        return f"One more.\n{_call(tool, turn, space='   ')}"
    for last in tools:
        if last["name"] == "final_answer":
            return _call(last, turn)
    return _call(tool, turn, f"echo {_SUBMIT}") if _SUBMIT in prompt else "Done.\n"


def _to_call(tools: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    acting = [tool for tool in tools if re.split(r"\W|_", tool["name"])[-1] == "act"]
    shells = [tool for tool in tools if {"command", "cmd"} & {*_properties(tool)}]
    return next(iter([*acting, *shells]), None)


def _properties(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = tool.get("parameters", {}).get("properties") or {}
    return properties


def _call(tool: Mapping[str, Any], turn: int, command: str = "", space: str = " ") -> str:
    """Return a call as a model writes it, with spaces that no serializer writes."""
    arguments = {}
    for name in tool["parameters"].get("required") or ():
        shape = _properties(tool).get(name, {})
        if name in ("command", "cmd") and shape.get("type") == "string":
            arguments[name] = command or _COMMANDS[turn % len(_COMMANDS)]
        else:
            number = shape.get("minimum", 1000)
            arguments[name] = _BY_TYPE.get(str(shape.get("type")), number)
    text = json.dumps({"name": tool["name"], "arguments": arguments}, separators=(",", f":{space}"))
    return f"<tool_call>\n{text}\n</tool_call>"
