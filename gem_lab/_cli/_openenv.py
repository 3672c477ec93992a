"""`gem-core serve openenv`: serve environments over OpenEnv's protocol."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal

import gem_core
from gem_core.errors import ConfigError
from gem_lab._cli import _console
from gem_lab._cli._arguments import (
    add_access_arguments,
    add_env_arguments,
    add_option_flags,
    build_env,
    given_options,
    parse_env,
    positive_float,
    whole_number,
)

TOKEN_VARIABLE = "GEM_CORE_OPENENV_TOKEN"


def add_parser(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``serve openenv``."""
    from gem_bridges.openenv._served import ServerLimits
    from gem_core.rollout import RolloutOptions

    parser = kinds.add_parser(
        "openenv",
        help="serve environments over OpenEnv's protocol",
        description="Serve environments over OpenEnv's WebSocket protocol. With one environment, clients use "
        "the address of the server; with several, http://HOST:PORT/ID. The first Ctrl-C or SIGTERM lets "
        "running episodes finish; the second one stops the server immediately.",
    )
    parser.add_argument(
        "ids", metavar="ID", nargs="+", help="environments, or 'ID(key=value)'; `gem-core envs` lists all"
    )
    add_access_arguments(parser, TOKEN_VARIABLE)
    parser.add_argument(
        "--port", type=whole_number(0, 65535), default=8000, help="port; 0 for any free port (default 8000)"
    )
    parser.add_argument(
        "--workers", type=whole_number(0), metavar="N",
        help="worker processes per environment (default: one per core for environments that compute, else 0)",
    )  # fmt: skip
    parser.add_argument(
        "--ray", action="store_true",
        help="run the episodes in --workers actors (default: one per CPU) of the Ray cluster at "
        "$RAY_ADDRESS, or else of a running or new cluster on this machine",
    )  # fmt: skip
    parser.add_argument(
        "--call-timeout", type=positive_float, default=300.0, metavar="SECONDS",
        help="time limit for a reset or step that runs outside the event loop (default 300)",
    )  # fmt: skip
    add_option_flags(parser, RolloutOptions, "env_threads")
    add_option_flags(parser, ServerLimits)
    access = parser.add_argument_group("encryption")
    access.add_argument("--tls-cert", metavar="FILE", help="certificate chain (PEM), for https and wss")
    access.add_argument("--tls-key", metavar="FILE", help="private key (PEM), if not in the same file")
    parser.add_argument(
        "--package", metavar="FOLDER",
        help="write an OpenEnv package that serves the environment, instead of serving it",
    )  # fmt: skip
    add_env_arguments(parser)
    parser.set_defaults(serve=serve_openenv)


def serve_openenv(args: argparse.Namespace) -> int:
    """Serve until a signal."""
    if args.package:
        return _write_package(args)
    from gem_bridges.openenv import OpenEnvServer
    from gem_bridges.openenv._served import ServerLimits
    from gem_bridges.openenv._server import serve_env
    from gem_core._util.threads import set_env_threads
    from gem_envs.serving import Access
    from gem_envs.serving._run import read_token, run_loop, tls_context

    if args.tls_key and not args.tls_cert:
        raise ConfigError("--tls-key needs --tls-cert")
    token = read_token(args.token_file, TOKEN_VARIABLE)
    Access.for_address(args.host, token, args.allow_host, args.public)  # report a mistake early
    tls = tls_context(args.tls_cert, args.tls_key) if args.tls_cert else None
    if args.env_threads is not None:
        set_env_threads(args.env_threads)
    limits = ServerLimits(**given_options(args, ServerLimits))
    if args.ray:
        _connect_to_ray()
    envs = []
    for text in args.ids:
        id, kwargs, wrappers = parse_env(text, args.kwargs, args.wrappers)
        build_env(id, kwargs, wrappers).close()  # report wrong arguments early
        envs.append(
            serve_env(
                id, kwargs, wrappers, workers=args.workers, call_timeout=args.call_timeout, ray=args.ray
            )
        )
    _allow_many_files()

    async def serve_openenv() -> None:
        async with OpenEnvServer(envs, limits, token, gem_core.__version__) as server:
            await server.listen(args.host, args.port, tls, args.allow_host, args.public)
            host = f"[{args.host}]" if ":" in args.host else args.host
            url = f"{'https' if tls else 'http'}://{host}:{server.port}"
            for name in server.names():
                _console.print_text(f"{name} at {url}{f'/{name}' if len(envs) > 1 else ''}")
            _drain_at_signals(server)
            await server.wait_closed()

    run_loop(serve_openenv())
    return 0


def _connect_to_ray() -> None:
    from gem_core._workers.ray_actors import import_ray

    ray = import_ray()
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False)


def _write_package(args: argparse.Namespace) -> int:
    from gem_bridges.openenv._package import write_package

    id, kwargs, wrappers = parse_env(args.ids[0], args.kwargs, args.wrappers)
    if len(args.ids) > 1 or wrappers:
        raise ConfigError(
            f"--package takes one environment without wrappers, not {' '.join(args.ids)}"
            + (f" with the wrappers {wrappers!r}" if wrappers else "")
        )
    build_env(id, kwargs).close()
    for path in write_package(id, args.package, kwargs):
        _console.print_text(str(path))
    return 0


def _drain_at_signals(server: object) -> None:
    from gem_bridges.openenv import OpenEnvServer

    assert isinstance(server, OpenEnvServer)
    tasks: list[asyncio.Future[None]] = []

    def stop() -> None:
        if not tasks:
            _console.note("shutting down; running episodes may finish; a second signal stops them")
        tasks.append(asyncio.ensure_future(server.close() if tasks else server.drain()))

    for name in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # on Windows, Ctrl-C interrupts instead
            server.loop.add_signal_handler(name, stop)


def _allow_many_files() -> None:
    """Raise the limit on open files, because every session needs one."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on Windows
        import resource

        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
