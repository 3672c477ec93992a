"""`gem-core train`: the reference trainer."""

from __future__ import annotations

import argparse
import dataclasses
import types
import typing
from typing import Any

from gem_core.cli import _console
from gem_core.cli._arguments import add_json_flag, command_parser

REPEATABLE = dict.fromkeys(("env", "eval_env"), "ID[(KEY=VALUE)][=WEIGHT]") | {"agent_model": "AGENT=MODEL"}
"""Maps fields that are lists to the form of an item."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command, with a flag for each field of `TrainConfig`."""
    from gem_core.train.config import TrainConfig

    parser = command_parser(
        commands,
        "train",
        "train a language model on environments",
        examples=[
            "--env game:GuessTheNumber-v0-easy --gamma 0.9 --out runs/guess",
            "--model ./my-model --env game:Mastermind-v0=2 --env game:GuessTheNumber-v0=1 --gamma 0.9 "
            "--estimator grpo --group-size 8",
            "--env 'multi:KuhnPoker-v0(opponent=\"self\")' --eval-env multi:KuhnPoker-v0 --gamma 1 "
            "--out runs/kuhn",
        ],
        details="To continue an interrupted run from its newest checkpoint, give the same command again.",
    )
    annotations = typing.get_type_hints(TrainConfig, include_extras=True)
    for item in dataclasses.fields(TrainConfig):
        flag = "--" + item.name.replace("_", "-")
        kind_of_value, text = typing.get_args(annotations[item.name])
        if metavar := REPEATABLE.get(item.name):
            parser.add_argument(flag, action="append", metavar=metavar, help=f"{text} (repeatable)")
        elif kind_of_value is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            shown = "" if item.default in (None, "") else f" (default {item.default})"
            kind = _scalar(kind_of_value)
            metavar = "TEXT" if kind is str else "N"
            parser.add_argument(flag, type=kind, metavar=metavar, help=text + shown)
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, and print the results."""
    from gem_core.train import TrainConfig, TrainReporter, train
    from gem_core.train.console import ConsoleReporter, quiet_transformers

    quiet_transformers()
    names = [item.name for item in dataclasses.fields(TrainConfig)]
    values = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    config = TrainConfig(**values)
    outcome = train(config, TrainReporter() if args.json else ConsoleReporter(config))
    if args.json:
        _console.print_json(
            {
                "folder": str(outcome.folder),
                "checkpoint": str(outcome.checkpoint),
                "before": outcome.before,
                "after": outcome.after,
            }
        )
    return 0


def _scalar(annotation: Any) -> Any:
    """Return the type of a field's values: int, float, or str."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        annotation = next(kind for kind in typing.get_args(annotation) if kind is not type(None))
    if typing.get_origin(annotation) is typing.Literal:
        return str
    return annotation
