"""Interface of tools (`Tool`, `ToolState`, `ToolResult`, `ToolCall`) and their registry.

    class Dice(Tool):
        name = "dice"
        description = "Rolls a die and returns the number."
        parameters = {
            "type": "object",
            "properties": {"sides": {"type": "integer", "description": "sides of the die"}},
            "required": ["sides"],
        }

        async def call(self, arguments, state):
            state.data["rolls"] = state.data.get("rolls", 0) + 1
            return ToolResult(str(random.randint(1, arguments["sides"])))

    register_tool("dice", "my_package.dice:Dice")

One tool object serves many episodes concurrently, from any event loop or thread; the data of an episode is in
its `ToolState`. Expensive resources (a server, an index, a pool of workers) are best kept once per process by
the tool's module, because every environment creates its own tool objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeAlias

from gem_core._registration import read_specs
from gem_core._util.entry_points import check_arguments, check_entry_point, load_attribute
from gem_core._util.registry import Registry
from gem_core.errors import ConfigError

ENTRY_POINT_GROUP = "gem_core.tools"


@dataclass(frozen=True)
class ToolResult:
    """Result of a call.

    Attributes:
        text: Text shown to the model.
        ok: Whether the call succeeded. False for an error of the model (bad arguments, a program that raises)
            or of the tool (a server that is down); the text says which.
        metadata: JSON-serializable data for the info dict, such as ``{"seconds": 0.1}``.
        reward: Reward of the call, such as for a useful query. It is added to the reward of the turn.
    """

    text: str
    ok: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)
    reward: float = 0.0


@dataclass
class ToolState:
    """State of a tool in one episode.

    Attributes:
        data: JSON-serializable data; saved, copied, and restored with the state of the environment.
        live: Anything else (a session, a process). It is not part of a saved state: after a restore it is
            None, and the tool recreates it from `data`.
        scope: Part of a server that this episode may use, such as the name of its database, from the
            attribute `tool_scope` of the environment. It is not part of a saved state either.
        env: The environment of the episode, below its wrappers, for a tool that belongs to an environment.
            The tool may read and change it; what it changes must be in the environment's `state_fields`.
    """

    data: dict[str, Any] = field(default_factory=dict)
    live: Any = None
    scope: str | None = None
    env: Any = None


class Tool:
    """Base class of every tool.

    A subclass sets `name`, `description`, and `parameters`, as class attributes or in its constructor, and
    overrides `call`. It overrides the other methods if it holds resources.
    """

    name: str
    """Name by which the model calls the tool: a letter, then letters, digits, ``_``, ``-``, and ``.``."""
    description: str
    """Description of the tool for the model."""
    parameters: Mapping[str, Any] = {"type": "object", "properties": {}}  # never modified
    """JSON schema of the arguments; its type is an object."""
    instructions: str | None = None
    """Text that explains the tool to the model. None lets the call format write it from the fields above."""
    stateful: ClassVar[bool] = True
    """Whether `ToolState.data` suffices to resume an episode; False for a tool whose state is elsewhere."""

    state_key: str | None = None
    """Tools of one environment with the same key share a `ToolState`. None gives the tool its own."""

    def begin(self) -> ToolState:
        """Return the state of a new episode. Should be cheap, because many episodes never call the tool."""
        return ToolState()

    async def call(self, arguments: Mapping[str, Any], state: ToolState) -> ToolResult:
        """Execute a call of the model.

        Args:
            arguments: Arguments, already checked against `parameters`.
            state: State of this episode. The calls of an episode run one at a time, unless the wrapper's
                option `together` is set.

        Returns:
            The result, even if the model sent nonsense. An exception counts as a failure of the tool, which
            the wrapper reports to the model in one line. A call may be canceled at any await and must then
            clean up.
        """
        raise NotImplementedError

    def end(self, state: ToolState) -> None:
        """Release `state.live` without waiting. Called once per episode, even if the tool was not used."""

    def close(self) -> None:
        """Release the resources of the tool object. May be called more than once."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def schema(tool: Tool) -> dict[str, Any]:
    """Return a tool in the form that chat templates and chat APIs expect in ``tools=``."""
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


