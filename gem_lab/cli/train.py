"""`gem-core train`: the reference trainer."""

from __future__ import annotations

import argparse
import dataclasses

from gem_envs.working_directory import import_torch
from gem_lab.cli import _console
from gem_lab.cli._arguments import Command, add_field_flags, add_json_flag, add_limit_flags

_GROUPS = {
    "model": "model and environments",
    "estimator": "advantages",
    "steps": "rollouts",
    "lr": "update",
    "eval_episodes": "run",
}
"""Maps the first field of each group of flags to the title of the group."""


COMMAND = Command(
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
    from gem_core.rollout.limits import EpisodeLimits
    from gem_lab.train.config import TrainConfig

    limits = {item.name for item in dataclasses.fields(EpisodeLimits)}
    own = [item.name for item in dataclasses.fields(TrainConfig) if item.name not in limits]
    for first, title in _GROUPS.items():
        start = own.index(first)
        end = next((own.index(name) for name in own[start + 1 :] if name in _GROUPS), len(own))
        add_field_flags(parser.add_argument_group(title), TrainConfig, own[start:end])
    add_limit_flags(parser, TrainConfig)
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Train, and print the results."""
    import_torch()
    from gem_lab.train import TrainConfig, TrainReporter, train
    from gem_lab.train.console import ConsoleReporter, quiet_transformers

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
