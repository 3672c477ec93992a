"""`gem-core repro`: write a run as a config or command for each trainer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gem_core.errors import ConfigError, UnsupportedTrainer
from gem_lab._cli import _console
from gem_lab._cli._arguments import LIST, CliCommand, add_json_flag, listed

if TYPE_CHECKING:
    from gem_core.trainers._plugin import RecipeWriter

REFERENCE = "reference"
"""Name of the reference trainer, `gem-core train`, in the list of trainers."""


COMMAND = CliCommand(
    "write the same run for every trainer",
    examples=["recipe.yaml --out repro", "recipe.yaml --to reference --out repro"],
    details=(
        "The file names environments, model, estimator, and budget once. Each trainer gets a folder with "
        "run.sh and the files that it reads. If a trainer has no equivalent of an option, a message "
        "names the option, and the exit code is 2 if --to names that trainer, else 1."
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", metavar="FILE", help="the recipe, YAML or JSON")
    parser.add_argument(
        "--to",
        **LIST,
        type=listed(),
        metavar="TRAINER",
        help=f"'{REFERENCE}' for `gem-core train`, or a trainer that `gem-core doctor` lists (default: all)",
    )
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="folder to write, with a folder per trainer"
    )
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Write the folders, after building every environment once."""
    from gem_lab._discovery import check_trainer_names, trainer_names
    from gem_lab.repro import Recipe

    check_trainer_names(args.to or [], REFERENCE)
    recipe = Recipe.load(args.file)
    names = args.to or (REFERENCE, *trainer_names())
    results: dict[str, dict[str, object]] = {}
    with _console.progress("writing", 1 + len(names)) as advance:
        recipe.build_environments()
        for name in names:
            advance(1 + len(results))
            folder = Path(args.out) / name
            try:
                results[name] = {"folder": str(folder), "notes": _load_writer(name)(recipe, folder)}
            except (ConfigError, UnsupportedTrainer) as error:
                if args.to:
                    raise
                results[name] = {"rejected": str(error)}
    if args.json:
        _console.print_json(results)
    else:
        for name, result in results.items():
            _console.print_text(f"{name}: {result.get('folder') or result['rejected']}")
            notes = result.get("notes", [])
            assert isinstance(notes, list)
            for note in notes:
                _console.print_text(f"  {note}")
    return int(any("rejected" in result for result in results.values()))


def _load_writer(trainer: str) -> RecipeWriter:
    from gem_lab.repro import write_reference
    from gem_lab.repro._writers import load_recipe_writer

    return write_reference if trainer == REFERENCE else load_recipe_writer(trainer)
