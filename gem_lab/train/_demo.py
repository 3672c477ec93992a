"""Demo of the reference trainer: a tiny agent learns to play a number game with REINFORCE + ReBN.

python -m gem_lab.train.demo --out runs/demo
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from gem_core.errors import GemError
from gem_lab.train._config import TrainConfig

ENV = "game:GuessTheNumber-v0-easy"
SUCCESS, GAIN = 0.80, 0.25
"""Required success of the sampled policy on evaluation seeds; random play has a success of 0.34."""


def learned(before: float, after: float) -> bool:
    """Return whether the success rates on evaluation seeds show that the agent learned the game."""
    return after >= SUCCESS and after - before >= GAIN


def main(argv: Sequence[str] | None = None) -> int:
    """Train, and report in the output and the exit code whether the agent learned."""
    parser = argparse.ArgumentParser(description="Train a tiny agent on a number game with ReBN.")
    parser.add_argument("--out", default="runs/demo", metavar="DIR", help="folder of the run")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="random seed")
    arguments = parser.parse_args(argv)
    began = time.monotonic()
    try:
        # Imported here so that a missing package is also reported in one clear line.
        from gem_lab.train import train
        from gem_lab.train._console import ConsoleReporter

        config = TrainConfig(env=[ENV], gamma=0.9, out=arguments.out, seed=arguments.seed)
        reporter = ConsoleReporter(config)
        reporter.note("training a tiny agent on a number game takes about 3 minutes on 2 cores")
        outcome = train(config, reporter)
    except (GemError, OSError) as error:
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; repeat the command to continue from the last checkpoint\n")
        return 130
    before, after = (outcome.mean(when, "gem/success") for when in ("before", "after"))
    well = learned(before, after)
    reporter.note(
        f"{'the agent learned the game' if well else 'the agent did NOT learn the game'}: success "
        f"{before:.2f} -> {after:.2f} (required: at least {SUCCESS:.2f}, and {GAIN:.2f} more than before), "
        f"{time.monotonic() - began:.0f} s"
    )
    return 0 if well else 1
