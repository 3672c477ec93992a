"""Links: how an `OpenEnvEnv` reaches its environment, on a server or in this process."""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import threading
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from gem_bridges.openenv._address import Address, SessionLost, access_headers
from gem_core._util.messages import error_line
from gem_core._util.owners import after_calls, calls_of
from gem_core._util.threads import TOOL_THREADS, ThreadCall, call_in
from gem_core._util.waiting import Overdue
from gem_core.errors import (
    CallOrderError,
    ConfigError,
    EnvError,
    MissingDependency,
    ServiceError,
    WrongServer,
)
from gem_envs.tools._http import HttpClient

if TYPE_CHECKING:
    from gem_bridges.openenv._client import ClientSession


logger = logging.getLogger(__name__)

_CLOSED = "this environment was closed; make a new one"


class Link(Protocol):
    """A session with one environment. Messages and answers are those of OpenEnv's WebSocket."""

    async def schema(self, timeout: float) -> Mapping[str, Any]:
        """Return the JSON schemas of ``action`` and ``observation``.

        Args:
            timeout: Maximum number of seconds for the answer of a server.

        Raises:
            ConfigError: Something else answers.
            SessionLost: Nothing answers.
        """
        ...

    async def ask(self, kind: str, data: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """Send a message and return the data of the answer.

        Raises:
            SessionLost: The episode is gone; call `drop`, after which a new session may work.
            EnvError: The environment failed.
            CallOrderError: The link is closed.
        """
        ...

    def drop(self) -> None:
        """End the session; the next reset opens a new one. May be called more than once."""
        ...

    def close(self) -> None:
        """End the session for good, also one that is being opened. May be called more than once."""
        ...


class ServerLink(Link):
    """A session over WebSocket. All its methods run on the same event loop.

    Args:
        url: Address of the server.
        token: Token that it requires; None for none.

    Raises:
        ConfigError: The text is not an address.
        MissingDependency: aiohttp is not installed.
    """

    def __init__(self, url: str, token: str | None) -> None:
        from gem_bridges.openenv._client import ClientSession

        self._open = ClientSession.open
        self._address = Address.parse(url)
        self._token = token
        self._session: ClientSession | None = None
        self._closed = False

    async def schema(self, timeout: float) -> Mapping[str, Any]:
        address = self._address
        base = address.url
        client = HttpClient(base, timeout=timeout, retries=0, headers=access_headers(self._token))

        def fetch() -> Any:
            try:
                return client.get("/schema", {})
            finally:
                client.close()

        try:
            answer = await call_in(TOOL_THREADS, fetch)
        except WrongServer as error:
            raise ConfigError(f"{error}; check the address and the token") from error
        except ServiceError as error:
            raise SessionLost(str(error)) from error
        if not isinstance(answer, dict) or not {"action", "observation"} <= answer.keys():
            raise ConfigError(f"{base}/schema is not the page of an OpenEnv server")
        return answer

    async def ask(self, kind: str, data: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        self._check_open()
        if self._session is None or not self._session.alive:
            if kind != "reset":
                raise SessionLost(
                    "the connection is closed" if self._session is None else self._session.ended
                )
            session = await self._open(self._address, self._token, timeout or 60.0)
            try:
                self._check_open()
            except CallOrderError:  # closed meanwhile
                session.close()
                raise
            self._session = session
        return await self._session.ask(kind, data, timeout)

    def _check_open(self) -> None:
        if self._closed:
            raise CallOrderError(_CLOSED)

    def drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def close(self) -> None:
        self._closed = True
        self.drop()


class LocalLink(Link):
    """An environment of an installed OpenEnv package, whose calls run in a thread.

    Args:
        path: ``module:Class`` of the environment.
        action: ``module:Class`` of its actions; None means the annotation of ``step``.

    Raises:
        ConfigError: A path does not name an object, or no action class can be found.
        MissingDependency: OpenEnv is not installed.
    """

    def __init__(self, path: str, action: str | None = None) -> None:
        self._class = _load(path)
        if not hasattr(self._class, "step"):
            raise ConfigError(f"{path!r} has no step(): expected 'module:Class' of an OpenEnv environment")
        self._action = _load(action) if action else _action_class(self._class, path)
        self._observation = _return_class(self._class)
        self._env: _PackageEnv | None = None
        self._closed = False

    async def schema(self, timeout: float) -> Mapping[str, Any]:
        observation = self._observation.model_json_schema() if self._observation else {}
        return {"action": self._action.model_json_schema(), "observation": observation}

    async def ask(self, kind: str, data: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        if self._closed:
            raise CallOrderError(_CLOSED)
        if self._env is None:
            self._env = _PackageEnv(self._class, self._action)
        with calls_of(self._env):
            call = ThreadCall(functools.partial(self._env.answer, kind, data))
        try:
            answer, error = await call.outcome(timeout)
        except BaseException as failure:  # it is still in use by the thread
            self.drop()
            if isinstance(failure, Overdue):
                raise EnvError(f"the environment did not return within {timeout:g} s") from None
            raise
        if isinstance(error, EnvError):
            raise error
        if error is not None or answer is None:
            raise EnvError(error_line(error) if error else "no answer") from error
        return answer

    def drop(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            after_calls(env, threading.Thread(target=env.close, name="gem-env-close", daemon=True).start)

    def close(self) -> None:
        self._closed = True
        self.drop()


class _PackageEnv:
    """An environment of an OpenEnv package. Its methods run in threads, one at a time.

    Args:
        env_class: Class of the environment, which the first message builds.
        action_class: Class of its actions.
    """

    def __init__(self, env_class: Any, action_class: Any) -> None:
        self._class, self._action = env_class, action_class
        self._env: Any = None

    def answer(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """Return the data of the answer to a message."""
        if kind == "reset":
            if self._env is None:
                self._env = self._class()
            known = inspect.signature(self._env.reset).parameters
            if not any(p.kind is p.VAR_KEYWORD for p in known.values()):
                data = {key: value for key, value in data.items() if key in known}
            observation = self._env.reset(**data)
        else:
            if self._env is None:
                raise EnvError("no episode is running")
            observation = self._env.step(_deserialize(data, self._action))
        fields = observation.model_dump(mode="json")
        done, reward = bool(fields.pop("done", False)), fields.pop("reward", None)
        if observation.reward is not None:
            reward = float(observation.reward)  # JSON would hide that it is not finite
        return {"observation": fields, "reward": reward, "done": done}

    def close(self) -> None:
        """Close the environment; a failure is logged."""
        if self._env is not None and hasattr(self._env, "close"):
            try:
                self._env.close()
            except Exception:
                logger.warning("closing %r failed", self._env, exc_info=True)


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "openenv":
            raise MissingDependency("environments in process need OpenEnv: pip install openenv") from error
        raise ConfigError(f"{path!r} cannot be imported: {error}") from error
    except AttributeError as error:
        raise ConfigError(f"{path!r}: expected 'module:Class' of an OpenEnv environment ({error})") from error


def _deserialize(data: dict[str, Any], action_class: Any) -> Any:
    """Return an action as OpenEnv's server does, which reads calls of MCP tools by their type."""
    from openenv.core.env_server.serialization import deserialize_action

    return deserialize_action(data, action_class)


def _action_class(env_class: Any, path: str) -> Any:
    from openenv.core.env_server.mcp_environment import MCPEnvironment
    from openenv.core.env_server.mcp_types import CallToolAction
    from openenv.core.env_server.types import Action

    hint: Any = _hints(env_class.step).get("action")
    if hint is Action and isinstance(env_class, type) and issubclass(env_class, MCPEnvironment):
        return CallToolAction
    if not (set(getattr(hint, "model_fields", ())) - {"metadata"}):
        raise ConfigError(
            f"{path!r}: the annotation of step() names no action class; pass action_class='module:Class'"
        )
    return hint


def _return_class(env_class: Any) -> Any:
    hint = _hints(env_class.step).get("return")
    return hint if hasattr(hint, "model_json_schema") else None


def _hints(function: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):  # an annotation that only type checkers can resolve
        return {}
