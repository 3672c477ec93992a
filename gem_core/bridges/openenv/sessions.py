"""`Session`: the episodes of one client, as answers to its messages. No I/O: a host decides where it runs."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gem_core._util.messages import error_line, unknown
from gem_core.bridges.openenv import wire
from gem_core.core import Env, ResetOptions
from gem_core.errors import ResetNeeded

RESET_KEYS = ("seed", "episode_id", "index")
STEP_KEYS = ("message", "metadata")


class Reply(NamedTuple):
    """The answer to one message."""

    data: bytes
    """The message to send, as JSON; empty if the client asked to close the session."""
    event: str
    """``"reset"``, ``"step"``, ``"state"``, ``"mcp"``, ``"close"``, or the code of an error."""
    running: bool
    """Whether an episode is running now."""


class Refusal(Exception):
    """Raised for a message that gets an error as its answer; the episode is unaffected."""

    def __init__(self, message: str, code: str, **details: Any) -> None:
        super().__init__(message)
        self.code, self.details = code, details


class Session:
    """Episodes of one environment, one after the other.

    Args:
        make: Builds the environment, at the first reset and after a failure.
        env_id: Id to report in the state.
    """

    __slots__ = ("_env", "_env_id", "_episode_id", "_has_episode", "_make", "_running", "_steps")

    def __init__(self, make: Callable[[], Env], env_id: str) -> None:
        self._make, self._env_id = make, env_id
        self._env: Env | None = None
        self._episode_id: str | None = None
        self._has_episode = False
        self._steps = 0
        self._running = False

    def answer(self, payload: bytes) -> Reply:
        """Answer one message of the client. Never raises an exception of the environment."""
        try:
            kind, data = read_message(payload)
            if kind == "step":
                message = self._step(data)
            elif kind == "reset":
                message = self._reset(data)
            elif kind == "state":
                message = {"type": "state", "data": self._state(data)}
            elif kind == "mcp":
                message = {"type": "mcp", "data": no_mcp(data)}
            else:
                return Reply(b"", "close", self._running)
            return Reply(wire.encode(message), kind, self._running)
        except Refusal as refusal:
            return self._error(str(refusal), refusal.code, refusal.details)
        except Exception as error:  # of the environment, or a result that JSON cannot hold
            self.close()
            return self._error(f"{error_line(error)}; the episode has ended", wire.EXECUTION_ERROR)

    def close(self) -> None:
        """Close the environment; a later reset builds a new one."""
        env, self._env, self._running = self._env, None, False
        if env is not None:
            env.close()

    def _reset(self, data: Mapping[str, Any]) -> dict[str, Any]:
        _check_keys(data, RESET_KEYS)
        seed, index = _whole_number(data, "seed"), _whole_number(data, "index")
        episode_id = data.get("episode_id")
        if episode_id is not None and not isinstance(episode_id, str):
            raise _invalid("episode_id", "expected text")
        if self._env is None:
            try:
                self._env = self._make()
            except Exception as error:
                raise Refusal(error_line(error), wire.FACTORY_ERROR) from error
        options: ResetOptions | None = None if index is None else {"index": index}
        self._running = False
        observation, info = self._env.reset(seed, options=options)
        self._episode_id, self._steps, self._running = episode_id, 0, True
        self._has_episode = True
        return wire.first_observation(observation, info)

    def _step(self, data: Mapping[str, Any]) -> dict[str, Any]:
        action = data.get("message")
        if not isinstance(action, str) or len(data) > 1:
            _check_keys(data, STEP_KEYS)
            if not isinstance(action, str):
                raise _invalid("message", "expected text")
        if self._env is None or not self._running:
            raise Refusal("no episode is running; send a reset", wire.EXECUTION_ERROR)
        try:
            observation, reward, terminated, truncated, info = self._env.step(action)
        except ResetNeeded as error:
            raise Refusal(str(error), wire.EXECUTION_ERROR) from error
        self._steps += 1
        self._running = not (terminated or truncated)
        return wire.step_observation(observation, reward, terminated, truncated, info)

    def _state(self, data: Mapping[str, Any]) -> dict[str, Any]:
        if self._has_episode and self._episode_id is None:  # drawn only if somebody asks
            self._episode_id = uuid.uuid4().hex
        state = {"episode_id": self._episode_id, "step_count": self._steps, "env_id": self._env_id}
        if data.get("random_action") is True and self._env is not None and self._running:
            with contextlib.suppress(NotImplementedError):  # some environments define none
                state["random_action"] = self._env.sample_random_action()
        return state

    def _error(self, text: str, code: str, details: Mapping[str, Any] | None = None) -> Reply:
        return Reply(wire.encode(wire.error_message(text, code, **(details or {}))), code, self._running)


def read_message(payload: bytes) -> tuple[str, dict[str, Any]]:
    """Return type and data of a message.

    Raises:
        Refusal: It is not a message of the protocol.
    """
    try:
        message = json.loads(payload.decode())
    except (ValueError, RecursionError) as error:
        raise Refusal(f"Invalid JSON: {error}", wire.INVALID_JSON) from None
    if not isinstance(message, dict):
        raise Refusal("expected a JSON object with 'type' and 'data'", wire.VALIDATION_ERROR)
    kind, data = message.get("type"), message.get("data")
    if kind not in MESSAGE_TYPES:
        raise Refusal(unknown("message type", str(kind)[:80], MESSAGE_TYPES), wire.UNKNOWN_TYPE)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise _invalid("data", "expected an object")
    return kind, data


MESSAGE_TYPES = ("reset", "step", "state", "close", "mcp")


def no_mcp(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a JSON-RPC request: OpenEnv's servers without tools answer with this error."""
    error = {"code": -32603, "message": "Environment does not support MCP"}
    return {"jsonrpc": "2.0", "id": request.get("id"), "error": error}


def _check_keys(data: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in data:
        if key not in known:
            raise _invalid(key[:80], unknown("field", key[:80], known))


def _whole_number(data: Mapping[str, Any], name: str) -> int | None:
    value = data.get(name)
    if value is not None and (type(value) is not int or value < 0):
        raise _invalid(name, "expected a whole number of at least 0")
    return value


def _invalid(name: str, problem: str) -> Refusal:
    details = [{"loc": [name], "msg": problem, "type": "value_error"}]
    return Refusal(f"Invalid message: {name}: {problem}", wire.VALIDATION_ERROR, errors=details)
