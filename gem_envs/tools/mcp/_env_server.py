"""An environment as an MCP server, for external agents.

The tool ``reset`` starts an episode and returns its id; ``step`` takes one response. Both return a JSON
object with ``episode``, ``observation``, and after a step ``reward``, ``terminated``, ``truncated``, and
parts of the info dict. Episodes run concurrently; a client may play several.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from gem_core import Env, Info, Observation, render_observation
from gem_core._observations import observation_text
from gem_core._util.messages import error_line
from gem_core._util.owners import calls_of
from gem_core._util.threads import in_thread
from gem_core.errors import ConfigError
from gem_envs._closer import Closer
from gem_envs.tools.mcp import _sdk
from gem_envs.tools.mcp._sdk import Context

ANYONE = ""
"""Owner of the episodes of clients that cannot be told apart."""
_INFO_KEYS = ("success", "invalid", "error")
"""Keys of the info dict that a step returns."""


class _Episode:
    """An episode from the moment that it takes a place.

    Attributes:
        owner: Client that plays it.
        env: Its environment; None before it was built and after the end.
        busy: Whether a reset or a step runs.
        ready: Whether it was reset.
        dropped: Whether the server has given it up; `env` is closed when nothing uses it any more.
        played_at: Time of the last call, in seconds of `time.monotonic`.
    """

    def __init__(self, owner: str, env: Env | None) -> None:
        self.owner, self.env = owner, env
        self.lock = asyncio.Lock()
        self.busy = self.ready = self.dropped = False
        self.played_at = time.monotonic()

    def build(self, make: Callable[[], Env]) -> None:
        """Build the environment, in a thread. It belongs to the episode even if nobody waits for it."""
        self.env = make()

    def close(self) -> None:
        """Close the environment."""
        env, self.env = self.env, None
        if env is not None:
            env.close()


class ServedEpisodes:
    """The episodes that a server plays.

    A client that has too many episodes loses the one that it has not played for the longest time, and never
    one of another client. Clients of the stateless protocol cannot be told apart, so they lose none: a new
    episode is refused until one ends or has been idle for too long.

    An episode whose step fails or is canceled has ended, because the state of its environment is unknown.
    Environments are closed in threads, once the calls that use them have returned.

    Args:
        make: Function that creates an environment.
        most: Maximum number of concurrent episodes of one client, including those that are starting.
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
        self._closer = Closer()
        self._closed = False

    async def reset(self, seed: int | None, index: int | None, owner: str = ANYONE) -> dict[str, Any]:
        """Start an episode.

        Args:
            seed: Seed; None draws one.
            index: Item of a dataset; None means no particular one.
            owner: Client that plays it; `ANYONE` for clients that cannot be told apart.

        Raises:
            ConfigError: The server plays too many episodes.
        """
        name = self._take_place(owner)
        episode = self._running[name]
        options: Any = None if index is None else {"index": index}
        async with self._using(name, episode):
            if episode.env is None:
                await in_thread(episode.build, self._make)
            assert episode.env is not None
            observation, info = await episode.env.areset(
                secrets.randbelow(2**31) if seed is None else seed, options=options
            )
            answer = {"episode": name, "observation": _shown(observation, info)}
        episode.ready = True
        return answer

    async def step(self, name: str, action: str) -> dict[str, Any]:
        """Take one response.

        Raises:
            ConfigError: The episode is unknown or has ended.
        """
        episode = self._running.get(name)
        if episode is None or not episode.ready:
            raise ConfigError(
                f"there is no episode {name[:80]!r}: it has ended, or was never started; call reset"
            )
        self._running.move_to_end(name)
        self._owned[episode.owner].move_to_end(name)
        episode.played_at = time.monotonic()
        async with self._using(name, episode):
            assert episode.env is not None
            observation, reward, terminated, truncated, info = await episode.env.astep(action)
            shown, values = _shown(observation, info), dict(info)
            if (terminated or truncated) and not episode.dropped:
                self._idle.append(episode.env)
                episode.env = None
                self._remove(name)
        return {
            "episode": name,
            "observation": shown,
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            **{key: values[key] for key in _INFO_KEYS if values.get(key) is not None},
        }

    @contextlib.asynccontextmanager
    async def _using(self, name: str, episode: _Episode) -> AsyncIterator[None]:
        """Use an environment: one call at a time, and the episode ends if the call fails or is canceled."""
        async with episode.lock:
            if episode.dropped:
                raise ConfigError(f"the episode {name!r} has ended; call reset")
            episode.busy = True
            try:
                with calls_of(episode):
                    yield
            except BaseException:
                if name in self._running:
                    self._remove(name)
                raise
            finally:
                self._end_use(episode)

    def _end_use(self, episode: _Episode) -> None:
        episode.busy = False
        if episode.dropped:
            self._closer.start(episode.close, owner=episode)

    def _take_place(self, owner: str) -> str:
        """Enter a new episode, for which others may have to make room; return its name."""
        if self._closed:
            raise ConfigError("the server is shutting down")
        now = time.monotonic()
        for name, episode in list(self._running.items()):
            if now - episode.played_at < self._idle_seconds:
                break
            if not episode.busy:
                self._drop(name)
        while True:
            own = self._owned.get(owner) or OrderedDict[str, None]()
            if len(own) < self._most and len(self._running) < self._total:
                break
            oldest = next((name for name in own if self._running[name].ready), None)
            if owner == ANYONE or oldest is None:
                raise ConfigError(
                    f"the server plays {len(self._running)} episodes, {len(own)} of them for this client, "
                    "the maximum: finish one, or try again later"
                )
            self._drop(oldest)
        name = secrets.token_hex(16)
        self._running[name] = _Episode(owner, self._idle.pop() if self._idle else None)
        self._owned.setdefault(owner, OrderedDict())[name] = None
        return name

    def _drop(self, name: str) -> None:
        """End an episode, and close its environment as soon as no call uses it."""
        episode = self._running[name]
        self._remove(name)
        if not episode.busy:
            self._closer.start(episode.close, owner=episode)

    def _remove(self, name: str) -> None:
        """Free the place of an episode."""
        episode = self._running.pop(name)
        episode.dropped = True
        own = self._owned[episode.owner]
        del own[name]
        if not own:
            del self._owned[episode.owner]

    def close(self) -> None:
        """Close all environments, after the server has ended; wait for a limited time until that is done."""
        self._closed = True
        for name, episode in list(self._running.items()):
            self._remove(name)
            self._closer.start(episode.close, owner=episode)
        while self._idle:
            self._closer.start(self._idle.pop().close)
        self._closer.wait()


