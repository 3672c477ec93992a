"""`gem-core bench`: measure how fast an environment steps on this machine."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from gem_core import Env
from gem_core.errors import ConfigError
from gem_lab._cli import _console
from gem_lab._cli._arguments import (
    CliCommand,
    add_env_arguments,
    add_json_flag,
    build_env,
    parse_env,
    positive_float,
    positive_int,
)

if TYPE_CHECKING:
    from gem_core.vector import VectorEnv

PREPARED = 200
"""Number of actions drawn for each environment before the measurement, which replays them."""


@dataclass(frozen=True)
class Measurement:
    """Speed of a single environment or of a vector environment.

    Attributes:
        id: Environment id.
        num_envs: Number of environments.
        backend: Backend of the vector environment; "none" for one environment in a plain loop.
        seconds: Measured time.
        steps: Total number of steps of all environments.
        episodes: Number of episodes that ended in that time.
        errors: Number of steps that failed inside the environment.
        steps_per_second: Steps per second of all environments.
    """

    id: str
    num_envs: int
    backend: str
    seconds: float
    steps: int
    episodes: int
    errors: int
    steps_per_second: float


COMMAND = CliCommand(
    "measure how fast an environment steps",
    examples=[
        "game:Minesweeper-v0",
        "game:GuessTheNumber-v0 --num-envs 64 --backend process --seconds 10 --json",
    ],
    details=(
        "Random legal actions are drawn before the clock starts and replayed from the same seeds, so "
        "only resets and steps are timed. Exit code 1 if a step fails."
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("id", metavar="ID", help="environment, or 'ID(key=value)'; `gem-core envs` lists all")
    parser.add_argument(
        "--seconds", type=positive_float, default=3.0, metavar="S", help="how long to measure (default 3)"
    )
    parser.add_argument(
        "--num-envs", type=positive_int, default=1, metavar="N", help="number of environments (default 1)"
    )
    parser.add_argument(
        "--backend",
        choices=("auto", "inline", "thread", "process", "ray"),
        help="vector backend (default: a plain loop for one environment, auto for several)",
    )
    add_env_arguments(parser)
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and print the speed; return exit code 1 if a step fails."""
    with _console.progress(f"stepping {args.id}", args.seconds) as advance:
        result = _measure(args, advance)
    if args.json:
        _console.print_json(asdict(result))
    else:
        how = "one environment" if result.backend == "none" else f"{result.num_envs} envs, {result.backend}"
        _console.print_text(
            f"{result.id} ({how}): {result.steps_per_second:,.0f} steps/s, "
            f"{result.episodes / result.seconds:,.0f} episodes/s over {result.seconds:.1f} s"
        )
        if result.errors:
            _console.note(f"{result.errors} steps failed inside the environment; `gem-core check {args.id}`")
    return int(result.errors > 0)


def _measure(args: argparse.Namespace, advance: Callable[[float], None]) -> Measurement:
    id, kwargs, wrappers = parse_env(args.id, args.kwargs, args.wrappers)
    with build_env(id, kwargs, wrappers) as env:
        if args.num_envs == 1 and args.backend is None:
            backend, counts = "none", _run_one(env, _prepare(env, 0), args.seconds, advance)
        else:
            from gem_core import make_vec

            plans = [_prepare(env, i) for i in range(args.num_envs)]
            with make_vec(
                id, args.num_envs, backend=args.backend or "auto", wrappers=wrappers, **kwargs
            ) as envs:
                backend = envs.backend
                counts = _run_many(
                    envs, [list(turn) for turn in zip(*plans, strict=True)], args.seconds, advance
                )
    seconds, steps, episodes, errors = counts
    return Measurement(args.id, args.num_envs, backend, seconds, steps, episodes, errors, steps / seconds)


def _prepare(env: Env, seed: int) -> list[str]:
    """Draw random legal actions in consecutive episodes; only the first episode has a seed."""
    env.reset(seed)
    actions = []
    for _ in range(PREPARED):
        try:
            actions.append(env.sample_random_action())
        except NotImplementedError as error:
            raise ConfigError(f"{error}: the benchmark plays random legal actions") from error
        _, _, terminated, truncated, _ = env.step(actions[-1])
        if terminated or truncated:
            env.reset()
    return actions


def _run_one(
    env: Env, actions: list[str], limit: float, advance: Callable[[float], None]
) -> tuple[float, int, int, int]:
    steps = episodes = 0
    start = time.perf_counter()
    while (seconds := time.perf_counter() - start) < limit:
        advance(seconds)
        env.reset(0)
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                episodes += 1
                env.reset()
        steps += len(actions)
    return seconds, steps, episodes, 0


def _run_many(
    envs: VectorEnv, plan: list[list[str]], limit: float, advance: Callable[[float], None]
) -> tuple[float, int, int, int]:
    steps = episodes = errors = 0
    start = time.perf_counter()
    while (seconds := time.perf_counter() - start) < limit:
        advance(seconds)
        envs.reset(0)
        for actions in plan:
            step = envs.step(actions)
            episodes += int((step.terminated | step.truncated).sum())
            errors += sum("error" in info for info in step.infos)
            steps += len(actions)
            if time.perf_counter() - start > limit:
                break
    return time.perf_counter() - start, steps, episodes, errors
