"""`Tools`: lets the model call tools during the episodes of any environment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from gem_core._util.messages import error_line
from gem_core.core import Env, Info, Observation, ResetResult, StepResult
from gem_core.errors import ConfigError
from gem_core.observations import encodable, render_observation
from gem_core.tools import loop
from gem_core.tools.base import Tool, ToolLike, ToolResult, ToolState, make_tools
from gem_core.tools.formats import get_format
from gem_core.tools.reading import ToolCall
from gem_core.wrapper import Wrapper

LAST_USE = "That was the last use of a tool. Give your final answer now."


class Tools(Wrapper):
    """Runs the tool calls of a response; a response without one goes to the environment.

    A tool turn does not reach the environment and does not end the episode. Its observation holds the
    results, or says what was wrong with a call. Once `max_tool_uses` turns were used, every response goes to
    the environment.

    Rewards of a tool turn: `tool_reward`, plus `tool_success_reward` when every call succeeded, or
    `tool_error_reward` when one did not. A call that cannot be read is a format error: it pays the
    environment's `format_error_reward` in the place of `tool_reward`, and the info has ``invalid``.

    The info of a tool turn has ``use_tool`` True, ``tool_type`` (names of the tools), ``parsed_action``
    (the response up to the last call that was run), ``tool_results`` (name, ok and metadata of each call)
    and, when a call failed, ``tool_error``. Every info has ``tool_use_counter`` and ``tool_success_counter``;
    that of `reset` also ``prev_ep_tool_use_counter`` and ``prev_ep_tool_success_counter``.

    The number of tools, of calls in a response and of `Tools` wrappers around each other is free: a call
    that only an inner wrapper knows is passed on to it.

    An environment may have an attribute `tool_files` (name to text): files of this episode that tools find
    in the ``files`` of their state, and an attribute `tool_scope`, see `ToolState`. One with
    `sample_tool_call()` or `oracle_tool_call()`, each returning the name of a tool and its arguments, has its
    random and its best player call tools.

    Args:
        env: The environment.
        tools: Config string such as ``"python(timeout=3), search"``, tools, or a list of both. Tools that
            are handed in as objects are closed by whoever made them.
        format: How calls are written: "gem", "hermes" or "llama"; see `gem_core.tools.formats`.
        tool_reward: For a turn with a call.
        tool_success_reward: Added when all its calls succeeded.
        tool_error_reward: Added when one failed or was malformed.
        max_tool_uses: Tool turns of an episode; the last one says so. None for no limit: then the
            environment's turn limit counts environment turns only, and a `time_limit` belongs outside.
        max_calls: Calls of one response that are run; those after it are left out.
        together: Run the calls of a response at the same time instead of one after the other.
        timeout: Seconds for one call; None leaves it to the tool.
        max_result_chars: Longest result that is shown; a longer one loses its middle. None for no limit.
        instructions: Whether the first observation says how to call the tools. False is for a chat
            template that is given them (``tools=``); a text is shown instead of the usual one.

    Raises:
        ConfigError: A value that cannot be honoured.
        UnknownName: No such tool or format.
    """

    state_fields = ("tool_use_counter", "tool_success_counter", "tool_data")

    def __init__(
        self,
        env: Env,
        *,
        tools: ToolLike | Sequence[ToolLike],
        format: str = "gem",
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
        _check_number("max_tool_uses", max_tool_uses)
        _check_number("max_calls", max_calls)
        _check_number("max_result_chars", max_result_chars)
        if timeout is not None and not timeout > 0:
            raise ConfigError(f"timeout={timeout!r}: expected seconds above 0, or None")
        self.tools = make_tools(tools)
        if not self.tools:
            raise ConfigError("tools: expected at least one tool")
        self._own = [] if _any_given(tools) else list(self.tools)
        self._by_name = {tool.name: tool for tool in self.tools}
        self._by_state = {tool.state_key or tool.name: tool for tool in self.tools}
        self.format = get_format(format)
        self.rewards = tuple(map(float, (tool_reward, tool_success_reward, tool_error_reward)))
        self.max_tool_uses, self.max_calls, self.together = max_tool_uses, max_calls, together
        self.timeout, self.max_result_chars, self.instructions = timeout, max_result_chars, instructions
        self.tool_use_counter = self.tool_success_counter = 0
        self._states: dict[str, ToolState] = {}

    # -- what changes for callers -----------------------------------------------------------------

    @property
    def blocking(self) -> bool | Literal["cpu"]:  # type: ignore[override]
        """A tool call waits, so a sync caller wants threads; `astep` never blocks the event loop."""
        return self.env.blocking or True

    @property
    def max_return(self) -> float | None:  # type: ignore[override]
        """The environment's, unless tool turns pay too."""
        return None if any(self.rewards) else self.env.max_return

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Names of all tools that can be called, those of inner `Tools` wrappers included."""
        return (*self._by_name, *getattr(self.env, "tool_names", ()))

    @property
    def tool_totals(self) -> tuple[int, int]:
        """Tool turns and those that succeeded, inner `Tools` wrappers included."""
        uses, successes = getattr(self.env, "tool_totals", (0, 0))
        return self.tool_use_counter + uses, self.tool_success_counter + successes

    @property
    def tool_data(self) -> dict[str, Any]:
        """What the tools keep of this episode, as JSON-able data."""
        return {key: state.data for key, state in self._states.items()}

    @tool_data.setter
    def tool_data(self, data: Mapping[str, Any]) -> None:
        self._end_states()
        self._states = {key: ToolState(value) for key, value in data.items()}

    # -- the contract -------------------------------------------------------------------------

    def on_reset(self, observation: Observation, info: Info) -> ResetResult:
        told: dict[str, Any] = info  # type: ignore[assignment]  # keys of its own
        told["prev_ep_tool_use_counter"] = self.tool_use_counter
        told["prev_ep_tool_success_counter"] = self.tool_success_counter
        self.tool_use_counter = self.tool_success_counter = 0
        self._end_states()
        self._count(info, use_tool=False)
        if self.instructions is False:
            return observation, info
        own = isinstance(self.instructions, str)
        text = str(self.instructions) if own else self.format.instructions(self.tools)
        shown = render_observation(observation, info)  # the instructions come after the suffix
        info.pop("prefix", None)
        info.pop("suffix", None)
        return render_observation(shown, {"suffix": text}), info

    def step(self, action: str) -> StepResult:
        self.require_reset()
        calls = self._calls(action)
        if calls:
            return self._told(action, calls, loop.run(self._run(calls)))
        return self._passed_on(*self.env.step(action))

    async def astep(self, action: str) -> StepResult:
        self.require_reset()
        calls = self._calls(action)
        if calls:
            return self._told(action, calls, await self._run(calls))
        return self._passed_on(*await self.env.astep(action))

    def sample_random_action(self) -> str:
        """The environment's, or half of the time a tool call, where it has some to offer."""
        sample = getattr(self.env, "sample_tool_call", None)
        if sample is not None and self._may_call() and self.action_random.random() < 0.5:
            return self._written(*sample()) or self.env.sample_random_action()
        return self.env.sample_random_action()

    def oracle_action(self) -> str | None:
        """The environment's, after one tool call where it has one to offer."""
        best = getattr(self.env, "oracle_tool_call", None)
        if best is not None and self._may_call() and not self.tool_use_counter:
            call = best()
            written = None if call is None else self._written(*call)
            return written or self.env.oracle_action()
        return self.env.oracle_action()

    def close(self) -> None:
        self._end_states()
        for tool in self._own:
            tool.close()
        super().close()

    # -- plumbing -----------------------------------------------------------------------------

    def _may_call(self) -> bool:
        return self.max_tool_uses is None or self.tool_use_counter < self.max_tool_uses

    def _written(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """A call of that tool as a model would write it; None when there is no such tool here."""
        return self.format.write(self._by_name[name], arguments) if name in self._by_name else None

    def _calls(self, action: str) -> list[ToolCall]:
        """The calls to run; empty when the response is for the environment."""
        if not self._may_call():
            return []
        calls = self.format.parse(action, self.tools)
        inner = getattr(self.env, "tool_names", ())
        if inner and all(call.name not in self._by_name for call in calls):
            return [] if any(call.name in inner for call in calls) else calls
        return calls[: self.max_calls]

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
        try:
            return await asyncio.wait_for(tool.call(call.arguments, state), self.timeout)
        except Exception as error:  # of the tool, not of the model: the episode goes on
            if isinstance(error, asyncio.TimeoutError) and self.timeout is not None:
                return ToolResult(f"{tool.name} gave no answer within {self.timeout:g} seconds.", ok=False)
            reason = error_line(error)
            return ToolResult(f"{tool.name} failed: {reason[:500]}", ok=False)

    def _told(self, action: str, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> StepResult:
        """What a tool turn returns."""
        ok = all(result.ok for result in results)
        self.tool_use_counter += 1
        self.tool_success_counter += ok
        names = [encodable(call.name or "call") for call in calls]
        texts = [_short(encodable(result.text), self.max_result_chars) for result in results]
        observation = self.format.results(list(zip(names, texts, strict=True)))
        if self.tool_use_counter == self.max_tool_uses:
            observation = f"{observation}\n\n{LAST_USE}"
        always, success, error = self.rewards
        info: Info = {"parsed_action": action[: calls[-1].end]}
        if any(call.error is not None for call in calls):
            always = self.format_error_reward
            info["invalid"] = "format"
        told: dict[str, Any] = info  # type: ignore[assignment]
        told["tool_type"] = ",".join(names)
        told["tool_results"] = [
            {"name": name, "ok": result.ok, **result.metadata}
            for name, result in zip(names, results, strict=True)
        ]
        if not ok:
            info["tool_error"] = next(
                text for text, result in zip(texts, results, strict=True) if not result.ok
            )
        self._count(info, use_tool=True)
        return observation, always + (success if ok else error), False, False, info

    def _passed_on(
        self, observation: Observation, reward: float, terminated: bool, truncated: bool, info: Info
    ) -> StepResult:
        """What a turn of the environment returns."""
        self._count(info, use_tool=bool(info.get("use_tool")))
        if terminated or truncated:
            self._end_states()
        return observation, reward, terminated, truncated, info

    def _count(self, info: Info, *, use_tool: bool) -> None:
        told: dict[str, Any] = info  # type: ignore[assignment]
        told["use_tool"] = use_tool
        told["tool_use_counter"], told["tool_success_counter"] = self.tool_totals

    def _end_states(self) -> None:
        for key, state in self._states.items():
            self._by_state[key].end(state)
        self._states = {}


def _check_number(name: str, value: int | None) -> None:
    if value is None and name != "max_calls":
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name}={value!r}: expected a whole number of at least 1")


def _any_given(tools: ToolLike | Sequence[ToolLike]) -> bool:
    return isinstance(tools, Tool) or (
        not isinstance(tools, str) and any(isinstance(tool, Tool) for tool in tools)
    )


def _short(text: str, most: int | None) -> str:
    if most is None or len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n... ({len(text) - 2 * half} characters left out) ...\n{text[len(text) - half :]}"
