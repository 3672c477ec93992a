"""`OpenEnvEnv`: environments of OpenEnv, under ids such as ``openenv:http://127.0.0.1:8000``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from random import SystemRandom
from typing import Any, Literal, TypeAlias, TypeVar

from gem_bridges._actions import Action, ActionGrammar, random_value, without_references
from gem_bridges._foreign import ForeignEnv, check_dict, json_info
from gem_bridges.openenv import _crowds, _wire
from gem_bridges.openenv._address import ServerError, ServerFull, SessionLost
from gem_bridges.openenv._links import Link, LocalLink, ServerLink
from gem_core._core import ResetOptions, ResetResult, StepResult
from gem_core._observations import encodable
from gem_core._util.checks import check_choice, check_number
from gem_core._util.places import waiting
from gem_core._util.threads import in_thread
from gem_core.errors import ConfigError, EnvError, ServiceError
from gem_envs.tools import _loop

MAX_TURNS = 100
"""Turn limit for servers other than those of gem-core, which may have none."""
TOKEN_VARIABLE = "GEM_CORE_OPENENV_TOKEN"
"""Environment variable with the token of the servers."""

ActionForm: TypeAlias = Literal["auto", "text", "boxed", "tools"]

_Result = TypeVar("_Result")
_FIRST_CONTACT = 5.0
"""Seconds to wait for a server that has never answered."""
_SLOWEST_SCHEMA = 30.0
"""Seconds that a server may take to answer the first request of an episode; it may have to wake up."""
_answered: set[str] = set()
"""Sources that have answered in this process."""
_NOT_SHOWN = ("metadata", "reward", "done")
_LEGAL = ("legal_actions", "legal_moves", "available_actions", "valid_actions")


class OpenEnvEnv(ForeignEnv):
    r"""An environment on an OpenEnv server, or of an OpenEnv package in this process.

    Servers of gem-core (``gem-core serve openenv``) behave like the environment that they serve: the seed,
    both end flags, the reward of each turn, and the info dict arrive unchanged; prefix and suffix of an
    observation are part of its text. OpenEnv's own servers know neither truncation nor success, so
    `max_turns` and `success_at` apply to them.

    If the server goes away or loses the episode, the episode is restored in a new session: reset with the
    same seed, then the same actions. Every answer must equal the first one, otherwise the environment is not
    deterministic and the episode fails.

    A session lasts from one episode to the next. On a server that was full in the last minute, it ends with
    the episode, so that all episodes that wait get their turn. A wait for a place does not count for
    `EpisodeLimits.step_timeout`.

    Connections belong to a background event loop, on which any number of episodes wait at the same time.

    Args:
        source: Address of a server, such as ``http://127.0.0.1:8000``, or ``module:Class`` of an environment
            in an installed OpenEnv package.
        action: How a response is read: ``"text"`` (the whole response fills one text field), ``"boxed"``
            (the last ``\boxed{}``, see `ActionGrammar`), ``"tools"`` (a call of an MCP tool, as a JSON
            object in a box), or ``"auto"``: by the schema of the actions.
        action_class: ``module:Class`` of the actions of an environment in this process; None means the
            annotation of its ``step``.
        field: Field of the action that the response fills; None means the only one.
        show: Field of the observation to show; None shows its only text, or all of it as JSON.
        instructions: Text after the first observation; None describes the actions, unless they are text.
        reset_arguments: Further arguments of every reset.
        max_turns: Number of steps after which an episode is truncated; None means no limit for servers of
            gem-core and 100 for others.
        success_at: Smallest undiscounted return that counts as a success if the server does not report it.
        format_error_reward: Reward of a response without a readable action, which the server never sees.
        timeout: Maximum number of seconds for one answer; a step that takes longer fails the episode.
        retry_for: Number of seconds for which a lost session is opened again. A server that has not answered
            yet in this process gets at most 5, so that a wrong address is reported early.
    """

    blocking = True

    def __init__(
        self,
        source: str,
        action: ActionForm = "auto",
        action_class: str | None = None,
        field: str | None = None,
        show: str | None = None,
        instructions: str | None = None,
        reset_arguments: Mapping[str, Any] | None = None,
        max_turns: int | None = None,
        success_at: float = 1.0,
        format_error_reward: float = 0.0,
        timeout: float = 60.0,
        retry_for: float = 60.0,
    ) -> None:
        super().__init__(source, max_turns, success_at)
        self.action_form = check_choice("action", action, ("auto", "text", "boxed", "tools"))
        self.field, self.show, self.instructions = field, show, instructions
        self.reset_arguments = check_dict("reset_arguments", reset_arguments)
        self.format_error_reward = check_number("format_error_reward", format_error_reward)
        self.timeout = check_number("timeout", timeout, above=0)
        self.retry_for = check_number("retry_for", retry_for, 0)
        self.source = source
        self._link: Link
        if _is_import_path(source):
            self._link = LocalLink(source, action_class)
        else:
            self._link = ServerLink(source, os.environ.get(TOKEN_VARIABLE))
        self._served_by_gem = False
        self._field_name: str | None = None
        self._grammar: ActionGrammar | None = None  # once the schema is known
        self._tools: dict[str, Mapping[str, Any]] | None = None  # by name; None without MCP
        self._reset_data: dict[str, Any] = {}
        self._history: list[tuple[dict[str, Any], str]] = []  # messages of the steps, and their answers
        self._first_answer = ""
        self._last: Mapping[str, Any] = {}

    # -- the contract -------------------------------------------------------------------------

    known_options = ("index", "state")  # the server decides whether it has items

    def draw_seed(self, seed: int | None) -> int:
        return super().draw_seed(seed) if seed is None else seed  # so that the served episode is the same

    def begin(self, seed: int) -> ResetResult:
        return _loop.run(self._begin(seed))

    def advance(self, action: str) -> StepResult:
        return _loop.run(self._advance(action))

    async def areset(self, seed: int | None = None, *, options: ResetOptions | None = None) -> ResetResult:
        if options and "state" in options:  # which plays the episode again
            return await in_thread(self.reset, seed, options=options)
        self.prepare(seed, options)
        with self.failing("the reset"):
            result = await _loop.on_background(self._begin(self.foreign_seed))
        return self.keep_reset(result)

    async def astep(self, action: str) -> StepResult:
        self.note(action)
        with self.failing(f"step {len(self.actions)}"):
            result = await _loop.on_background(self._advance(action))
        return self.keep_step(result)

    def check_services(self) -> None:
        _loop.run(self._check_schema())

    def rest(self) -> None:
        _loop.background().call_soon_threadsafe(_crowds.rest, self.source, self._link)

    def close(self) -> None:
        super().close()
        _loop.background().call_soon_threadsafe(self._link.close)

    def sample_random_action(self) -> str:
        if self._grammar is None:
            raise EnvError(f"{self.source}: reset the environment before you sample an action")
        if self._served_by_gem:  # only the served environment knows its legal actions
            state = _loop.run(self._ask("state", {"random_action": True}))
            if "random_action" in state:
                return str(state["random_action"])
        random = self.action_random
        if self._tools is not None:
            name = random.choice(sorted(self._tools))
            schema = without_references(
                self._tools[name].get("input_schema") or {"type": "object", "properties": {}}
            )
            return self._grammar.write({"tool_name": name, "arguments": random_value(schema, random)})
        legal = next((self._last[key] for key in _LEGAL if isinstance(self._last.get(key), list)), None)
        if legal and self._field_name is not None:
            return self._grammar.write(random.choice(legal))
        return self._grammar.sample(random)

    # -- episodes -----------------------------------------------------------------------------

    async def _begin(self, seed: int) -> ResetResult:
        index = {} if self.item is None else {"index": self.item}
        self._reset_data, self._history = {**self.reset_arguments, "seed": seed, **index}, []
        _crowds.note_start(self.source, self._link)
        result = await self._ask("reset", self._reset_data)
        if result.get("done"):
            raise EnvError(f"{self.source}: the episode was over after the reset")
        self._first_answer, self._last = _fingerprint(result), result["observation"]
        observation, info = self._read(result)
        text = self._how_to_answer() if self.instructions is None else self.instructions
        return observation, {**info, "suffix": text} if text else info

    async def _advance(self, response: str) -> StepResult:
        action = self._action(encodable(response))
        if action.invalid is not None:
            text = f"No action was taken: {action.reason}."
            return text, self.format_error_reward, False, False, {"invalid": action.invalid}
        try:
            result = await self._ask("step", action.value)
        except ServerError as error:
            if error.code != _wire.VALIDATION_ERROR:
                raise
            return str(error), self.format_error_reward, False, False, {"invalid": "format"}
        self._last = result["observation"]
        observation, info = self._read(result)
        reward = 0.0 if result.get("reward") is None else float(result["reward"])
        done = bool(result.get("done"))
        truncated = done and bool(self._last.get("truncated"))
        if done:
            _crowds.rest(self.source, self._link)
        return observation, reward, done and not truncated, truncated, info

    # -- the session --------------------------------------------------------------------------

    async def _check_schema(self) -> None:
        """Read the schema, as before any first message, without sending one."""

        async def read(lost: bool) -> None:
            if self._grammar is None:
                await self._read_schema(_FIRST_CONTACT)

        await self._patiently(read)

    async def _ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """Return the data of an answer; reopen a lost session and bring it to the same turn."""

        async def ask(lost: bool) -> dict[str, Any]:
            if lost and kind != "reset":
                await self._restore()
            if self._grammar is None:
                await self._read_schema(_SLOWEST_SCHEMA)
            result = await self._link.ask(kind, data, self.timeout)
            if kind == "state":
                return result
            if not isinstance(result.get("observation"), dict):
                raise EnvError(f"the server sent no observation: {result!r:.200}")
            if self._tools == {}:
                await self._list_tools()
            if kind == "step":
                self._history.append((data, _fingerprint(result)))
            return result

        return await self._patiently(ask)

    async def _patiently(self, work: Callable[[bool], Awaitable[_Result]]) -> _Result:
        """Return the result of `work`, which is repeated if the session is lost.

        Args:
            work: Called with whether the session was lost, and closed, in an earlier attempt.
        """
        began, delay = time.monotonic(), 0.1
        lost = False
        while True:
            try:
                return await work(lost)
            except SessionLost as error:
                self._link.drop()
                lost = True
                if isinstance(error, ServerFull):
                    _crowds.is_full(self.source)
                patience = self.retry_for
                if self.source not in _answered:
                    patience = min(patience, _FIRST_CONTACT)
                pause = delay * SystemRandom().uniform(0.5, 1.0)  # not all clients at the same moment
                if time.monotonic() + pause > began + patience:
                    raise ServiceError(f"{self.source}: {error}, for {patience:g} s") from error
                with waiting() if isinstance(error, ServerFull) else contextlib.nullcontext():
                    await asyncio.sleep(pause)
                delay = min(2 * delay, 2.0)
            except EnvError as error:
                if isinstance(error, ServerError):
                    raise ServerError(f"{self.source}: {error}", error.code) from error
                self._link.drop()
                raise EnvError(f"{self.source}: {error}") from error

    async def _restore(self) -> None:
        """Play the episode so far again, in a new session."""
        answers = [("reset", self._reset_data, self._first_answer)]
        answers += [("step", data, answer) for data, answer in self._history]
        for turn, (kind, data, answer) in enumerate(answers):
            result = await self._link.ask(kind, data, self.timeout)
            if _fingerprint(result) != answer:
                raise EnvError(
                    f"the session was lost, and the episode cannot be restored: the environment is not "
                    f"deterministic, turn {turn} was {answer:.200} and is now {_fingerprint(result):.200}"
                )

    async def _read_schema(self, timeout: float) -> None:
        schemas = await self._link.schema(timeout)
        if not all(isinstance(schemas.get(name), dict) for name in ("action", "observation")):
            raise ConfigError(f"{self.source}: the server sent no schema of its actions: {schemas!r:.200}")
        _answered.add(self.source)
        self._served_by_gem = schemas["observation"].get("title") == _wire.OBSERVATION_TITLE
        if self.max_turns is None and not self._served_by_gem:
            self.max_turns = MAX_TURNS
        schema = schemas["action"]
        if "$ref" in schema or not isinstance(schema.get("properties", {}), dict):
            schema = without_references(schema)
        mcp = schema.get("title") in ("Action", "CallToolAction", "ListToolsAction")
        if self.action_form == "tools" or (self.action_form == "auto" and mcp):
            self._tools = {}
            self._grammar = ActionGrammar(_CALL_SCHEMA)
            return
        fields = {name: item for name, item in schema.get("properties", {}).items() if name != "metadata"}
        named = schema.get("required")
        required = [name for name in named if name in fields] if isinstance(named, list) else []
        only = required if len(required) == 1 else list(fields) if len(fields) == 1 else []
        if self.field is not None and self.field not in fields:
            raise ConfigError(f"field={self.field!r}: expected a field of the action: {', '.join(fields)}")
        self._field_name = self.field or (only[0] if only else None)
        definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
        if self._field_name is None:
            kind = {**schema, "type": "object", "properties": fields, "required": required}
        else:
            field = fields[self._field_name]
            kind = {**field, **definitions} if isinstance(field, dict) else {}
        plain = without_references(kind)
        is_text = plain.get("type") == "string" and "enum" not in plain
        whole = self.action_form == "text" or (self.action_form == "auto" and is_text)
        self._grammar = ActionGrammar(kind, whole=whole)

    async def _list_tools(self) -> None:
        listing = await self._link.ask("step", {"type": "list_tools"}, self.timeout)
        tools = listing["observation"].get("tools") or []
        self._tools = {str(tool["name"]): tool for tool in tools}
        if not self._tools:
            raise EnvError("the environment has no tools")

    # -- texts --------------------------------------------------------------------------------

    def _action(self, response: str) -> Action:
        assert self._grammar is not None  # read at the reset
        action = self._grammar.read(response)
        if action.invalid is not None:
            return action
        if self._tools is not None:
            if action.value["tool_name"] not in self._tools:
                return Action(None, "illegal", f"there is no tool {action.value['tool_name']!r:.80}")
            return Action({"type": "call_tool", **action.value})
        return action if self._field_name is None else Action({self._field_name: action.value})

    def _how_to_answer(self) -> str:
        assert self._grammar is not None
        if self._tools is None:
            return self._grammar.instructions()
        keys = ("name", "description", "input_schema")
        tools = [{key: tool.get(key) for key in keys} for tool in self._tools.values()]
        return f"Tools: {json.dumps(tools)}\n{self._grammar.instructions()}"

    def _read(self, result: Mapping[str, Any]) -> ResetResult:
        """Return observation and info in an answer."""
        fields: Mapping[str, Any] = result["observation"]
        if self._served_by_gem:
            info = dict(fields.get("info") or {})
            info.update({key: fields[key] for key in ("success", "invalid") if fields.get(key) is not None})
            return fields.get("parts") or fields["text"], info
        notes = {**(fields.get("metadata") or {}), **(result.get("metadata") or {})}
        info = json_info({key: notes[key] for key in notes if key not in ("success", "invalid", "error")})
        for source in (fields, notes):
            if isinstance(source.get("success"), bool):
                info["success"] = source["success"]
        return encodable(shown_text(fields, self.show)), info


_CALL_SCHEMA = {
    "type": "object",
    "properties": {"tool_name": {"type": "string"}, "arguments": {"type": "object", "properties": {}}},
    "required": ["tool_name", "arguments"],
}


def shown_text(fields: Mapping[str, Any], show: str | None = None) -> str:
    """Return an observation as text.

    Args:
        fields: Fields of the observation.
        show: Name of the field to show; None shows the only text, or all fields as JSON.
    """
    values = {key: value for key, value in fields.items() if key not in _NOT_SHOWN and value is not None}
    if show is not None:
        value = values.get(show, "")
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    values = values or dict(fields.get("metadata") or {})
    if len(values) == 1 and isinstance(only := next(iter(values.values())), str):
        return only
    return json.dumps(values, ensure_ascii=False)


def _is_import_path(source: str) -> bool:
    module, colon, name = source.partition(":")
    parts = [*module.split("."), name]
    return bool(colon) and all(part.isidentifier() for part in parts)


def _fingerprint(result: Mapping[str, Any]) -> str:
    """Return the parts of an answer that must be equal when an episode is restored."""
    fields = {key: value for key, value in result["observation"].items() if key != "metadata"}
    return json.dumps([fields, result.get("reward"), result.get("done")], sort_keys=True, default=str)
