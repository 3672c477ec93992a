"""`OpenEnvServer`: environments behind OpenEnv's protocol, one WebSocket per session.

    async with OpenEnvServer([serve_env("game:GuessTheNumber-v0-easy")]) as server:
        await server.listen(port=8000)
        await server.wait_closed()

`serve_env` determines where the episodes of an environment run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from gem_bridges.openenv import _wire
from gem_bridges.openenv._connection import CLOSE_SECONDS, Connection, ServerState, end_socket
from gem_bridges.openenv._hosts import SessionHost, local_host
from gem_bridges.openenv._served import ServedEnv, ServerLimits
from gem_bridges.openenv._sessions import no_mcp
from gem_bridges.openenv._workers import WorkerHost
from gem_core import Env, make, spec
from gem_core._core import require_one_agent
from gem_core._registration import WrapperLike
from gem_core._util.checks import check_int, check_number
from gem_core._util.foreign_json import read_json
from gem_core._workers import EnvRecipe
from gem_core.errors import CallOrderError, ConfigError
from gem_envs.serving import Access, HttpServer, json_response
from gem_envs.serving._access import RequestRefused
from gem_envs.serving._guard import ConnectionLimits
from gem_envs.serving._http import WSCloseCode, read_body, web

logger = logging.getLogger(__name__)

MAX_BODY = 64 << 10
"""Maximum size in bytes of the body of an HTTP request."""
_SHUTDOWN = "the server shuts down"


def serve_env(
    id: str,
    kwargs: Mapping[str, Any] | None = None,
    wrappers: WrapperLike | Sequence[WrapperLike] = (),
    *,
    workers: int | None = None,
    call_timeout: float | None = 300.0,
    ray: bool = False,
) -> ServedEnv:
    """Return an environment for a server; its sessions run where `Env.blocking` says, or in Ray actors.

    Args:
        id: Registered id.
        kwargs: Arguments of its constructor.
        wrappers: Wrappers, as in `gem_core.make`.
        workers: Number of worker processes; 0 for none. None means one per core if the environment computes
            (``blocking="cpu"``), else none. With `ray`, number of actors; None means one per CPU of the
            cluster.
        call_timeout: Maximum number of seconds for a reset or a step; None means no limit. It does not apply
            to environments that run on the event loop.
        ray: Whether the sessions run in actors of the Ray cluster to which this process is connected.

    Raises:
        ConfigError: The environment has several agents, workers cannot build it, or Ray is not running.
        GemError: The environment cannot be made; see `gem_core.make`.
    """
    check_int("workers", workers, 1 if ray else 0, optional=True)
    check_number("call_timeout", call_timeout, above=0, optional=True)

    def build() -> Env:
        return make(id, wrappers=wrappers, **(kwargs or {}))

    with contextlib.closing(build()) as env:
        require_one_agent(env, "the OpenEnv server")
    if workers is None and not ray:
        workers = (os.cpu_count() or 1) if env.blocking == "cpu" else 0
    host: SessionHost
    if ray or workers:
        if env.spec is None or callable(wrappers):
            raise ConfigError(f"{id}: workers need wrappers by name; a callable runs only with workers=0")
        if ray:
            from gem_core._workers.ray_actors import cluster_cpus

            cpus = cluster_cpus()
            host = WorkerHost("ray", EnvRecipe(env.spec), workers or cpus, call_timeout)
        else:
            host = WorkerHost("process", EnvRecipe(env.spec), workers or 1, call_timeout)
    else:
        host = local_host(build, id, env, call_timeout)
    return ServedEnv(id, spec(id).description or id, host)


class OpenEnvServer:
    """Serves environments to OpenEnv's clients and to ``openenv:`` ids.

    With one environment, the server's address is also the environment's address. Each environment also has
    its own address, ``http://HOST:PORT/ID``.

    Args:
        envs: The environments.
        limits: Limits of the server.
        token: Text that clients must send as ``Authorization: Bearer TOKEN``; None admits everyone. Only
            ``/health`` needs no token.
        version: Version to report.

    Attributes:
        port: Port on which the server listens; 0 before `listen`.
    """

    loop: asyncio.AbstractEventLoop

    def __init__(
        self,
        envs: Sequence[ServedEnv],
        limits: ServerLimits | None = None,
        token: str | None = None,
        version: str = "0",
    ) -> None:
        if not envs:
            raise ConfigError("a server needs at least one environment")
        self.limits, self.token = limits or ServerLimits(), token
        self.state = ServerState(self.limits)
        self.envs = {env.name: env for env in envs}
        if len(self.envs) < len(envs):
            raise ConfigError("an environment is listed twice; list each id once, because ids are addresses")
        self.port = 0
        self._version = version
        self._http = HttpServer(self._answer, ConnectionLimits(self.limits.max_sessions + 1024))
        self._closed: asyncio.Event
        self._sweeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> OpenEnvServer:
        self.loop = asyncio.get_running_loop()
        self._closed = asyncio.Event()
        try:
            for env in self.envs.values():
                await env.host.start()
        except BaseException:
            await self._stop_hosts()
            raise
        self._sweeper = asyncio.ensure_future(self._sweep())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def listen(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        hosts: Iterable[str] = (),
        public: bool = False,
    ) -> None:
        """Accept connections.

        Args:
            host: Address to listen on; the default accepts only callers on this machine.
            port: Port to listen on; 0 picks a free one.
            tls: Certificate and key; None means no encryption.
            hosts: Further names, without port, that clients may use for the server; see `Access`.
            public: Whether an address other than loopback may be served without a token.

        Raises:
            ConfigError: The address is not loopback and there is no token.
            OSError: The port is taken.
        """
        if self.port:
            raise CallOrderError("the server is listening already")
        access = Access.for_address(host, self.token, hosts, public)
        self.port = await self._http.listen(access, host, port, tls)

    async def drain(self) -> None:
        """Shut down gracefully: let running episodes end within the drain timeout, then `close`.

        Sessions without a running episode end at once, and new ones are rejected.
        """
        self.state.draining = True
        end = self.loop.time() + self.limits.drain_timeout
        await self._end([session for session in self.state.sessions if not session.running])
        while self.state.sessions and self.loop.time() < end:
            await asyncio.sleep(0.05)
        if self.state.sessions:
            logger.warning("%d episodes were cut, because drain_timeout has passed", len(self.state.sessions))
        await self.close()

    async def close(self) -> None:
        """End every session and free all resources. May be called more than once."""
        if self._closed.is_set():
            return
        self.state.draining = True
        await self._end(list(self.state.sessions))
        await self._http.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        await asyncio.sleep(0)  # so that the last connections can close
        await self._stop_hosts()
        self._closed.set()

    async def _stop_hosts(self) -> None:
        await asyncio.gather(*(env.host.stop() for env in self.envs.values()))

    async def wait_closed(self) -> None:
        """Wait until `close` has finished."""
        await self._closed.wait()

    async def _end(self, sessions: Sequence[Connection], reason: str = _SHUTDOWN) -> None:
        await asyncio.gather(*(session.end(WSCloseCode.GOING_AWAY, reason) for session in sessions))

    async def _sweep(self) -> None:
        """End idle sessions."""
        timeout = self.limits.idle_timeout
        if not timeout:
            return
        while True:
            await asyncio.sleep(min(timeout / 4, 5.0))
            now = time.monotonic()
            idle = [
                session
                for session in self.state.sessions
                if now - session.active_at > timeout and not session.busy
            ]
            self.state.metrics.ends["idle"] += len(idle)
            await self._end(idle, f"no message for {timeout:g} s")

    # -- requests -----------------------------------------------------------------------------

    async def _answer(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        if "websocket" in request.headers.get("Upgrade", "").lower():
            return await self._open(request, path)
        method, path = request.method, path.rstrip("/")
        read = method in ("GET", "HEAD")
        if read and path.endswith("/health"):
            status = "draining" if self.state.draining else "healthy"
            return json_response({"status": status}, 503 if self.state.draining else 200)
        if read and path == "/metrics":
            text = self.state.metrics.render(self._gauges()).encode()
            kind = "text/plain; version=0.0.4; charset=utf-8"
            return web.Response(body=text, headers={"Content-Type": kind})
        name, _, last = path.rpartition("/")
        env = self._find(name.strip("/"))
        if env is None:
            addresses = {id: "/" + quote(id, safe=":") for id in self.envs}
            if read and not path:
                return json_response({"environments": addresses})
            raise RequestRefused(404, f"no such page; environments: {', '.join(addresses.values())}")
        page = self._page(env, last) if read else None
        if page is not None:
            return json_response(page)
        if method == "POST" and last == "mcp":
            body = await read_body(request, min(MAX_BODY, self.limits.max_message))
            return json_response(no_mcp(_decode(body)))
        if method == "POST" and last in ("reset", "step"):
            raise RequestRefused(409, "plain HTTP has no session; open a WebSocket at /ws")
        raise RequestRefused(404, "no such page")

    async def _open(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        """Play a session."""
        state, transport = self.state, request.transport
        name, _, last = path.rstrip("/").rpartition("/")
        env = self._find(name.strip("/"))
        if last != "ws" or env is None:
            raise RequestRefused(404, f"no session at {path[:200]!r}; environments: {', '.join(self.envs)}")
        if self._refuses():
            raise RequestRefused(503, _SHUTDOWN)
        socket = web.WebSocketResponse(
            timeout=CLOSE_SECONDS, autoping=False, compress=False, decode_text=False,
            max_msg_size=self.limits.max_message + 1,
        )  # fmt: skip
        await socket.prepare(request)
        if self._refuses():  # since then
            await end_socket(socket, transport, WSCloseCode.GOING_AWAY, _SHUTDOWN)
        elif len(state.sessions) < self.limits.max_sessions:
            await Connection(state, env, socket, transport).play()
        else:
            state.metrics.events[_wire.CAPACITY_REACHED] += 1  # in the words of OpenEnv's server
            text = f"Server at capacity: {len(state.sessions)} sessions are active, the maximum"
            await socket.send_str(_wire.encode(_wire.error_message(text, _wire.CAPACITY_REACHED)).decode())
            await end_socket(socket, transport, WSCloseCode.TRY_AGAIN_LATER, "at capacity")
        return socket

    def _refuses(self) -> bool:
        return self.state.draining

    def names(self) -> list[str]:
        """Return the ids of the environments."""
        return list(self.envs)

    def _find(self, name: str) -> ServedEnv | None:
        """Return the environment at a path; the path "" belongs to a single environment."""
        if not name and len(self.envs) == 1:
            return next(iter(self.envs.values()))
        return self.envs.get(name)

    def _gauges(self) -> dict[str, tuple[str, float]]:
        running = sum(session.running for session in self.state.sessions)
        lost = sum(env.host.lost_workers for env in self.envs.values())
        return {
            "sessions": ("Open sessions.", len(self.state.sessions)),
            "sessions_limit": ("Maximum number of sessions.", self.limits.max_sessions),
            "connections": ("Open connections.", len(self._http.guard.connections)),
            "episodes_running": ("Running episodes.", running),
            "draining": ("1 while the server shuts down.", self.state.draining),
            "lost_workers": ("Workers that died or were killed.", lost),
        }

    def _page(self, env: ServedEnv, name: str) -> Any:
        """Return one of OpenEnv's pages about an environment; None if there is no such page."""
        if name == "metadata":
            return {
                "name": env.name, "description": env.description, "version": self._version,
                "readme_content": None, "author": None, "documentation_url": None,
            }  # fmt: skip
        if name == "schema":
            return _wire.SCHEMAS
        if name == "state":
            return {"episode_id": None, "step_count": 0, "env_id": env.name}
        if name == "openapi.json":
            return {
                "openapi": "3.1.0",
                "info": {"title": f"OpenEnv environment {env.name}", "version": self._version},
                "paths": _PATHS,
            }
        return None


_METHODS = {"reset": "post", "step": "post", "state": "get", "mcp": "post"}
_METHODS |= dict.fromkeys(("health", "metadata", "schema"), "get")
_PATHS = {
    f"/{page}": {method: {"responses": {"200": {"description": "OK"}}}} for page, method in _METHODS.items()
}


def _decode(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body; an empty one if there is none."""
    try:
        value = read_json(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
