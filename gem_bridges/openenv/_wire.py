"""Messages of OpenEnv's WebSocket protocol, as gem-core's servers fill them.

OpenEnv has no flag for truncation and drops the metadata of an observation on the wire. Our observations
therefore carry ``terminated``, ``truncated``, ``success``, ``invalid``, and ``info`` as fields. The reward of
the turn and ``done`` have their own places in OpenEnv's messages.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from gem_core import Info, Observation, render_observation
from gem_core._observations import encodable

INVALID_JSON, UNKNOWN_TYPE, VALIDATION_ERROR = "INVALID_JSON", "UNKNOWN_TYPE", "VALIDATION_ERROR"
EXECUTION_ERROR, CAPACITY_REACHED = "EXECUTION_ERROR", "CAPACITY_REACHED"
FACTORY_ERROR, SESSION_ERROR = "FACTORY_ERROR", "SESSION_ERROR"
ERROR_CODES = (
    INVALID_JSON, UNKNOWN_TYPE, VALIDATION_ERROR, EXECUTION_ERROR, CAPACITY_REACHED, FACTORY_ERROR,
    SESSION_ERROR,
)  # fmt: skip
"""OpenEnv's error codes. A `SESSION_ERROR` means that the server lost the episode; the session continues."""

ACTION_TITLE, OBSERVATION_TITLE = "GemAction", "GemObservation"


def _optional(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}], "default": None}


_METADATA = {"type": "object", "additionalProperties": True, "default": {}}

ACTION_SCHEMA = {
    "title": ACTION_TITLE,
    "type": "object",
    "additionalProperties": False,
    "required": ["message"],
    "properties": {
        "message": {"type": "string", "description": "One whole response of the model."},
        "metadata": _METADATA,
    },
}
OBSERVATION_SCHEMA = {
    "title": OBSERVATION_TITLE,
    "type": "object",
    "additionalProperties": False,
    "required": ["text"],
    "properties": {
        "text": {"type": "string", "description": "What the model is shown."},
        "parts": _optional({"type": "array", "items": {"type": "object"}})
        | {"description": "The same as OpenAI-style content parts, if it contains images."},
        "terminated": {"type": "boolean", "default": False, "description": "The task ended by its rules."},
        "truncated": {"type": "boolean", "default": False, "description": "A limit cut the episode."},
        "success": _optional({"type": "boolean"}) | {"description": "Whether the task was solved."},
        "invalid": _optional({"type": "string", "enum": ["format", "illegal", "length"]})
        | {"description": "Why the last action did not count."},
        "info": _METADATA | {"description": "The rest of the info dict of the step."},
        "done": {"type": "boolean", "default": False},
        "reward": _optional({"type": "number"}),
        "metadata": _METADATA,
    },
}
STATE_SCHEMA = {
    "title": "GemState",
    "type": "object",
    "additionalProperties": True,
    "properties": {
        "episode_id": _optional({"type": "string"}),
        "step_count": {"type": "integer", "minimum": 0, "default": 0},
        "env_id": {"type": "string"},
    },
}
SCHEMAS = {"action": ACTION_SCHEMA, "observation": OBSERVATION_SCHEMA, "state": STATE_SCHEMA}

_SHOWN = ("prefix", "suffix")  # part of the text
_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as JSON in UTF-8, without lone surrogates.

    Raises:
        ValueError: A number is not finite.
        TypeError: A value has no JSON form.
    """
    return _utf8(_encode(message))


def error_message(text: str, code: str, **details: Any) -> dict[str, Any]:
    """Return an error message, whose text is limited to 2,000 characters."""
    return {"type": "error", "data": {"message": text[:2000], "code": code, **details}}


def first_observation(observation: Observation, info: Info) -> bytes:
    """Return the message that answers a reset.

    Raises:
        ValueError: A number is not finite.
        TypeError: A value has no JSON form.
    """
    return _utf8(f'{_START}{_fields(observation, info)}}},"reward":null,"done":false}}}}')


def step_observation(
    observation: Observation, reward: float, terminated: bool, truncated: bool, info: Info
) -> bytes:
    """Return the message that answers a step.

    Raises:
        ValueError: A number is not finite.
        TypeError: A value has no JSON form.
    """
    fields = _fields(observation, info)
    if not (terminated or truncated):
        return _utf8(f'{_START}{fields}}},"reward":{_value(reward)},"done":false}}}}')
    flags = f'"terminated":{_value(terminated)},"truncated":{_value(truncated)}'
    return _utf8(f'{_START}{fields},{flags}}},"reward":{_value(reward)},"done":true}}}}')


_START = '{"type":"observation","data":{"observation":{'


def _fields(observation: Observation, info: Info) -> str:
    """Return the fields of an observation as JSON, without braces.

    Composing the message from text takes a third of the time that the JSON encoder needs for a dict.
    """
    shown = render_observation(observation, info)
    if isinstance(shown, str):
        fields = f'"text":{_encode(shown)}'
    else:
        texts = [part["text"] for part in shown if part.get("type") == "text"]
        fields = f'"text":{_encode(chr(10).join(texts))},"parts":{_encode(shown)}'
    rest = {}
    for key, value in info.items():
        if key in ("success", "invalid"):
            if value is not None:
                fields += f',"{key}":{_value(value)}'
        elif key not in _SHOWN:
            rest[key] = value
    return f'{fields},"info":{_value(rest)}' if rest else fields


def _value(value: Any) -> str:
    """Return a value as JSON; for numbers, bools, and small dicts in a tenth of the encoder's time."""
    kind = type(value)
    if kind is dict and len(value) < 8:
        return f"{{{','.join([f'{_encode(str(key))}:{_value(item)}' for key, item in value.items()])}}}"
    if kind is bool:
        return "true" if value else "false"
    if kind is int or (kind is float and math.isfinite(value)):
        return repr(value)
    return _encode(value)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return encodable(text).encode()
