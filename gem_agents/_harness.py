"""Harnesses: a coroutine or a command that plays an episode through a gateway.

    async def agent(task: AgentTask) -> None:
        client = AsyncOpenAI(base_url=task.openai_url, api_key=task.api_key)
        ...

    harness = Command(["my-agent"], stdin="{prompt}")

The option `harness` of a rollout names one.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.util
import logging
import os
import shlex
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gem_agents._gateway import Gateway
from gem_agents._processes import GRACE, check_status, run_command
from gem_agents._registry import harnesses
from gem_core._util.entry_points import load_attribute
from gem_core._util.threads import in_thread
from gem_core.errors import ConfigError, MissingDependency, SandboxError
from gem_envs.sandbox._box import Box, box_obstacle
from gem_envs.sandbox._container import Container
from gem_envs.sandbox._container_box import HOME as CONTAINER_HOME
from gem_envs.sandbox._container_box import ContainerBox, require_image
from gem_envs.sandbox._shell import File, Files

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AgentTask:
    """What a harness gets.

    Attributes:
        prompt: The first observation of the environment.
        url: Base address for Anthropic's SDK; model calls, ``/step``, ``/mcp``, and nothing else.
        model: Name of the model; any other name is the same model.
        api_key: Text for SDKs that want a key. The key of the episode is in the address.
        files: Files of the task, for the folder ``/app`` of the agent; None if the task is not one of files.
        hand_in: Takes the files that are left at the end; None if they cannot be read.
        gateway: What serves the address. A program in a network of its own needs it.
    """

    prompt: str
    url: str
    model: str = "policy"
    api_key: str = "none"
    files: Files | None = None
    hand_in: Callable[[dict[str, File] | None], object] = lambda files: None
    gateway: Gateway | None = field(default=None, repr=False)

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

    @contextlib.asynccontextmanager
    async def unix_socket(self) -> AsyncIterator[str]:
        """Yield the path of a Unix socket that serves the addresses while the block runs.

        It is for a program without the network of this machine, such as a container of your own into which
        the socket is mounted. Clients send the same requests as to the port of `url`.

        Raises:
            ConfigError: The task has no gateway.
        """
        if self.gateway is None:
            raise ConfigError("this task has no gateway: a socket serves only tasks of run_harness")
        async with self.gateway.unix_socket() as path:
            yield path

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

    If the environment's tasks are files, as those of `Terminal` are, they are in its working folder ``/app``
    instead, the prompt is the instruction, and what the program leaves there is graded.

    Attributes:
        command: The program and its arguments, in which ``{prompt}``, ``{url}``, ``{openai_url}``,
            ``{step_url}``, ``{mcp_url}``, ``{model}``, and ``{home}`` are replaced. An argument holds at
            most 128 KiB, and a prompt that begins with ``-`` may be taken for an option; `stdin` has neither
            limit.
        stdin: Text of its standard input, in which the same is replaced.
        variables: Further environment variables, in which the same is replaced.
        files: Texts of files in its home by path, in which the same is replaced.
        install: How to install the program, for the error if it is missing.
        level: Where it runs. "namespace" is a sandbox that has no files of this machine but its programs, and
            no network but the gateway. "process" is the machine itself, so what the model says reaches the
            files and the network of this user. "container" is like "namespace", in a Podman or Docker
            container of an image that has the program. None means "namespace" if it works, else "process".
        image: Name of the image at level "container", with Python 3.8 or newer as ``python3``. None means
            GEM_CORE_SANDBOX_IMAGE.
        engine: Command of the engine at level "container", such as ``"podman --runtime runc"``. None means
            GEM_CORE_SANDBOX_ENGINE, or else podman or docker.
        reads: What it can read at level "namespace" besides the machine's programs, its package, and the
            files that its arguments name.
        folder: Whether it plays tasks of files in its folder. If not, it acts like any other agent.
    """

    command: Sequence[str]
    stdin: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    install: str = ""
    level: str | None = None
    image: str | None = None
    engine: str | None = None
    reads: Sequence[str] = ()
    folder: bool = True

    def __post_init__(self) -> None:
        if self.level not in (None, "namespace", "process", "container"):
            raise ConfigError(
                f"level={self.level!r} of a command: expected 'namespace', 'process', 'container', or None, "
                "which means the first of these that works"
            )
        if self.level != "container" and (self.image or self.engine):
            raise ConfigError("image and engine of a command need level='container'")
        if self.level == "container" and self.reads:
            raise ConfigError("reads has no effect at level='container'; copy the files into the image")

    def obstacle(self) -> str:
        """Return why the program does not run in a sandbox; empty if it does."""
        if self.level != "container":
            return "its level is 'process'" if self.level == "process" else box_obstacle()
        try:
            require_image(self._container(), self.command[0])
        except (MissingDependency, SandboxError) as error:
            return str(error)
        return ""

    def require_level(self) -> None:
        """Check that the level works, which may take seconds the first time.

        Raises:
            SandboxError: It does not work on this machine.
            MissingDependency: The image has no such program.
        """
        if self.level == "container":
            require_image(self._container(), self.command[0])
        elif self.level == "namespace" and (obstacle := self.obstacle()):
            raise SandboxError(f"level 'namespace' of {self.command[0]!r} does not work: {obstacle}")

    def require_program(self, name: str) -> None:
        """Check that the program can be found, and that its level works.

        Args:
            name: Name of the harness, for the message.

        Raises:
            MissingDependency: It is not on the PATH, or not in the image.
            SandboxError: The level does not work on this machine.
        """
        self.require_level()
        if self.level != "container" and shutil.which(self.command[0]) is None:
            how = f": {self.install}" if self.install else ""
            raise MissingDependency(
                f"harness {name!r} needs the program {self.command[0]!r}, which is not on the PATH{how}"
            )

    def _container(self) -> Container:
        return Container(image=self.image, engine=self.engine)

    async def __call__(self, task: AgentTask) -> None:
        """Run the program.

        Raises:
            HarnessFailed: It ended with another exit code than 0; the error has the end of its output.
        """
        await in_thread(self.require_level)
        contained = self.level == "container"
        obstacle = "" if contained else await in_thread(self.obstacle)
        if obstacle and self.level is None:
            _warn_once(obstacle)
        boxed = not obstacle
        home = CONTAINER_HOME if contained else "/home" if boxed else "."
        fill = _filler(task, home)
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ and not contained}
        command = [fill(part) for part in self.command]
        variables = kept | task.variables() | {name: fill(value) for name, value in self.variables.items()}
        files = {path: fill(text) for path, text in self.files.items()}
        if not boxed:
            await run_command(command, variables, files, fill(self.stdin))
            return
        texts = {f"{home[1:]}/{path}": File(text.encode("utf-8", "replace")) for path, text in files.items()}
        given: dict[str, Any] = {
            "files": texts | {f"app/{path}": file for path, file in (task.files or {}).items()},
            "stdin": fill(self.stdin),
            "port": task.gateway.port if task.gateway else 0,
            "folder": home if task.files is None else "/app",
            "grace": GRACE,
        }
        box: Box | ContainerBox
        async with contextlib.AsyncExitStack() as stack:
            if contained:
                socket = await stack.enter_async_context(task.unix_socket()) if task.gateway else None
                box = ContainerBox(command, variables, container=self._container(), socket=socket, **given)
                await stack.enter_async_context(box)
            else:
                box = await stack.enter_async_context(Box(command, variables, reads=self.reads, **given))
                await stack.enter_async_context(_serving(task, box))
            try:
                ended = await box.wait()
            except asyncio.CancelledError:
                box.end()
                task.hand_in((await box.wait()).files)
                raise
            task.hand_in(ended.files)
        check_status(self.command[0], ended.status, ended.output)


@contextlib.asynccontextmanager
async def _serving(task: AgentTask, box: Box) -> AsyncIterator[None]:
    if task.gateway is None:
        box.listener.close()  # so that a call fails and does not wait
        yield
        return
    async with task.gateway.serving(box.listener):
        yield


@functools.cache
def _warn_once(obstacle: str) -> None:
    logger.warning(
        "agents run on this machine itself, because level 'namespace' does not work: %s. What the model says "
        "reaches the files and the network of this user",
        obstacle,
    )


def _filler(task: AgentTask, home: str) -> Callable[[str], str]:
    values = {
        "{home}": home,
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
    entry_point: Any = harnesses.get(harness) if harness in harnesses.names() else None
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
        known = ", ".join(harnesses.names()) or "none"
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
