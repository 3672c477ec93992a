"""Play with the tools of real MCP servers: list them, explain them, and call them.

    python benchmarks/mcp_servers.py --out docs/results/mcp.md

Installs servers of npm and PyPI into a folder (``--folder``; nothing outside it changes) and starts each one
as a tool of an environment. Needs node and npm. Not part of ``make bench``, because it needs the network.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any, NamedTuple

import gem_core
from gem_chat._calls.examples import example_arguments
from gem_chat._calls.formats import FORMATS
from gem_chat._calls.schema import problem
from gem_envs.tools.mcp import close_pools

NPM = "@modelcontextprotocol/server-"


class Server(NamedTuple):
    """A server, how it is started, and a call whose result is known."""

    package: str
    command: str
    call: tuple[str, dict[str, Any], str]
    """Tool, arguments, and a part of the result."""


def servers(folder: Path) -> list[Server]:
    """Return the servers; `folder` is where they are installed and what they may read."""
    node, python = folder / "node_modules" / NPM, folder / "venv" / "bin"
    files, repository = folder / "files", folder / "repository"
    js = "dist/index.js"
    return [
        Server(f"{NPM}everything", f"node {node}everything/{js}", ("echo", {"message": "hello"}, "hello")),
        Server(
            f"{NPM}filesystem",
            f"node {node}filesystem/{js} {files}",
            ("read_text_file", {"path": str(files / "a.txt")}, "some text"),
        ),
        Server(f"{NPM}memory", f"node {node}memory/{js}", ("search_nodes", {"query": "nothing"}, "entities")),
        Server(
            f"{NPM}sequential-thinking",
            f"node {node}sequential-thinking/{js}",
            (
                "sequentialthinking",
                {"thought": "a", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
                "thoughtHistoryLength",
            ),
        ),
        Server(
            "mcp-server-time",
            f"{python}/mcp-server-time --local-timezone UTC",
            ("get_current_time", {"timezone": "Europe/Paris"}, "Europe/Paris"),
        ),
        Server(
            "mcp-server-git",
            f"{python}/mcp-server-git --repository {repository}",
            ("git_status", {"repo_path": str(repository)}, "branch"),
        ),
        Server(
            "mcp-server-sqlite",
            f"{python}/mcp-server-sqlite --db-path {folder / 'a.db'}",
            ("read_query", {"query": "SELECT 6 * 7 AS n"}, "42"),
        ),
        Server(
            "mcp-server-fetch",
            f"{python}/mcp-server-fetch",
            ("fetch", {"url": "http://127.0.0.1:9/"}, "not a public address"),
        ),
    ]


def install(folder: Path) -> None:
    """Install the servers that are missing, and create what they read."""
    names = [server.package for server in servers(folder)]
    js = [name for name in names if name.startswith("@")]
    if not (folder / "node_modules").exists():
        (folder / "package.json").write_text("{}")
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", *js], cwd=folder, check=True)
    if not (folder / "venv").exists():
        venv.create(folder / "venv", with_pip=True)
        pip = [str(folder / "venv" / "bin" / "pip"), "install", "--quiet"]
        # mcp-server-sqlite does not start with version 2 of the package mcp
        subprocess.run([*pip, "mcp<2", *(name for name in names if name not in js)], check=True)
    (folder / "files").mkdir(exist_ok=True)
    (folder / "files" / "a.txt").write_text("some text")
    if not (folder / "repository").exists():
        subprocess.run(["git", "init", "-q", folder / "repository"], check=True)


def version_of(server: Server, folder: Path) -> str:
    """Return the installed version."""
    if server.package.startswith("@"):
        return str(
            json.loads((folder / "node_modules" / server.package / "package.json").read_text())["version"]
        )
    name = server.package.replace("-", "_")
    found = next((folder / "venv").glob(f"lib/*/site-packages/{name}-*.dist-info"))
    return found.name.removesuffix(".dist-info").rpartition("-")[2]


def check(server: Server) -> tuple[list[str], int]:
    """Play with a server; return its tools and how many of their examples their schema accepts.

    Raises:
        AssertionError: A tool is not explained, or the call fails.
    """
    for form in FORMATS.names():
        tools = f"tools(tools=\"mcp(command='{server.command}')\", format='{form}', max_tool_uses=None)"
        with gem_core.make("game:GuessTheNumber-v0-easy", wrappers=[tools]) as env:
            observation, _ = env.reset(seed=0)
            own: Any = env
            name, arguments, part = server.call
            tool = next(tool for tool in own.tools if tool.name == name)
            assert all(tool.name in observation for tool in own.tools), f"{server.package}: not explained"
            observation, *_, info = env.step(FORMATS.get(form).write(tool, arguments))
            used = bool(info.get("use_tool"))
            assert used, f"{server.package} ({form}): not read as a call: {observation}"
            assert part in observation, f"{server.package} ({form}): {observation}"
            names = [tool.name for tool in own.tools]
            accepted = sum(
                problem(tool.parameters, example_arguments(tool.parameters)) is None for tool in own.tools
            )
    return names, accepted


def main() -> None:
    """Install, check, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where to install (default: a temporary folder)")
    parser.add_argument("--out", type=Path, help="page to write (default: standard output)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (args.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        install(folder)
        rows = []
        for server in servers(folder):
            names, accepted = check(server)
            rows.append(
                f"| `{server.package}` {version_of(server, folder)} | {len(names)} | {accepted} | "
                f"`{server.call[0]}` | {', '.join(f'`{name}`' for name in names)} |"
            )
            print(rows[-1], file=sys.stderr)
        close_pools()
    page = "\n".join((*HEAD, *rows)) + "\n"
    if args.out is None:
        print(page, end="")
    else:
        args.out.write_text(page, encoding="utf-8")


HEAD = (
    "# MCP servers",
    "",
    "All tools of these servers are explained to the model in every call format, and one tool of each server",
    "was called in every format with a known result. `examples` counts the tools whose example call, which",
    "the explanation shows, is valid by the tool's own schema. `python benchmarks/mcp_servers.py --out",
    "docs/results/mcp.md` repeats it; it needs npm and the network.",
    "",
    "| server | tools | examples | called | names |",
    "|---|---|---|---|---|",
)


if __name__ == "__main__":
    main()
