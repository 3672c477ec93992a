"""`gem-core path`: print the path of an installed file that a trainer's command needs."""

from __future__ import annotations

import argparse

from gem_core.errors import UnknownName, UnsupportedTrainer
from gem_lab._cli import _console
from gem_lab._cli._arguments import CliCommand

COMMAND = CliCommand(
    "print where a file for a trainer is installed",
    examples=["", "TRAINER-agent"],
    details="Some trainers load a file of their plugin by path. Without a name, all files are listed.",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", nargs="?", metavar="TRAINER-FILE", help="name of the file")


def run(args: argparse.Namespace) -> int:
    """Print one path, or all of them with their names."""
    from gem_lab._discovery import load_trainer, trainer_names

    if args.file is None:
        rows = []
        for trainer in trainer_names():
            try:
                plugin = load_trainer(trainer)
            except UnsupportedTrainer as error:
                _console.note(f"{trainer}: {error}")
                continue
            rows += [(f"{trainer}-{file}", str(plugin.file_path(file))) for file in plugin.files]
        _console.print_table(("file", "path"), rows)
        return 0
    for trainer in trainer_names():
        if args.file.startswith(f"{trainer}-"):
            plugin, file = load_trainer(trainer), args.file.removeprefix(f"{trainer}-")
            if file in plugin.files:
                _console.print_text(str(plugin.file_path(file)))
                return 0
    raise UnknownName(f"unknown file {args.file!r}; `gem-core path` lists all")
