"""`Tools`: lets the model call tools during the episodes of any environment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from gem_chat._calls.formats import get_format
from gem_chat._calls.native import native_text
from gem_chat._tools import CallReader, ToolLike
from gem_chat.tools import Tool, ToolCall, ToolResult, ToolState, make_tools
from gem_core import Env, Info, Observation, Wrapper, render_observation
from gem_core._core import ResetResult, StepResult
from gem_core._observations import encodable
from gem_core._util.checks import check_int, check_number
from gem_core._util.messages import error_line
from gem_core._util.waiting import Overdue, within
from gem_core.errors import ConfigError
from gem_envs.tools import _loop

LAST_USE = "That was the last use of a tool. Give your final answer now."


class Tools(Wrapper):
    """Runs the tool calls of a response; a response without one goes to the environment.

    A tool turn does not reach the environment and does not end the episode. Its observation holds the
    results, or says what is wrong with a call. After `max_tool_uses` tool turns, every response goes to the
    environment.

    The reward of a tool turn is `tool_reward`, plus `tool_success_reward` if every call succeeded, or
    `tool_error_reward` if one failed, plus the reward of each result (`ToolResult`). A call that cannot be
    parsed is a format error: the environment's `format_error_reward` replaces `tool_reward`, and the info has
    ``invalid``.

    The info of a tool turn has ``use_tool`` True, ``tool_type`` (names of the tools), ``parsed_action``
    (the response up to the last call that was run), ``tool_results`` (name, ok, and metadata of each call)
    and, if a call failed, ``tool_error``. Every info has ``tool_use_counter`` and ``tool_success_counter``;
    the info of `reset` also has ``prev_ep_tool_use_counter`` and ``prev_ep_tool_success_counter``.

    There may be any number of tools, calls per response, and nested `Tools` wrappers: a call to a tool of an
    inner wrapper is passed on to that wrapper.

    An environment may have an attribute `tool_files` (name to text) with files of this episode, which tools
    find in the ``files`` of their state, and an attribute `tool_scope` (see `ToolState`). Its random player
    calls tools if it has a method `sample_tool_call()`, and its oracle if it has a method
    `oracle_tool_call(uses)`; both return the name of a tool and its arguments. `uses` is the number of tool
    turns so far; None means that the oracle needs no further call.

    Args:
        env: The environment.
        tools: Config string such as ``"python(timeout=3), search"``, a tool, or a list of these. The wrapper
            closes only tools that it built from a config string.
        format: How calls are written in text: "gem", "hermes", or "llama"; see `gem_chat._calls.formats`.
            With None, a model whose chat template has tool turns calls the tools as the template does, and
            "gem" is the format for any other.
        tool_reward: Reward of a turn with a call.
        tool_success_reward: Additional reward if all calls of the turn succeeded.
        tool_error_reward: Additional reward if a call of the turn failed or was malformed.
        max_tool_uses: Maximum number of tool turns per episode; the observation of the last one says so. None
            means no limit: the environment's own limit counts only environment turns, so wrap the result in
            a `time_limit`.
        max_calls: Maximum number of calls that are run per response; the observation says that further ones
            were not made.
        together: Whether to run the calls of a response at the same time instead of one after the other.
        timeout: Maximum number of seconds per call, from the moment that it has a place: the time in which it
            waits behind other calls does not count. None uses the tool's own limit.
        max_result_chars: Maximum length of a result; the middle of a longer one is cut out. None means no
            limit.
        instructions: Whether the first observation explains how to call the tools, unless the chat template
            receives their schemas. A str replaces the explanation, and calls are then written in text.

    Attributes:
        native: Whether the tools may be called as a chat template does.

    Raises:
        ConfigError: An argument is out of range, or there is no tool.
        UnknownName: There is no such tool or format.
    """

    state_fields = ("tool_use_counter", "tool_success_counter", "tool_data")
    random_calls: float = 0.5
    """Probability that `sample_random_action` returns a tool call, if one is possible."""

    def __init__(
        self,
        env: Env,
        *,
        tools: ToolLike | Sequence[ToolLike],
        format: str | None = None,
        tool_reward: float = 0.0,
        tool_success_reward: float = 0.0,
        tool_error_reward: float = 0.0,
        max_tool_uses: int | None = 10,
        max_calls: int = 1,
        together: bool = False,
        timeout: float | None = None,
        max_result_chars: int | None = 8000,
        instructions: bool | str = True,
    ) -> None:
        super().__init__(env)
        self.tools = make_tools(tools)
        if not self.tools:
            raise ConfigError("tools: expected at least one tool")
        self._own = [] if _any_objects(tools) else list(self.tools)
        self._by_name = {tool.name: tool for tool in self.tools}
        self._by_state = {tool.state_key or tool.name: tool for tool in self.tools}
        self.native = format is None and not isinstance(instructions, str)
        self.format = get_format("gem" if format is None else format)
        self.rewards = tuple(map(float, (tool_reward, tool_success_reward, tool_error_reward)))
        self.max_tool_uses = check_int("max_tool_uses", max_tool_uses, 1, optional=True)
        self.max_calls = check_int("max_calls", max_calls, 1)
        self.timeout = check_number("timeout", timeout, above=0, optional=True)
        self.max_result_chars = check_int("max_result_chars", max_result_chars, 1, optional=True)
        self.together, self.instructions = together, instructions
        self.tool_use_counter = self.tool_success_counter = 0
        self.call_results: list[tuple[str, str]] = []
        self._states: dict[str, ToolState] = {}

    # -- properties ---------------------------------------------------------------------------------

    @property
    def blocking(self) -> bool | Literal["cpu"]:  # type: ignore[override]
        """Truthy, so that sync callers run tool calls in threads. `astep` never blocks the event loop."""
        return self.env.blocking or True

    @property
    def max_return(self) -> float | None:  # type: ignore[override]
        """Best return of the environment; None if tool turns also earn rewards."""
        return None if any(self.rewards) else self.env.max_return

    @property
    def call_readers(self) -> Sequence[Any]:  # type: ignore[override]
        """This wrapper and the readers of the environment."""
        return (self, *self.env.call_readers)

    def native_text(self, message: Mapping[str, Any], readers: Sequence[CallReader]) -> str:
        """Return an assistant's message with ``tool_calls`` as text that `readers` read as the same calls."""
        return native_text(message, readers)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Names of all tools that can be called, including the tools of inner `Tools` wrappers."""
        return (*self._by_name, *getattr(self.env, "tool_names", ()))

    @property
    def tool_totals(self) -> tuple[int, int]:
        """Number of tool turns and of successful tool turns, including inner `Tools` wrappers."""
        uses, successes = getattr(self.env, "tool_totals", (0, 0))
        return self.tool_use_counter + uses, self.tool_success_counter + successes

    @property
    def tool_data(self) -> dict[str, Any]:
        """State of the tools in this episode, as JSON-serializable data."""
        return {key: state.data for key, state in self._states.items()}

    @tool_data.setter
    def tool_data(self, data: Mapping[str, Any]) -> None:
        self._end_states()
        self._states = {key: ToolState(value) for key, value in data.items()}

    # -- the contract -------------------------------------------------------------------------

    def on_reset(self, observation: Observation, info: Info) -> ResetResult:
        info["prev_ep_tool_use_counter"] = self.tool_use_counter
        info["prev_ep_tool_success_counter"] = self.tool_success_counter
        self.tool_use_counter = self.tool_success_counter = 0
        self._end_states()
        self._count(info, use_tool=False)
        if self.instructions is False:
            return observation, info
        own = isinstance(self.instructions, str)
        text = str(self.instructions) if own else f"{self.format.instructions(self.tools)}\n{self._budget()}"
        shown = render_observation(observation, info)  # the instructions come after the suffix
        info.pop("prefix", None)
        info.pop("suffix", None)
        return render_observation(shown, {"suffix": text}), info

    def step(self, action: str) -> StepResult:
        self.require_reset()
        calls = self._calls(action)
        if calls:
            return self._tool_turn(action, calls, _loop.run(self._run(calls[: self.max_calls])))
        return self._env_turn(*self.env.step(action))

    async def astep(self, action: str) -> StepResult:
        self.require_reset()
        calls = self._calls(action)
        if calls:
            return self._tool_turn(action, calls, await self._run(calls[: self.max_calls]))
        return self._env_turn(*await self.env.astep(action))

    def sample_random_action(self) -> str:
        """Return an action of the environment or, with probability `random_calls`, one of its tool calls."""
        sample = getattr(self.env, "sample_tool_call", None)
        if sample is not None and self._may_call() and self.action_random.random() < self.random_calls:
            return self._written(*sample()) or self.env.sample_random_action()
        return self.env.sample_random_action()

    def oracle_action(self) -> str | None:
        """Return the environment's best tool calls first, if it has any, and then its best action."""
        best = getattr(self.env, "oracle_tool_call", None)
        if best is not None and self._may_call():
            call = best(self.tool_use_counter)
            action = None if call is None else self._written(*call)
            return action or self.env.oracle_action()
        return self.env.oracle_action()

    def close(self) -> None:
        self._end_states()
        for tool in self._own:
            tool.close()
        super().close()

    # -- plumbing -----------------------------------------------------------------------------

    def _may_call(self) -> bool:
        return self.max_tool_uses is None or self.tool_use_counter < self.max_tool_uses

    def _budget(self) -> str:
        """Return the limits on calls, for the instructions."""
        calls = "one call" if self.max_calls == 1 else f"at most {self.max_calls} calls"
        if self.max_tool_uses is None:
            return f"Make {calls} per response."
        times = "once" if self.max_tool_uses == 1 else f"at most {self.max_tool_uses} times"
        return f"Make {calls} per response, and use tools {times}."

    def _not_made(self, ignored: int) -> str:
        """Return the note to the model about the calls beyond `max_calls`."""
        limit = "one call" if self.max_calls == 1 else f"{self.max_calls} calls"
        subject = "Another call" if ignored == 1 else f"{ignored} other calls"
        verb = "was" if ignored == 1 else "were"
        return f"{subject} in the same response {verb} not made: the limit is {limit}."

    def _written(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """Return a call as a model would write it; None if this wrapper has no such tool."""
        return self.format.write(self._by_name[name], arguments) if name in self._by_name else None

    def _calls(self, action: str) -> list[ToolCall]:
        """Return the calls of a response; an empty list if the response is for the environment."""
        if not self._may_call():
            return []
        calls = self.format.parse(action, self.tools)
        inner = getattr(self.env, "tool_names", ())
        if inner and all(call.name not in self._by_name for call in calls):
            return [] if any(call.name in inner for call in calls) else calls
        return calls

    async def _run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        if self.together:
            return list(await asyncio.gather(*map(self._call, calls)))
        return [await self._call(call) for call in calls]

    async def _call(self, call: ToolCall) -> ToolResult:
        if call.error is not None:
            return ToolResult(f"The call was not made: {call.error}.", ok=False)
        tool = self._by_name[call.name]
        key = tool.state_key or tool.name
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = tool.begin()
            if files := getattr(self.env, "tool_files", None):
                state.data["files"] = dict(files)
        state.scope = getattr(self.env, "tool_scope", None)
        state.env = self.env.unwrapped
        try:
            return await within(self.timeout, tool.call(call.arguments, state))
        except Overdue:
            return ToolResult(f"{tool.name} did not answer within {self.timeout:g} seconds.", ok=False)
        except Exception as error:  # a failure of the tool, not of the model: the episode continues
            reason = error_line(error)
            return ToolResult(f"{tool.name} failed: {reason[:500]}", ok=False)

    def _tool_turn(self, action: str, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> StepResult:
        """Return the result of a tool turn; `results` covers only the calls that were run."""
        calls, ignored = calls[: len(results)], len(calls) - len(results)
        ok = all(result.ok for result in results)
        self.tool_use_counter += 1
        self.tool_success_counter += ok
        names = [encodable(call.name or "call") for call in calls]
        texts = [_shorten(encodable(result.text), self.max_result_chars) for result in results]
        self.call_results = list(zip(names, texts, strict=True))
        observation = self.format.results(self.call_results)
        if ignored:
            observation = f"{observation}\n\n{self._not_made(ignored)}"
        if self.tool_use_counter == self.max_tool_uses:
            observation = f"{observation}\n\n{LAST_USE}"
        always, success, error = self.rewards
        info: Info = {"parsed_action": action[: calls[-1].end]}
        if any(call.error is not None for call in calls):
            always = self.format_error_reward
            info["invalid"] = "format"
        info["tool_type"] = ",".join(names)
        info["tool_results"] = [
            {"name": name, "ok": result.ok, **result.metadata}
            for name, result in zip(names, results, strict=True)
        ]
        if not ok:
            info["tool_error"] = next(
                text for text, result in zip(texts, results, strict=True) if not result.ok
            )
        self._count(info, use_tool=True)
        reward = always + (success if ok else error) + sum(float(result.reward) for result in results)
        return observation, reward, False, False, info

    def _env_turn(
        self, observation: Observation, reward: float, terminated: bool, truncated: bool, info: Info
    ) -> StepResult:
        """Return the result of an environment turn."""
        self.call_results = []
        self._count(info, use_tool=bool(info.get("use_tool")))
        if terminated or truncated:
            self._end_states()
        return observation, reward, terminated, truncated, info

    def _count(self, info: Info, *, use_tool: bool) -> None:
        info["use_tool"] = use_tool
        info["tool_use_counter"], info["tool_success_counter"] = self.tool_totals

    def _end_states(self) -> None:
        for key, state in self._states.items():
            self._by_state[key].end(state)
        self._states = {}


def _any_objects(tools: ToolLike | Sequence[ToolLike]) -> bool:
    return isinstance(tools, Tool) or (
        not isinstance(tools, str) and any(isinstance(tool, Tool) for tool in tools)
    )


def _shorten(text: str, limit: int | None) -> str:
    if limit is None or len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... ({len(text) - 2 * half} characters left out) ...\n{text[len(text) - half :]}"
