"""`gem-core tiny`: create a tiny model and its tokenizer as a Hugging Face folder."""

from __future__ import annotations

import argparse

from gem_envs.working_directory import import_torch
from gem_lab.cli import _console
from gem_lab.cli._arguments import LIST, Command, add_json_flag, positive_int, seed, whole_number

COMMAND = Command(
    "create a tiny model that knows an environment's format",
    examples=[
        "--out tiny",
        "--out tiny-games --env game:GuessTheNumber-v0 --env game:Mastermind-v0-easy --layers 3",
    ],
    details="The model is warm-started on random legal actions, never on an oracle's actions. The same "
    "options give the same files; their SHA-256 is printed and recorded in the folder.",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write")
    parser.add_argument(
        "--env",
        **LIST,
        metavar="ID[(KEY=VALUE)]",
        help="environments that the model will play (default game:GuessTheNumber-v0-easy)",
    )
    parser.add_argument(
        "--hidden-size", type=positive_int, metavar="N", help="width, a multiple of 32 (default 64)"
    )
    parser.add_argument(
        "--layers", type=positive_int, metavar="N", help="number of decoder layers (default 2)"
    )
    parser.add_argument(
        "--vocab-size",
        type=positive_int,
        metavar="N",
        help="size of the vocabulary; 261 gives one token per byte (default 2048)",
    )
    parser.add_argument(
        "--max-positions", type=positive_int, metavar="N", help="longest context in tokens (default 4096)"
    )
    parser.add_argument(
        "--warm-start-steps",
        type=whole_number(0),
        metavar="N",
        help="supervised training steps on random legal actions (default 600)",
    )
    parser.add_argument(
        "--seed", type=seed, metavar="N", help="seed of the weights and the random play (default 0)"
    )
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Create and save the model."""
    import_torch()
    from gem_lab.train import TinyOptions, save_tiny
    from gem_lab.train.console import quiet_transformers

    quiet_transformers()
    names = ("hidden_size", "layers", "vocab_size", "max_positions", "warm_start_steps", "seed")
    values = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if args.env:
        values["env"] = tuple(args.env)
    options = TinyOptions(**values)
    if not args.json:
        _console.note(f"warm start: {options.warm_start_steps} steps on random legal actions")
    with _console.progress("warm start", options.warm_start_steps) as advance:
        digest = save_tiny(args.out, options, advance)
    if args.json:
        _console.print_json({"folder": args.out, "sha256": digest})
    else:
        _console.print_text(f"{args.out}  sha256 {digest}")
    return 0
