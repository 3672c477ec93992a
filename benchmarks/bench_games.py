"""Steps per second of the games against gem-llm, bare and with the same wrapper stack on both sides."""

from __future__ import annotations

import contextlib
import inspect
import io
import random
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import common
import gem
import textarena
from gem.wrappers.wrapper_factory import get_wrapper_fns

import gem_core

STACKS = {"bare": ("", ""), "concat + tracking": ("concat, episode_statistics", "concat,episode_tracking")}
FAST = 30_000
"""Steps per second of gem-llm above which the limit is 1x instead of 2x."""
STEPS = 200
"""Number of steps in one batch of work."""


def actions(game: str, kwargs: dict[str, Any]) -> list[str]:
    """Return a thousand responses with valid moves, the same for both sides."""
    rng = random.Random(0)

    def move() -> str:
        if game == "GuessTheNumber":
            return str(rng.randint(kwargs["min_number"], kwargs["max_number"]))
        if game == "Mastermind":
            digits = range(1, kwargs["num_numbers"] + 1)
            return " ".join(map(str, rng.sample(digits, kwargs["code_length"])))
        if game == "Minesweeper":
            return f"reveal {rng.randrange(kwargs['rows'])} {rng.randrange(kwargs['cols'])}"
        return " ".join(rng.sample("ABC", 2))

    return responses(move)


def responses(move: Callable[[], str]) -> list[str]:
    """Return a thousand moves in boxes."""
    return [rf"My move is \boxed{{{move()}}}." for _ in range(1000)]


def player(env: Any, moves: list[str]) -> Callable[[], int]:
    """Return the measured work: step, and reset whenever an episode ends."""
    stream: Iterator[str] = cycle(moves)
    env.reset()

    def work() -> int:
        for _ in range(STEPS):
            _, _, terminated, truncated, _ = env.step(next(stream))
            if terminated or truncated:
                env.reset()
        return STEPS

    return work


def settings(game: str, variant: str) -> dict[str, Any]:
    """Return the constructor arguments of gem-llm's environment, which has no id for its defaults."""
    if variant:
        return dict(gem.envs.registration.ENV_REGISTRY[f"game:{game}-v0{variant}"].kwargs)
    kind = type(gem.make(f"game:{game}-v0-easy"))
    parameters = inspect.signature(kind.__init__).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def game_line(
    game: str,
    variant: str,
    stack: str,
    quick: bool,
    *,
    moves_of: Callable[[str, dict[str, Any]], list[str]] = actions,
    own: dict[str, Any] | None = None,
    rounds: int = 31,
) -> common.Result:
    """Measure the steps per second; `own` replaces our arguments if they differ from the peer's."""
    kwargs = settings(game, variant)
    ours_stack, peer_stack = STACKS[stack]
    ours = gem_core.make(f"game:{game}-v0{variant}", wrappers=ours_stack, **(kwargs if own is None else own))
    peer = gem.make(f"game:{game}-v0{variant or '-easy'}", **kwargs)
    with contextlib.redirect_stdout(io.StringIO()):  # gem-llm prints the wrappers
        for wrapper in get_wrapper_fns(peer_stack):
            peer = wrapper(peer)
    moves = moves_of(game, kwargs)
    pair = common.compare(
        player(ours, moves),
        player(peer, moves),
        seconds=0.01 if quick else 0.03,
        rounds=3 if quick else rounds,
    )
    limit = 1.0 if pair.peer > FAST else 2.0
    return common.Result(
        f"game: {game}{variant}, {stack}", *pair, "steps/s", at_least=limit, note="peer: gem-llm; CPU time"
    )


def textarena_line(quick: bool) -> common.Result:
    """Measure TextArena's bare game, only for information, because its observations need a second call."""
    ours = gem_core.make("game:GuessTheNumber-v0")
    moves = actions("GuessTheNumber", settings("GuessTheNumber", ""))
    peer = textarena.make("GuessTheNumber-v0-raw")
    bare = [move[len(r"My move is \boxed{") : -2] for move in moves]  # TextArena expects [7]
    stream = cycle(f"[{move}]" for move in bare)
    peer.reset(num_players=1)

    def work() -> int:
        for _ in range(STEPS):
            peer.get_observation()
            done, _ = peer.step(next(stream))
            if done:
                peer.close()
                peer.reset(num_players=1)
        return STEPS

    pair = common.compare(
        player(ours, moves), work, seconds=0.01 if quick else 0.03, rounds=3 if quick else 31
    )
    return common.Result("game: GuessTheNumber, bare", *pair, "steps/s", note="peer: textarena raw; CPU time")


def run(quick: bool) -> list[common.Result]:
    games = ("GuessTheNumber", "Mastermind", "Minesweeper", "TowerofHanoi")
    lines = [
        game_line(game, variant, stack, quick)
        for stack in STACKS
        for game in games
        for variant in ("", "-easy", "-hard")
    ]
    return [*lines, textarena_line(quick)]


if __name__ == "__main__":
    common.main(run)
