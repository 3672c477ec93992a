"""An environment as an MCP server, for external agents.

The tool ``reset`` starts an episode and returns its id; ``step`` takes one response. Both return a JSON
object with ``episode``, ``observation``, and after a step ``reward``, ``terminated``, ``truncated``, and
parts of the info dict. Episodes run concurrently; a client may play several.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from gem_core._util.messages import error_line
from gem_core.core import Env, Info, Observation
from gem_core.errors import ConfigError
from gem_core.observations import observation_text, render_observation
from gem_core.tools.mcp import sdk
from gem_core.tools.mcp.sdk import Context

ANYONE = ""
"""Owner of the episodes of clients that cannot be told apart."""
_INFO_KEYS = ("success", "invalid", "error")
"""Keys of the info dict that a step returns."""


class _Episode:
    def __init__(self, env: Env, owner: str) -> None:
        self.env, self.owner = env, owner
        self.lock = asyncio.Lock()
        self.over = False
        self.played_at = time.monotonic()


class Episodes:
    """The episodes that a server plays.

    A client that has too many episodes loses the one that it has not played for the longest time, and never
    one of another client. Clients of the stateless protocol cannot be told apart, so they lose none: a new
    episode is refused until one ends or has been idle for too long.

    Args:
        make: Function that creates an environment.
        most: Maximum number of concurrent episodes of one client.
        total: Maximum number of concurrent episodes.
        idle: Number of seconds without a step after which an episode makes room for new ones.
    """

    def __init__(
        self, make: Callable[[], Env], most: int = 256, total: int = 4096, idle: float = 3600.0
    ) -> None:
        self._make, self._most, self._total, self._idle_seconds = make, most, total, idle
        self._running: OrderedDict[str, _Episode] = OrderedDict()  # the last played one is last
        self._owned: dict[str, OrderedDict[str, None]] = {}  # names by owner, in the same order
        self._idle: list[Env] = []

    async def reset(self, seed: int | None, index: int | None, owner: str = ANYONE) -> dict[str, Any]:
        """Start an episode.

        Args:
            seed: Seed; None draws one.
            index: Item of a dataset; None means no particular one.
            owner: Client that plays it; `ANYONE` for clients that cannot be told apart.

        Raises:
            ConfigError: The server plays too many episodes of other clients.
        """
        self._make_room(owner)
        env = self._idle.pop() if self._idle else self._make()
        try:
            options: Any = None if index is None else {"index": index}
            observation, info = await env.areset(
                secrets.randbelow(2**31) if seed is None else seed, options=options
            )
            self._make_room(owner)  # others may have started while it waited
        except BaseException:
            env.close()
            raise
        name = secrets.token_hex(16)
        self._running[name] = _Episode(env, owner)
        self._owned.setdefault(owner, OrderedDict())[name] = None
        return {"episode": name, "observation": _shown(observation, info)}

    def _make_room(self, owner: str) -> None:
        now = time.monotonic()
        while self._running:
            name, oldest = next(iter(self._running.items()))
            if now - oldest.played_at < self._idle_seconds:
                break
            self._remove(name).env.close()
        while True:
            own = self._owned.get(owner) or OrderedDict[str, None]()
            if len(own) < self._most and len(self._running) < self._total:
                return
            if owner == ANYONE or not own:
                raise ConfigError(
                    f"the server plays {len(self._running)} episodes, the maximum: finish one, or try again "
                    "later"
                )
            self._remove(next(iter(own))).env.close()

    def _remove(self, name: str) -> _Episode:
        episode = self._running.pop(name)
        own = self._owned[episode.owner]
        del own[name]
        if not own:
            del self._owned[episode.owner]
        return episode

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
        self._owned[episode.owner].move_to_end(name)
        episode.played_at = time.monotonic()
        async with episode.lock:
            if episode.over:
                raise ConfigError(f"the episode {name!r} has ended; call reset")
            observation, reward, terminated, truncated, info = await episode.env.astep(action)
            if terminated or truncated:
                episode.over = True
                if name in self._running:  # otherwise it was removed, and its environment is closed
                    self._idle.append(self._remove(name).env)
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
        self._owned.clear()
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
    async def reset(context: Context, seed: int | None = None, index: int | None = None) -> str:
        """Start an episode. The same seed gives the same one; index is an item of a dataset."""
        owner = sdk.session_of(context) if sdk.over_http(context) else "pipes"
        return await _as_json(episodes.reset(seed, index, owner))

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
