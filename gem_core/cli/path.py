"""`gem-core path`: where an installed file lies that a trainer's command asks for by its path."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from gem_core.cli._arguments import command_parser
from gem_core.errors import ConfigError

FILES = {"openrlhf-agent": "gem_openrlhf.agent"}
"""Name of a file, and the module that it is."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = command_parser(
        commands,
        "path",
        "print where a file for a trainer is installed",
        examples=["openrlhf-agent"],
        details="openrlhf-agent: for OpenRLHF's --train.agent_func_path",
    )
    parser.add_argument("file", choices=FILES, help="which one")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the path."""
    spec = find_spec(FILES[args.file])
    if spec is None or spec.origin is None:
        raise ConfigError(f"{FILES[args.file]} is no file of this installation")
    print(spec.origin)
    return 0