@dataclass(frozen=True)
class ToolCall:
    """One call of a tool.

    Attributes:
        name: Name of the tool, as written by the model.
        arguments: Arguments by name.
        end: Position in the response at which the call ends.
        error: Why the call is invalid; None if it is valid.
        start: Position in the response at which the call begins. The formats of environments leave it at 0.
        id: Id that the model gave to the call; empty if none.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    end: int = 0
    error: str | None = None
    start: int = 0
    id: str = ""


class CallFormat(Protocol):
    """A format of calls."""

    name: str

    def parse(self, text: str, tools: Sequence[Tool]) -> list[ToolCall]:
        """Return the calls of a response in order, at most 64."""
        ...

    def write(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        """Return a call as a model would write it."""
        ...

    def write_error(self, name: str, reason: str) -> str:
        """Return a text that is read as a call that cannot be made for that reason."""
        ...

    def instructions(self, tools: Sequence[Tool]) -> str:
        """Return the text that explains the tools to the model."""
        ...

    def results(self, named: Sequence[tuple[str, str]]) -> str:
        """Return the observation for the results of calls, given as tool names and texts."""
        ...


class CallReader(Protocol):
    """A wrapper or an environment that reads tool calls in responses; see `Env.call_readers`."""

    instructions: bool | str
    """Whether the first observation explains the tools, or the text that does."""

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools."""

    @property
    def format(self) -> CallFormat:
        """Format of the calls."""

    @property
    def call_results(self) -> Sequence[tuple[str, str]]:
        """Names of the tools that the last response called and the results; empty if it called none."""

    def native_text(self, message: Mapping[str, Any], readers: Sequence[CallReader]) -> str:
        """Return an assistant's message with ``tool_calls`` as text that `readers` read as the same calls.

        It is called on the first of the readers; `gem_chat._calls.native.native_text` does it.
        """


ToolFactory: TypeAlias = Callable[..., Tool | Sequence[Tool]]
"""Creates a tool, or several, such as all functions of a server."""
ToolLike: TypeAlias = str | Tool
"""A config string such as ``"python(timeout=3), search"``, or a tool."""


@dataclass(frozen=True)
class _Entry:
    entry_point: str | ToolFactory
    extra: str | None


_tools: Registry[_Entry] = Registry("tool", group=ENTRY_POINT_GROUP)


def register_tool(name: str, entry_point: str | ToolFactory, *, extra: str | None = None) -> None:
    """Make a tool available to config strings.

    Args:
        name: Name in the config string; the tools themselves may have other names.
        entry_point: ``module:attribute``, or the class or function itself. It receives the keyword arguments
            of the config string.
        extra: Extra of gem-core that the tool requires.

    Raises:
        ConfigError: The name is taken by a different tool, or the entry point is malformed.
    """
    check_entry_point(f"tool {name!r}", entry_point)
    _tools.register(name, _Entry(entry_point, extra))


def list_tools() -> list[str]:
    """Return the sorted names of the registered tools."""
    return _tools.names()


def make_tools(tools: ToolLike | Sequence[ToolLike]) -> list[Tool]:
    """Create tools.

    Args:
        tools: A config string such as ``"python(timeout=3), search"``, a `Tool`, or a sequence of these.

    Raises:
        UnknownName: There is no tool of that name; the message holds the closest ones.
        MissingDependency: A tool needs an extra; the message holds the pip command.
        TypeError: A keyword argument is unknown.
        ConfigError: The config string is invalid, two tools have the same name, or a tool lacks an attribute.
    """
    result: list[Tool] = []
    for tool in [tools] if isinstance(tools, str | Tool) else tools:
        if isinstance(tool, Tool):
            result.append(tool)
            continue
        for spec in read_specs(tool, what="tools", example="python(timeout=3), search"):
            result.extend(_make(spec.name, spec.kwargs))
    names = [tool.name for tool in result]
    for tool in result:
        _check(tool)
        if names.count(tool.name) > 1:
            raise ConfigError(f"two tools have the name {tool.name!r}; rename one of them")
    return result


def _make(name: str, kwargs: Mapping[str, Any]) -> Sequence[Tool]:
    entry = _tools.get(name)
    point = entry.entry_point
    factory: ToolFactory = (
        load_attribute(f"tool {name!r}", point, entry.extra) if isinstance(point, str) else point
    )
    check_arguments(f"tool {name!r}", factory, dict(kwargs))
    tools = factory(**kwargs)
    return [tools] if isinstance(tools, Tool) else tools


def _check(tool: Tool) -> None:
    for attribute in ("name", "description"):
        if not isinstance(getattr(tool, attribute, None), str) or not getattr(tool, attribute):
            raise ConfigError(f"{type(tool).__name__} does not define {attribute}: expected a non-empty str")
    if not (tool.name[0].isalpha() and tool.name.isascii()) or not (
        tool.name.replace("_", "").replace("-", "").replace(".", "").isalnum()
    ):
        raise ConfigError(
            f"invalid tool name {tool.name!r}: expected a letter, then letters, digits, '_', '-', and '.'"
        )
    if not isinstance(tool.parameters, Mapping) or tool.parameters.get("type") != "object":
        raise ConfigError(f"parameters of tool {tool.name!r}: expected a JSON schema of type 'object'")
