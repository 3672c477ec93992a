"""`gem-core serve`: serve a search or environments."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

from gem_core.errors import ConfigError
from gem_envs.tools.mcp._config import TOKEN_VARIABLE
from gem_lab._cli import _console, _openenv
from gem_lab._cli._arguments import (
    CliCommand,
    add_access_arguments,
    add_env_arguments,
    build_env,
    parse_env,
    positive_int,
    whole_number,
)

SEARCH_TOKEN = "GEM_CORE_SEARCH_TOKEN"
"""Environment variable with the token of a search server."""

COMMAND = CliCommand(
    "serve a search engine over HTTP, or environments over OpenEnv's protocol or MCP",
    examples=[
        "search --corpus multihop --port 8000",
        "search --corpus ~/wikipedia.jsonl",
        "openenv game:GuessTheNumber-v0-easy --port 8000",
        "mcp game:GuessTheNumber-v0-easy",
        "mcp game:GuessTheNumber-v0-easy --port 8001",
    ],
    details="Stop a server with Ctrl-C or SIGTERM.",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)

    search = kinds.add_parser("search", help="serve a search engine over the retrieval protocol of Search-R1")
    search.add_argument("--corpus", default="multihop", help="file, folder, or name (default: multihop)")
    search.add_argument("--index", metavar="FOLDER", help="existing BM25 index to use instead of a corpus")
    search.add_argument(
        "--backend", choices=("bm25", "dense"), default="bm25", help="search method (default: bm25)"
    )
    search.add_argument("--model", help="model for dense search: Hugging Face name or folder")
    search.add_argument(
        "--topk",
        type=positive_int,
        default=3,
        help="documents per query, unless a request says otherwise (default 3)",
    )
    search.add_argument(
        "--cache", type=whole_number(0), default=0, metavar="N", help="results to cache (default 0)"
    )
    add_access_arguments(search, SEARCH_TOKEN)
    search.add_argument(
        "--port", type=whole_number(0, 65535), default=8000, help="port; 0 for any free port (default 8000)"
    )
    search.set_defaults(serve=serve_search)

    mcp = kinds.add_parser("mcp", help="serve an environment over MCP")
    mcp.add_argument("id", metavar="ID", help="environment, or 'ID(key=value)'; `gem-core envs` lists all")
    add_access_arguments(mcp, TOKEN_VARIABLE)
    mcp.add_argument(
        "--port", type=whole_number(0, 65535), help="serve over HTTP on this port (default: stdin and stdout)"
    )
    add_env_arguments(mcp)
    mcp.set_defaults(serve=serve_mcp)

    _openenv.add_parser(kinds)


def run(args: argparse.Namespace) -> int:
    """Serve until the server is stopped."""
    code: int = args.serve(args)
    return code


def serve_search(args: argparse.Namespace) -> int:
    """Open the search and serve it."""
    from gem_envs.serving import Access
    from gem_envs.serving._run import read_token
    from gem_envs.tools.search import SearchServer, open_searcher

    token = read_token(args.token_file, SEARCH_TOKEN)
    Access.for_address(args.host, token, args.allow_host, args.public)  # report a mistake early

    options: dict[str, Any] = {"cache": args.cache}
    if args.model:
        options["model"] = args.model
    if args.index is not None:
        from gem_envs.tools.search._bm25 import Bm25Index

        if args.backend != "bm25":
            raise ConfigError("--index takes a BM25 index; use --corpus with --backend dense")
        searcher: Any = Bm25Index(args.index, **options)
    else:
        _console.note(f"opening {args.corpus}; the first time, this builds its index ...")
        searcher = open_searcher(args.backend, corpus=args.corpus, **options)
    server = SearchServer(searcher, args.host, args.port, args.topk, token, args.allow_host, args.public)
    _console.print_text(f"{len(searcher):,} documents at {server.url}/retrieve")
    try:
        with contextlib.suppress(KeyboardInterrupt):
            server.serve()
    finally:
        server.close()
        searcher.close()
    return 0


def serve_mcp(args: argparse.Namespace) -> int:
    """Serve the environment."""
    from gem_core import spec
    from gem_envs.serving import Access
    from gem_envs.serving._pipes import input_ends_at_signals
    from gem_envs.serving._run import read_token

    token = read_token(args.token_file, TOKEN_VARIABLE)
    Access.for_address(args.host, token, args.allow_host, args.public)  # report a mistake early
    id, kwargs, wrappers = parse_env(args.id, args.kwargs, args.wrappers)
    build_env(id, kwargs, wrappers).close()  # report wrong arguments early
    from gem_envs.tools.mcp import _sdk
    from gem_envs.tools.mcp._env_server import env_server

    server, episodes = env_server(lambda: build_env(id, kwargs, wrappers), id, spec(id).description)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            if args.port is None:
                with input_ends_at_signals():
                    server.run("stdio")
            else:
                host = f"[{args.host}]" if ":" in args.host else args.host
                _console.note(f"{args.id} at http://{host}:{args.port}/mcp")
                _sdk.run_http(server, args.host, args.port, token, args.allow_host, args.public)
    finally:
        episodes.close()
    return 0
