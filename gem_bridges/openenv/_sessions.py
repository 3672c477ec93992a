"""`OpenEnvSession`: the episodes of a client, as answers to messages, without I/O; a host runs it."""

from __future__ import annotations

import contextlib
import json
import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gem_bridges.openenv import _wire
from gem_core import Env
from gem_core._core import ResetOptions, ResetResult, StepResult
from gem_core._util.messages import error_line, unknown
from gem_core._util.threads import in_thread
from gem_core.errors import ResetNeeded

logger = logging.getLogger(__name__)

RESET_KEYS = ("seed", "episode_id", "index")
STEP_KEYS = ("message", "metadata")


class SessionReply(NamedTuple):
    """The answer to one message."""

    data: bytes
    """The message to send, as JSON; empty if the client asked to close the session."""
    event: str
    """``"reset"``, ``"step"``, ``"state"``, ``"mcp"``, ``"close"``, or the code of an error."""
    running: bool
    """Whether an episode is running now."""


class MessageRefused(Exception):
    """Raised for a message that gets an error as its answer; the episode is unaffected."""

    def __init__(self, message: str, code: str, **details: Any) -> None:
        super().__init__(message)
        self.code, self.details = code, details


class OpenEnvSession:
    """Episodes of one environment, one after another.

    Args:
        make: Builds the environment, at the first reset and after a failure.
        env_id: Id to report in the state.
        dispose: Closes an environment; None closes it in the thread that notices its end.
    """

    __slots__ = (
        "__weakref__", "_dispose", "_env", "_env_id", "_episode_id", "_has_episode", "_make", "_running",
        "_steps",
    )  # fmt: skip

    def __init__(
        self, make: Callable[[], Env], env_id: str, dispose: Callable[[Env], object] | None = None
    ) -> None:
        self._make, self._env_id, self._dispose = make, env_id, dispose
        self._env: Env | None = None
        self._episode_id: str | None = None
        self._has_episode = False
        self._steps = 0
        self._running = False

    def answer(self, payload: bytes) -> SessionReply:
        """Answer one message of the client. Never raises an exception of the environment."""
        try:
            kind, data = read_message(payload)
            if kind == "step":
                env, action = self._step_call(data)
                return self._stepped(env.step(action))
            if kind == "reset":
                seed, options = _reset_call(data)
                env = self._build()
                self._running = False
                return self._started(data, env.reset(seed, options=options))
            if kind == "state":
                return self._reply("state", {"type": "state", "data": self._state(data)})
            if kind == "mcp":
                return self._reply("mcp", {"type": "mcp", "data": no_mcp(data)})
            return SessionReply(b"", "close", self._running)
        except (MessageRefused, ResetNeeded) as refusal:
            return self._refused(refusal)
        except Exception as error:  # of the environment, or a result that JSON cannot hold
            self.close()
            return self._failed(error)

    async def answer_async(self, payload: bytes) -> SessionReply:
        """`answer` with the async methods of the environment; anything that may block runs in a thread."""
        try:
            kind, data = read_message(payload)
            if kind == "step":
                env, action = self._step_call(data)
                return self._stepped(await env.astep(action))
            if kind == "reset":
                seed, options = _reset_call(data)
                if self._env is None:
                    await in_thread(self._build)  # which keeps it if the caller leaves meanwhile
                self._running = False
                return self._started(data, await self._build().areset(seed, options=options))
        except (MessageRefused, ResetNeeded) as refusal:
            return self._refused(refusal)
        except Exception as error:
            await in_thread(self.close)
            return self._failed(error)
        return await in_thread(self.answer, payload)

    def close(self) -> None:
        """Close the environment; a failure is logged. A later reset builds a new one."""
        env, self._env, self._running = self._env, None, False
        if env is not None:
            try:
                if self._dispose is None:
                    env.close()
                else:
                    self._dispose(env)
            except Exception:
                logger.warning("closing an environment failed", exc_info=True)

    def _build(self) -> Env:
        if self._env is None:
            try:
                self._env = self._make()
            except Exception as error:
                raise MessageRefused(error_line(error), _wire.FACTORY_ERROR) from error
        return self._env

    def _started(self, data: Mapping[str, Any], result: ResetResult) -> SessionReply:
        self._episode_id, self._steps, self._running = data.get("episode_id"), 0, True
        self._has_episode = True
        return SessionReply(_wire.first_observation(*result), "reset", True)

    def _step_call(self, data: Mapping[str, Any]) -> tuple[Env, str]:
        """Return the environment and the action of a step."""
        action = data.get("message")
        if not isinstance(action, str) or len(data) > 1:
            _check_keys(data, STEP_KEYS)
            if not isinstance(action, str):
                raise _invalid("message", "expected text")
        if self._env is None or not self._running:
            raise MessageRefused("no episode is running; send a reset", _wire.EXECUTION_ERROR)
        return self._env, action

    def _stepped(self, result: StepResult) -> SessionReply:
        self._steps += 1
        self._running = not (result[2] or result[3])
        return SessionReply(_wire.step_observation(*result), "step", self._running)

    def _reply(self, event: str, message: Mapping[str, Any]) -> SessionReply:
        return SessionReply(_wire.encode(message), event, self._running)

    def _refused(self, error: MessageRefused | ResetNeeded) -> SessionReply:
        code, details = (
            (error.code, error.details) if isinstance(error, MessageRefused) else (_wire.EXECUTION_ERROR, {})
        )
        return self._reply(code, _wire.error_message(str(error), code, **details))

    def _failed(self, error: Exception) -> SessionReply:
        text = f"{error_line(error)}; the episode has ended"
        return self._reply(_wire.EXECUTION_ERROR, _wire.error_message(text, _wire.EXECUTION_ERROR))

    def _state(self, data: Mapping[str, Any]) -> dict[str, Any]:
        if self._has_episode and self._episode_id is None:  # drawn only when requested
            self._episode_id = uuid.uuid4().hex
        state = {"episode_id": self._episode_id, "step_count": self._steps, "env_id": self._env_id}
        if data.get("random_action") is True and self._env is not None and self._running:
            with contextlib.suppress(NotImplementedError):  # some environments define none
                state["random_action"] = self._env.sample_random_action()
        return state


