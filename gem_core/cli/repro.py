"""`gem-core repro`: one run, in the words of each trainer."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gem_core.cli import _console
from gem_core.cli._arguments import add_json_flag, command_parser
from gem_core.errors import ConfigError

if TYPE_CHECKING:
    from gem_core.repro import Recipe

REFERENCE = "reference"
TRAINERS = (REFERENCE, "verl", "openrlhf", "oat", "rl2", "roll")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = command_parser(
        commands,
        "repro",
        "write the same run for every trainer",
        examples=["recipe.yaml --out repro", "recipe.yaml --to verl --to oat --out repro"],
        details=(
            "The file names environments, model, estimator, and budget once; docs/trainers/reproduce.md\n"
            "lists all options. Each trainer gets a folder with run.sh and the files it reads. A trainer\n"
            "that has no equivalent for an option is rejected by name: with exit code 2 if --to names it,\n"
            "with exit code 1 if all trainers are written."
        ),
    )
    parser.add_argument("file", metavar="FILE", help="the recipe, YAML or JSON")
    parser.add_argument(
        "--to", action="append", choices=TRAINERS, help="a trainer (repeatable; default: all)"
    )
    parser.add_argument("--out", required=True, metavar="FOLDER", help="folder to write, one in it a trainer")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the folders; every environment is built once first."""
    from gem_core.repro import Recipe

    recipe = Recipe.load(args.file)
    recipe.build_environments()
    found: dict[str, dict[str, object]] = {}
    for name in args.to or TRAINERS:
        folder = Path(args.out) / name
        try:
            found[name] = {"folder": str(folder), "notes": _writer(name)(recipe, folder)}
        except ConfigError as error:
            if args.to:
                raise
            found[name] = {"refused": str(error)}
    if args.json:
        _console.print_json(found)
    else:
        for name, made in found.items():
            print(f"{name}: {made.get('folder') or made['refused']}")
            notes = made.get("notes", [])
            assert isinstance(notes, list)
            for note in notes:
                print(f"  {note}")
    return int(any("refused" in made for made in found.values()))


def _writer(trainer: str) -> Callable[[Recipe, Path], list[str]]:
    if trainer == REFERENCE:
        from gem_core.repro import write_reference

        return write_reference
    writer: Callable[[Recipe, Path], list[str]] = importlib.import_module(f"gem_{trainer}.repro").write
    return writer
