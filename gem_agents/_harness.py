"""Harnesses: a coroutine or a command that plays an episode through a gateway.

    async def agent(task: AgentTask) -> None:
        client = AsyncOpenAI(base_url=task.openai_url, api_key=task.api_key)
        ...

    harness = Command(["my-agent"], stdin="{prompt}")

The option `harness` of a rollout names one.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gem_agents._processes import run_command
from gem_core._util.entry_points import load_attribute
from gem_core.errors import ConfigError, MissingDependency
from gem_core.rollout._harness import find_harness, list_harnesses


@dataclass(frozen=True)
class AgentTask:
    """What a harness gets.

    Attributes:
        prompt: The first observation of the environment.
        url: Base address for Anthropic's SDK; model calls, ``/step``, ``/mcp``, and nothing else.
        model: Name of the model; any other name is the same model.
        api_key: Text for SDKs that want a key. The key of the episode is in the address.
    """

    prompt: str
    url: str
    model: str = "policy"
    api_key: str = "none"

    @property
    def openai_url(self) -> str:
        """Base address for OpenAI's SDK."""
        return f"{self.url}/v1"

    @property
    def step_url(self) -> str:
        """Address for actions: ``POST {"action": ..., "call_id": ...}`` returns the observation."""
        return f"{self.url}/step"

    @property
    def mcp_url(self) -> str:
        """Address of the environment as an MCP server with the tool ``act``, over streamable HTTP."""
        return f"{self.url}/mcp"

    def variables(self) -> dict[str, str]:
        """Return environment variables that most agents read."""
        return {
            "OPENAI_BASE_URL": self.openai_url,
            "OPENAI_API_KEY": self.api_key,
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": self.api_key,
            "GEM_STEP_URL": self.step_url,
            "GEM_MCP_URL": self.mcp_url,
            "GEM_MODEL": self.model,
        }


Harness: TypeAlias = Callable[[AgentTask], Awaitable[object]]
"""Plays one episode and returns when the agent has ended."""

_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SYSTEMROOT")
"""Variables of the trainer's environment that a command gets; others may hold its secrets."""


@dataclass(frozen=True)
class Command:
    """A program as a harness. It runs in a new folder, which is also its home, without the trainer's secrets.

    Attributes:
        command: The program and its arguments, in which ``{prompt}``, ``{url}``, ``{openai_url}``,
            ``{step_url}``, ``{mcp_url}``, and ``{model}`` are replaced. An argument holds at most 128 KiB,
            and a prompt that begins with ``-`` may be taken for an option; `stdin` has neither limit.
        stdin: Text of its standard input, in which the same is replaced.
        variables: Further environment variables, in which the same is replaced.
        files: Texts of files in its folder by path, in which the same is replaced.
        install: How to install the program, for the error if it is missing.
    """

    command: Sequence[str]
    stdin: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    install: str = ""

    def require_program(self, name: str) -> None:
        """Check that the program can be found.

        Args:
            name: Name of the harness, for the message.

        Raises:
            MissingDependency: It is not on the PATH.
        """
        if shutil.which(self.command[0]) is None:
            how = f": {self.install}" if self.install else ""
            raise MissingDependency(
                f"harness {name!r} needs the program {self.command[0]!r}, which is not on the PATH{how}"
            )

    async def __call__(self, task: AgentTask) -> None:
        """Run the program.

        Raises:
            HarnessFailed: It ended with another exit code than 0; the error has the end of its output.
        """
        fill = _filler(task)
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        await run_command(
            [fill(part) for part in self.command],
            kept | task.variables() | {name: fill(value) for name, value in self.variables.items()},
            {path: fill(text) for path, text in self.files.items()},
            fill(self.stdin),
        )


def _filler(task: AgentTask) -> Callable[[str], str]:
    values = {
        "{prompt}": task.prompt,
        "{url}": task.url,
        "{openai_url}": task.openai_url,
        "{step_url}": task.step_url,
        "{mcp_url}": task.mcp_url,
        "{model}": task.model,
    }

    def fill(text: str) -> str:
        parts, rest = [], text
        while rest:  # in one pass, so that a prompt is not filled itself
            place, name = min(((rest.find(n), n) for n in values if n in rest), default=(len(rest), ""))
            parts += [rest[:place], values.get(name, "")]
            rest = rest[place + len(name) :]
        return "".join(parts)

    return fill


def resolve_harness(harness: str | Harness) -> Harness:
    """Return a harness.

    Args:
        harness: A coroutine function, the name of a registered harness, ``module:attribute``, or a command
            line such as ``"my-agent --prompt {prompt}"``.

    Raises:
        ConfigError: There is no such harness or program.
        MissingDependency: The agent of a harness is not installed.
    """
    if not isinstance(harness, str):
        return harness
    entry_point: Any = find_harness(harness)
    module, separator, attribute = harness.partition(":")
    if entry_point is None and separator and attribute.isidentifier() and _is_module(module):
        entry_point = harness
    if entry_point is not None:
        found = entry_point
        if isinstance(entry_point, str):
            found = load_attribute(f"harness {harness!r}", entry_point)
        if not callable(found):
            raise ConfigError(f"harness {harness!r} is {found!r:.100}: expected a coroutine function")
        if isinstance(found, Command):
            found.require_program(harness)
        return found  # type: ignore[no-any-return]
    words = shlex.split(harness)
    if not words or shutil.which(words[0]) is None:
        known = ", ".join(list_harnesses()) or "none"
        raise ConfigError(
            f"harness {harness!r} is neither a registered harness ({known}), nor module:attribute, nor a "
            "command whose program is on the PATH"
        )
    return Command(words)


def _is_module(name: str) -> bool:
    if name.endswith(".py"):
        return os.path.exists(name)
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
