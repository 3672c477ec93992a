"""An environment as an MCP server, for external agents.

The tool ``reset`` starts an episode and returns its id; ``step`` takes one response. Both return a JSON
object with ``episode``, ``observation``, and after a step ``reward``, ``terminated``, ``truncated``, and
parts of the info dict. Episodes run concurrently; a client may play several.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from gem_core._util.messages import error_line
from gem_core.core import Env, Info, Observation
from gem_core.errors import ConfigError
from gem_core.observations import observation_text, render_observation
from gem_core.tools.mcp import sdk

_INFO_KEYS = ("success", "invalid", "error")
"""Keys of the info dict that a step returns."""


class _Episode:
    def __init__(self, env: Env) -> None:
        self.env = env
        self.lock = asyncio.Lock()
        self.over = False


class Episodes:
    """The episodes that a server plays.

    Args:
        make: Function that creates an environment.
        most: Maximum number of concurrent episodes; a new one replaces the least recently played.
    """

    def __init__(self, make: Callable[[], Env], most: int = 256) -> None:
        self._make, self._most = make, most
        self._running: OrderedDict[str, _Episode] = OrderedDict()
        self._idle: list[Env] = []

    async def reset(self, seed: int | None, index: int | None) -> dict[str, Any]:
        """Start an episode."""
        while len(self._running) >= self._most:
            self._running.popitem(last=False)[1].env.close()
        env = self._idle.pop() if self._idle else self._make()
        try:
            options: Any = None if index is None else {"index": index}
            observation, info = await env.areset(
                secrets.randbelow(2**31) if seed is None else seed, options=options
            )
        except BaseException:
            env.close()
            raise
        name = secrets.token_hex(8)
        self._running[name] = _Episode(env)
        return {"episode": name, "observation": _shown(observation, info)}

    async def step(self, name: str, action: str) -> dict[str, Any]:
        """Take one response.

        Raises:
            ConfigError: The episode is unknown or has ended.
        """
        episode = self._running.get(name)
        if episode is None:
            raise ConfigError(
                f"there is no episode {name[:80]!r}: it has ended, or was never started; call reset"
            )
        self._running.move_to_end(name)
        async with episode.lock:
            if episode.over:
                raise ConfigError(f"the episode {name!r} has ended; call reset")
            observation, reward, terminated, truncated, info = await episode.env.astep(action)
            if terminated or truncated:
                episode.over = True
                if (
                    self._running.pop(name, None) is not None
                ):  # otherwise the episode was evicted and its environment is closed
                    self._idle.append(episode.env)
        values: dict[str, Any] = dict(info)
        return {
            "episode": name,
            "observation": _shown(observation, info),
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            **{key: values[key] for key in _INFO_KEYS if values.get(key) is not None},
        }

    def close(self) -> None:
        """Close all environments."""
        for episode in self._running.values():
            episode.env.close()
        for env in self._idle:
            env.close()
        self._running.clear()
        self._idle.clear()


def env_server(make: Callable[[], Env], name: str, description: str = "") -> tuple[Any, Episodes]:
    """Return a server for an environment, and its episodes, which the caller closes after the server.

    Args:
        make: Function that creates an environment; called once per concurrent episode.
        name: Name of the environment.
        description: Description of the environment.
    """
    about = f"{name}: {description}" if description else name
    server = sdk.Server(
        f"gem-core {name}",
        instructions=f"This server plays {about}. Call reset to start an episode, then step with one whole "
        "response at a time until terminated or truncated is true.",
        log_level="WARNING",
    )
    episodes = Episodes(make)

    @sdk.tool(server)
    async def reset(seed: int | None = None, index: int | None = None) -> str:
        """Start an episode. The same seed gives the same one; index is an item of a dataset."""
        return await _as_json(episodes.reset(seed, index))

    @sdk.tool(server)
    async def step(episode: str, action: str) -> str:
        """Give one whole response to the last observation of an episode."""
        return await _as_json(episodes.step(episode, action))

    return server, episodes


async def _as_json(work: Awaitable[dict[str, Any]]) -> str:
    """Return the answer as JSON text; errors are reported to the client."""
    try:
        return json.dumps(await work, ensure_ascii=False)
    except Exception as error:
        raise sdk.ToolError(error_line(error)) from error


def _shown(observation: Observation, info: Info) -> str:
    return observation_text(render_observation(observation, info))
