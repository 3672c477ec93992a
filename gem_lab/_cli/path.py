"""`gem-core path`: print the path of an installed file that a trainer's command needs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from gem_core._util.messages import unknown
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
        _console.print_table(("file", "path"), list(_files()))
        return 0
    for trainer in trainer_names():
        if args.file.startswith(f"{trainer}-"):
            plugin, file = load_trainer(trainer), args.file.removeprefix(f"{trainer}-")
            if file in plugin.files:
                _console.print_text(str(plugin.file_path(file)))
                return 0
    raise UnknownName(unknown("file", args.file, [name for name, _ in _files()]))


def _files() -> Iterator[tuple[str, str]]:
    """Yield the name and the path of each file; a plugin that cannot be imported is noted."""
    from gem_lab._discovery import load_trainer, trainer_names

    for trainer in trainer_names():
        try:
            plugin = load_trainer(trainer)
        except UnsupportedTrainer as error:
            _console.note(f"{trainer}: {error}")
            continue
        yield from ((f"{trainer}-{file}", str(plugin.file_path(file))) for file in plugin.files)
