"""`OpenEnvServer`: environments behind OpenEnv's protocol, one WebSocket per session, no web framework.

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
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from gem_core._util.checks import check_int, check_number
from gem_core.bridges.openenv import frames, wire
from gem_core.bridges.openenv.connection import Acceptor, Connection, decode_body
from gem_core.bridges.openenv.hosts import Host, local_host
from gem_core.bridges.openenv.processes import ProcessHost
from gem_core.bridges.openenv.served import ServedEnv, ServerLimits
from gem_core.bridges.openenv.sessions import no_mcp
from gem_core.core import Env, require_one_agent
from gem_core.errors import CallOrderError, ConfigError
from gem_core.registration import WrapperLike, make, spec
from gem_core.spec import EnvSpec

logger = logging.getLogger(__name__)

T = TypeVar("T")


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
    host: Host
    if ray or workers:
        if env.spec is None or callable(wrappers):
            raise ConfigError(f"{id}: workers need wrappers by name; a callable runs only with workers=0")
        host = worker_host(env.spec, workers, call_timeout, ray)
    else:
        host = local_host(build, id, env, call_timeout)
    return ServedEnv(id, spec(id).description or id, host)


def worker_host(env_spec: EnvSpec, workers: int | None, call_timeout: float | None, ray: bool) -> Host:
    """Return a host whose sessions run in Ray actors or in worker processes; see `serve_env`."""
    if not ray:
        return ProcessHost(env_spec, workers or 1, call_timeout)
    from gem_core.bridges.openenv.ray_actors import RayHost

    return RayHost(env_spec, workers, call_timeout)


class OpenEnvServer(Acceptor):
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

    def __init__(
        self,
        envs: Sequence[ServedEnv],
        limits: ServerLimits | None = None,
        token: str | None = None,
        version: str = "0",
    ) -> None:
        if not envs:
            raise ConfigError("a server needs at least one environment")
        super().__init__(limits or ServerLimits(), token)
        self.envs = {env.name: env for env in envs}
        if len(self.envs) < len(envs):
            raise ConfigError("an environment is listed twice; list each id once, because ids are addresses")
        self.port = 0
        self._version = version
        self._listener: asyncio.Server | None = None
        self._closed: asyncio.Event
        self._sweeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> OpenEnvServer:
        self.loop = asyncio.get_running_loop()
        self._closed = asyncio.Event()
        for env in self.envs.values():
            await env.host.start()
        self._sweeper = asyncio.ensure_future(self._sweep())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def listen(self, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        """Accept connections.

        Args:
            host: Address to listen on; the default accepts only callers on this machine.
            port: Port to listen on; 0 picks a free one.
            tls: Certificate and key; None means no encryption.

        Raises:
            OSError: The port is taken.
        """
        if self._listener is not None:
            raise CallOrderError("the server is listening already")
        self._listener = await self.loop.create_server(
            lambda: Connection(self), host, port, ssl=tls, backlog=4096, reuse_address=True
        )
        self.port = self._listener.sockets[0].getsockname()[1]

    async def drain(self) -> None:
        """Shut down gracefully: let running episodes end within the drain timeout, then `close`.

        Sessions without a running episode end at once, and new ones are rejected.
        """
        self.draining = True
        end = self.loop.time() + self.limits.drain_timeout
        for connection in list(self.connections):
            if connection.seat is not None and not connection.running:
                connection.end(frames.GOING_AWAY, "the server shuts down")
        while self.sessions and self.loop.time() < end:
            await asyncio.sleep(0.05)
        if self.sessions:
            logger.warning("%d episodes were cut, because drain_timeout has passed", self.sessions)
        await self.close()

    async def close(self) -> None:
        """End every session and free all resources. May be called more than once."""
        if self._closed.is_set():
            return
        self.draining = True
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            connection.end(frames.GOING_AWAY, "the server shuts down")
        if self._sweeper is not None:
            self._sweeper.cancel()
        await asyncio.sleep(0)  # so that the last connections can close
        for env in self.envs.values():
            await env.host.stop()
        self._closed.set()

    async def wait_closed(self) -> None:
        """Wait until `close` has finished."""
        await self._closed.wait()

    async def _sweep(self) -> None:
        """End idle connections."""
        timeout = self.limits.idle_timeout
        if timeout is None:
            return
        while True:
            await asyncio.sleep(min(timeout / 4, 5.0))
            now = time.monotonic()
            for connection in list(self.connections):
                if now - connection.active_at > timeout and not connection.busy:
                    self.metrics.ends["idle"] += 1
                    connection.end(frames.GOING_AWAY, f"no message for {timeout:g} s")

    # -- HTTP ---------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return list(self.envs)

    def find(self, name: str) -> ServedEnv | None:
        if not name and len(self.envs) == 1:
            return next(iter(self.envs.values()))
        return self.envs.get(name)

    def respond(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        path = path.rstrip("/")
        read = method in ("GET", "HEAD")
        if read and path.endswith("/health"):
            return (503, {"status": "draining"}) if self.draining else (200, {"status": "healthy"})
        if read and path == "/metrics":
            return 200, self.metrics.render(self._gauges())
        name, _, last = path.rpartition("/")
        env = self.find(name.strip("/"))
        if env is None:
            addresses = {id: "/" + quote(id, safe=":") for id in self.envs}
            if read and not path:
                return 200, {"environments": addresses}
            return 404, {"detail": f"no such page; environments: {', '.join(addresses.values())}"}
        page = self._page(env, last) if read else None
        if page is not None:
            return 200, page
        if method == "POST" and last == "mcp":
            request = decode_body(body)
            return 200, no_mcp(request if isinstance(request, dict) else {})
        if method == "POST" and last in ("reset", "step"):
            return 409, {"detail": "plain HTTP has no session; open a WebSocket at /ws"}
        return 404, {"detail": "no such page"}

    def _gauges(self) -> dict[str, tuple[str, float]]:
        running = sum(connection.running for connection in self.connections)
        lost = sum(env.host.lost_workers for env in self.envs.values())
        return {
            "sessions": ("Open sessions.", self.sessions),
            "sessions_limit": ("Maximum number of sessions.", self.limits.max_sessions),
            "episodes_running": ("Running episodes.", running),
            "draining": ("1 while the server shuts down.", self.draining),
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
            return wire.SCHEMAS
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


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine like `asyncio.run`, on uvloop if it is installed.

    uvloop takes less CPU time per message than asyncio's own event loop.
    """
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    result: T = uvloop.run(main)
    return result


def tls_context(certificate: str, key: str | None = None) -> ssl.SSLContext:
    """Return the TLS settings of a server.

    Args:
        certificate: PEM file with the certificate chain.
        key: PEM file with the private key; None if it is in the same file.

    Raises:
        ConfigError: A file is missing or does not hold a certificate or key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot load the certificate {certificate!r} and its key: {error}") from error
    return context
