"""A parser that reads every answer as a tool call, for the test of verl's own tool loop.

It replaces a parser that would require a trained model; loop, tools, and reward worker are verl's.
"""

from __future__ import annotations

import json
from typing import Any

from verl.experimental.agent_loop.tool_parser import FunctionCall, ToolParser


@ToolParser.register("always")
class AlwaysCalls(ToolParser):
    """Reads any answer as a call of `measure`."""

    async def extract_tool_calls(self, responses_ids: list[int], tools: Any = None) -> Any:
        text = self.tokenizer.decode(responses_ids, skip_special_tokens=True)
        return text, [FunctionCall(name="measure", arguments=json.dumps({"text": text}))]
