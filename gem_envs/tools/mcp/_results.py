"""What servers send, in a form that the package ``mcp`` accepts.

The package checks a whole list of tools and a whole result at once: one tool with a schema of another kind,
one content part of an unknown type, or a text where an ``outputSchema`` promises data, and everything is
rejected. Here, each tool is reduced to its name, description, and schema, and each content part to text,
before the package sees them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from gem_core._observations import encodable

logger = logging.getLogger(__name__)

_ANYTHING: Mapping[str, Any] = {"type": "object", "additionalProperties": True}
SCHEMA = "gem_core/schema"
"""Key in the ``_meta`` of a tool of the schema as the server sent it."""
_LONGEST_SHOWN = 2000
"""Maximum number of characters of a schema in a description."""


def readable(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with tools or content that the package accepts; other results are unchanged.

    A tool without a name, one whose schema is ``false``, and a second tool of the same name are left out with
    a warning. A schema that is not an object is shown as JSON in the description of its tool.
    """
    if isinstance(result.get("tools"), list):
        kept = {key: value for key, value in result.items() if key != "nextCursor" or isinstance(value, str)}
        return {**kept, "tools": _tools(result["tools"])}
    if "structuredContent" in result or isinstance(result.get("content"), list | str | dict):
        kept = {key: value for key, value in result.items() if key != "structuredContent"}
        return {**kept, "content": _content(result), "isError": bool(result.get("isError"))}
    return result


def _tools(entries: list[Any]) -> list[dict[str, Any]]:
    tools: dict[str, dict[str, Any]] = {}
    for place, entry in enumerate(entries):
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name:
            warn(f"tool {place} of an MCP server is left out: it has no name ({entry!r:.200})")
        elif entry.get("inputSchema") is False:
            warn(f"the tool {name!r} of an MCP server is left out: its schema allows no call")
        elif name in tools:
            warn(f"the tool {name!r} of an MCP server is left out: another one has its name")
        else:
            tools[name] = _tool(name, entry)
    return list(tools.values())


def _tool(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    schema, described = entry.get("inputSchema"), entry.get("description")
    description = described if isinstance(described, str) else entry.get("title")
    description = description if isinstance(description, str) else ""
    if not isinstance(schema, dict):
        if schema is not None and schema is not True:
            shown = json.dumps(schema, ensure_ascii=False)[:_LONGEST_SHOWN]
            description = f"{description or f'The tool {name}.'} Its arguments: {shown}"
        schema = dict(_ANYTHING)
    parameters = {**schema, "type": "object"}
    accepted = all(
        isinstance(schema.get(key, kind()), kind) for key, kind in (("properties", dict), ("required", list))
    )
    accepted = accepted and all(isinstance(one, dict) for one in schema.get("properties", {}).values())
    return {
        "name": name,
        "description": encodable(description),
        "inputSchema": parameters if accepted else {"type": "object"},
        "_meta": {SCHEMA: parameters},
    }


def _content(result: Mapping[str, Any]) -> list[dict[str, str]]:
    content = result.get("content")
    parts = content if isinstance(content, list) else [] if content is None else [content]
    texts = [_part_text(part) for part in parts]
    data = result.get("structuredContent")
    if not any(texts) and data is not None:
        texts = [json.dumps(data, ensure_ascii=False)]
    return [{"type": "text", "text": text} for text in texts]


def _part_text(part: Any) -> str:
    """Return a content part as text: its text, what it is if it is binary, or its JSON."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return json.dumps(part, ensure_ascii=False)
    inner = part["resource"] if isinstance(part.get("resource"), dict) else part
    if isinstance(inner.get("text"), str):
        return str(inner["text"])
    kind = part.get("type")
    if kind in ("image", "audio", "resource", "resource_link"):
        facts = [source.get(key) for key in ("uri", "mimeType") for source in (part, inner)]
        return f"[{kind}: {next((fact for fact in facts if isinstance(fact, str)), 'no text')}]"
    return json.dumps(part, ensure_ascii=False)


@lru_cache(maxsize=1000)
def warn(text: str) -> None:
    """Log a warning, once per process, because each session with a server lists its tools."""
    logger.warning("%s", text)