_decode = json.JSONDecoder().raw_decode


def read_message(payload: bytes) -> tuple[str, dict[str, Any]]:
    """Return type and data of a message.

    Raises:
        Refusal: It is not a message of the protocol.
    """
    try:
        text = payload.decode()
        try:
            message, end = _decode(text)  # half of the time of json.loads for a short message
        except ValueError:
            end = -1
        if end != len(text):  # white space, or an error to report
            message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MessageRefused(f"Invalid JSON: {error}", _wire.INVALID_JSON) from None
    if not isinstance(message, dict):
        raise MessageRefused("expected a JSON object with 'type' and 'data'", _wire.VALIDATION_ERROR)
    kind, data = message.get("type"), message.get("data")
    if kind not in MESSAGE_TYPES:
        raise MessageRefused(unknown("message type", str(kind)[:80], MESSAGE_TYPES), _wire.UNKNOWN_TYPE)
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


def _reset_call(data: Mapping[str, Any]) -> tuple[int | None, ResetOptions | None]:
    """Return the seed and the options of a reset."""
    _check_keys(data, RESET_KEYS)
    seed, index = _whole_number(data, "seed"), _whole_number(data, "index")
    episode_id = data.get("episode_id")
    if episode_id is not None and not isinstance(episode_id, str):
        raise _invalid("episode_id", "expected text")
    return seed, None if index is None else {"index": index}


def _check_keys(data: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in data:
        if key not in known:
            raise _invalid(key[:80], unknown("field", key[:80], known))


def _whole_number(data: Mapping[str, Any], name: str) -> int | None:
    value = data.get(name)
    if value is not None and (type(value) is not int or value < 0):
        raise _invalid(name, "expected a whole number of at least 0")
    return value


def _invalid(name: str, problem: str) -> MessageRefused:
    details = [{"loc": [name], "msg": problem, "type": "value_error"}]
    return MessageRefused(f"Invalid message: {name}: {problem}", _wire.VALIDATION_ERROR, errors=details)
