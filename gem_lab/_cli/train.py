"""`gem-core train`: the reference trainer."""

from __future__ import annotations

import argparse

from gem_envs._working_directory import import_torch
from gem_lab._cli import _console
from gem_lab._cli._arguments import CliCommand, add_json_flag, add_option_flags, given_options

COMMAND = CliCommand(
    "train a language model on environments",
    examples=[
        "--env game:GuessTheNumber-v0-easy --gamma 0.9 --out runs/guess",
        "--model ./my-model --env game:Mastermind-v0=2 --env game:GuessTheNumber-v0=1 --gamma 0.9 "
        "--estimator grpo --group-size 8",
        "--env 'multi:KuhnPoker-v0(opponent=\"self\")' --eval-env multi:KuhnPoker-v0 --gamma 1 "
        "--out runs/kuhn",
    ],
    details="To continue an interrupted run from its newest checkpoint, repeat the command.",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare a flag for each field of `TrainConfig`."""
    from gem_lab.train._config import TrainConfig

    add_option_flags(parser, TrainConfig)
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Train, and print the results."""
    import_torch()
    from gem_lab.train import TrainConfig, train
    from gem_lab.train._console import ConsoleReporter, quiet_transformers
    from gem_lab.train._report import TrainReporter

    quiet_transformers()
    config = TrainConfig(**given_options(args, TrainConfig))
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
