"""`gem-core tiny`: create a tiny model and its tokenizer as a Hugging Face folder."""

from __future__ import annotations

import argparse

from gem_envs._working_directory import import_torch
from gem_lab._cli import _console
from gem_lab._cli._arguments import CliCommand, add_json_flag, add_option_flags, given_options

COMMAND = CliCommand(
    "create a tiny model that knows an environment's format",
    examples=[
        "--out tiny",
        "--out tiny-games --env game:GuessTheNumber-v0 --env game:Mastermind-v0-easy --layers 3",
    ],
    details="The model is warm-started on random legal actions, never on an oracle's actions. The same "
    "options give the same files; their SHA-256 is printed and recorded in the folder.",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare a flag for each field of `TinyOptions`."""
    from gem_lab.train._tiny_options import TinyOptions

    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write")
    add_option_flags(parser, TinyOptions)
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Create and save the model."""
    import_torch()
    from gem_lab.train import TinyOptions, save_tiny
    from gem_lab.train._console import quiet_transformers

    quiet_transformers()
    options = TinyOptions(**given_options(args, TinyOptions))
    if not args.json:
        _console.note(f"warm start: {options.warm_start_steps} steps on random legal actions")
    with _console.progress("warm start", options.warm_start_steps) as advance:
        digest = save_tiny(args.out, options, advance)
    if args.json:
        _console.print_json({"folder": args.out, "sha256": digest})
    else:
        _console.print_text(f"{args.out}  sha256 {digest}")
    return 0
