"""The environment of an episode as an MCP server with one tool, over streamable HTTP with JSON answers.

It keeps no sessions, so it is a few messages, and needs no package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_agents._session import Session
from gem_agents._turns import ModelCall

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
"""Versions of the protocol, newest first."""
ACT = {
    "name": "act",
    "description": "Plays an action in the environment of the task, and returns what is observed then.",
    "inputSchema": {
        "type": "object",
        "properties": {"action": {"type": "string", "description": "The action."}},
        "required": ["action"],
    },
}
"""The tool."""
OVER = "The episode is over."
"""Follows the last observation."""
_NO_METHOD, _BAD_PARAMS = -32601, -32602


def observed(step: Mapping[str, Any]) -> str:
    """Return what the model reads after an action."""
    return f"{step['observation']}\n\n{OVER}" if step["done"] else str(step["observation"])


def action_of(message: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """Return the action of a call of the tool and what the agent tells about it; None for other messages."""
    given = message.get("params")
    if message.get("method") != "tools/call" or not isinstance(given, dict) or given.get("name") != "act":
        return None
    arguments, meta = given.get("arguments"), given.get("_meta")
    action = arguments.get("action") if isinstance(arguments, dict) else None
    return None if not isinstance(action, str) else (action, meta if isinstance(meta, dict) else {})


def answer_message(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the answer to any message but an action; None for a notification."""
    if "id" not in message:
        return None
    method, given = message.get("method"), message.get("params")
    if method == "initialize":
        wanted = given.get("protocolVersion") if isinstance(given, dict) else None
        return result_of(
            message,
            {
                "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "gem-core", "version": "1"},
            },
        )
    if method == "ping":
        return result_of(message, {})
    if method == "tools/list":
        return result_of(message, {"tools": [ACT]})
    bad = method == "tools/call"
    error = {
        "code": _BAD_PARAMS if bad else _NO_METHOD,
        "message": "expected the tool 'act' with a text as its action" if bad else "there is no such method",
    }
    return {"jsonrpc": "2.0", "id": message["id"], "error": error}


def result_of(message: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a request."""
    return {"jsonrpc": "2.0", "id": message.get("id"), "result": dict(result)}


def tool_result(message: Mapping[str, Any], text: str, failed: bool = False) -> dict[str, Any]:
    """Return the result of a call."""
    return result_of(message, {"content": [{"type": "text", "text": text}], "isError": failed})


def origin(session: Session, action: str, meta: Mapping[str, Any]) -> tuple[ModelCall, str | None]:
    """Return the response that made a call, and the id of the call.

    Some agents name the call, each under a key of its own. Otherwise it is the oldest call with the same
    action that was not played yet; without one, it belongs to the newest response.

    Raises:
        Refused: The agent has no response yet.
    """
    made = {one.id: (call, one) for call in session.delivered() for one in call.message.calls}
    for value in meta.values():
        if isinstance(value, str) and value in made:
            return made[value][0], value
    for id, (call, one) in made.items():
        if id not in session.played and one.arguments.get("action") == action:
            return call, id
    return session.acting(), None