def env_server(make: Callable[[], Env], name: str, description: str = "") -> tuple[Any, ServedEpisodes]:
    """Return a server for an environment, and its episodes, which the caller closes after the server.

    Args:
        make: Function that creates an environment; called once per concurrent episode.
        name: Name of the environment.
        description: Description of the environment.
    """
    about = f"{name}: {description}" if description else name
    server = _sdk.Server(
        f"gem-core {name}",
        instructions=f"This server plays {about}. Call reset to start an episode, then step with one whole "
        "response at a time until terminated or truncated is true.",
        log_level="WARNING",
    )
    episodes = ServedEpisodes(make)

    @_sdk.tool(server)
    async def reset(context: Context, seed: int | None = None, index: int | None = None) -> str:
        """Start an episode. The same seed gives the same one; index is an item of a dataset."""
        owner = _sdk.session_of(context) if _sdk.over_http(context) else "pipes"
        return await _as_json(episodes.reset(seed, index, owner))

    @_sdk.tool(server)
    async def step(episode: str, action: str) -> str:
        """Give one whole response to the last observation of an episode."""
        return await _as_json(episodes.step(episode, action))

    return server, episodes


async def _as_json(work: Awaitable[dict[str, Any]]) -> str:
    """Return the answer as JSON text; errors are reported to the client."""
    try:
        return json.dumps(await work, ensure_ascii=False)
    except Exception as error:
        raise _sdk.ToolError(error_line(error)) from error


def _shown(observation: Observation, info: Info) -> str:
    return observation_text(render_observation(observation, info))
