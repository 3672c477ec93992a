"""`gem-core serve`: a search or an environment as a server."""

from __future__ import annotations

import argparse
import signal
from typing import Any

from gem_core.cli import _console
from gem_core.cli._arguments import (
    add_env_arguments,
    build_env,
    command_parser,
    parse_env,
    positive_int,
)
from gem_core.errors import ConfigError

HELP = "address to listen on (default 127.0.0.1: this machine only)"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = command_parser(
        commands,
        "serve",
        "serve a search over HTTP, or an environment over MCP",
        examples=[
            "search --corpus multihop --port 8000",
            "search --corpus ~/wikipedia.jsonl",
            "mcp game:GuessTheNumber-v0-easy",
            "mcp game:GuessTheNumber-v0-easy --port 8001",
        ],
        details="A server ends with Ctrl-C or SIGTERM.",
    )
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)

    search = kinds.add_parser("search", help="a search that speaks the retrieval protocol of Search-R1")
    search.add_argument("--corpus", default="multihop", help="file, folder or name (default: multihop)")
    search.add_argument(
        "--index", metavar="FOLDER", help="an index that was built before, instead of a corpus"
    )
    search.add_argument("--backend", choices=("bm25", "dense"), default="bm25", help="default: bm25")
    search.add_argument("--model", help="of the dense search: a name of the Hugging Face hub or a folder")
    search.add_argument("--topk", type=positive_int, default=3, help="documents where a request does not say")
    search.add_argument("--cache", type=int, default=0, metavar="N", help="results to keep (default 0)")
    search.add_argument("--host", default="127.0.0.1", help=HELP)
    search.add_argument("--port", type=port, default=8000, help="default 8000; 0 for any that is free")
    search.set_defaults(run=run_search)

    mcp = kinds.add_parser("mcp", help="an environment as an MCP server")
    mcp.add_argument("id", metavar="ID", help="environment, or 'ID(key=value)'; `gem-core envs` lists all")
    mcp.add_argument("--host", default="127.0.0.1", help=HELP)
    mcp.add_argument(
        "--port", type=port, help="serve over HTTP on this port (default: over stdin and stdout)"
    )
    add_env_arguments(mcp)
    mcp.set_defaults(run=run_mcp)


def run_search(args: argparse.Namespace) -> int:
    """Open the search and serve it."""
    from gem_core.tools.search import open_searcher
    from gem_core.tools.search.server import SearchServer

    options: dict[str, Any] = {"cache": args.cache}
    if args.model:
        options["model"] = args.model
    if args.index is not None:
        from gem_core.tools.search.bm25 import Bm25Index

        if args.backend != "bm25":
            raise ConfigError("--index is for a BM25 index; give --corpus for a dense one")
        searcher: Any = Bm25Index(args.index, **options)
    else:
        _console.note(f"opening {args.corpus} (building its index, when this is the first time) ...")
        searcher = open_searcher(args.backend, corpus=args.corpus, **options)
    server = SearchServer(searcher, args.host, args.port, args.topk)
    print(f"{len(searcher):,} documents at {server.url}/retrieve", flush=True)
    _end_like_ctrl_c()
    try:
        server.serve()
    finally:
        server.close()
        searcher.close()
    return 0


def run_mcp(args: argparse.Namespace) -> int:
    """Serve the environment."""
    from gem_core.registration import spec

    id, kwargs = parse_env(args.id, args.kwargs)
    build_env(id, kwargs, args.wrappers).close()  # a wrong argument shows here
    from gem_core.tools.mcp import sdk
    from gem_core.tools.mcp.env_server import env_server

    server, episodes = env_server(lambda: build_env(id, kwargs, args.wrappers), id, spec(id).description)
    try:
        if args.port is None:
            server.run("stdio")
        else:
            _console.note(f"{args.id} at http://{args.host}:{args.port}/mcp")
            sdk.run_http(server, args.host, args.port)
    finally:
        episodes.close()
    return 0


def port(text: str) -> int:
    """Argparse type: a TCP port."""
    value = int(text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, not {text}")
    return value


def _end_like_ctrl_c() -> None:
    """Have SIGTERM close the server, too."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
