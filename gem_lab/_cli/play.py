"""`gem-core play`: play an environment in the terminal."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile

from gem_core import Env, Info, Observation, render_observation
from gem_core.images import image_bytes, image_urls
from gem_envs.text import last_boxed
from gem_lab._cli import _console
from gem_lab._cli._arguments import CliCommand, add_env_arguments, build_env, parse_env, seed

HELP = """\
Type an answer and press Enter. Commands:
  :hint    show an oracle action, if the environment has one
  :random  play a random legal move
  :help    show this help
  :quit    leave the game; so does Ctrl-D
To enter several lines, start with a line such as ```python and end with ```."""

FENCE = "```"

INVALID = {
    "format": "it contains no answer",
    "illegal": "it is against the rules",
    "length": "it was cut by a length limit",
}
"""Maps the value of ``info["invalid"]`` to the reason why the move did not count."""
TAKEN_BACK = "A model's episode would end here with the reward {:+g}; you can answer again"
"""Message for an invalid answer that ended the episode, because the player may have mistyped it."""


COMMAND = CliCommand(
    "play an environment yourself",
    examples=[
        "game:GuessTheNumber-v0-easy",
        "game:Minesweeper-v0 --seed 7 --kwargs rows=4 --kwargs cols=4 --kwargs num_mines=2",
        "game:Mastermind-v0 --wrappers concat_with_action",
        "terminal:Files-v0 --seed 1",
    ],
    details=(
        HELP + "\n\nIf the environment expects the answer in \\boxed{}, a line without a box is put into "
        "one. A line that has a box is passed on unchanged. The same holds for environments that expect "
        "a block such as ```bash."
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("id", metavar="ID", help="environment, or 'ID(key=value)'; `gem-core envs` lists all")
    parser.add_argument(
        "--seed", type=seed, default=None, metavar="S", help="seed of the episode (default: random)"
    )
    add_env_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Play one episode, which ends early at ``:quit`` or at the end of the input."""
    with build_env(*parse_env(args.id, args.kwargs, args.wrappers)) as env:
        _play(env, _new_seed() if args.seed is None else args.seed)
    return 0


def _play(env: Env, episode_seed: int) -> None:
    observation, info = env.reset(episode_seed)
    _console.print_heading(
        f"{env.spec.id if env.spec else env} with --seed {episode_seed}; :help lists commands"
    )
    _show(observation, info)
    form = _form(_random_action(env) or "")
    turn, total = 0, 0.0
    actions: list[str] = []
    while True:
        line = _read_answer()
        if line is None or line == ":quit":
            _console.print_heading(f"left after {_turns(turn)}, return {total:g}")
            return
        action = _action(line, env, form)
        if action is None:
            continue
        observation, reward, terminated, truncated, info = env.step(action)
        _console.print_text()
        if terminated and (reason := info.get("invalid")):
            _console.print_labeled("invalid:", f"{INVALID[reason]}. {TAKEN_BACK.format(reward)}", "yellow")
            env.reset(episode_seed)
            for played in actions:
                env.step(played)
            continue
        actions.append(action)
        turn, total = turn + 1, total + reward
        _console.print_heading(f"turn {turn}: reward {reward:+g}, return {total:g}")
        if reason := info.get("invalid"):
            _console.print_labeled("invalid:", f"{INVALID[reason]}; it uses up the turn", "yellow")
        _show(observation, info)
        if terminated or truncated:
            ending = "solved" if info.get("success") else "out of turns" if truncated else "not solved"
            _console.print_heading(f"{ending} after {_turns(turn)}, return {total:g}")
            return


def _form(sample: str) -> tuple[str, str]:
    """Return the text before and after the bare answer in a valid response such as `sample`."""
    if last_boxed(sample) is not None:
        return r"\boxed{", "}"
    opening = re.search(rf"^{FENCE}\w*$", sample, re.MULTILINE)
    return (f"{opening[0]}\n", f"\n{FENCE}") if opening else ("", "")


def _action(line: str, env: Env, form: tuple[str, str]) -> str | None:
    """Return the response for a typed line, or None if the line was a command."""
    if line == ":random":
        action = _random_action(env)
        _console.print_text("This environment has no random player." if action is None else action)
        return action
    if line == ":hint":
        _console.print_text(env.oracle_action() or "This environment has no oracle.")
        return None
    if line == ":help" or not line:
        _console.print_text(HELP)
        return None
    if line.startswith(":"):
        _console.print_text(f"Unknown command {line}.\n{HELP}")
        return None
    before, after = form
    whole = FENCE in line or (before == r"\boxed{" and last_boxed(line) is not None)
    return line if whole else f"{before}{line}{after}"


def _random_action(env: Env) -> str | None:
    try:
        return env.sample_random_action()
    except NotImplementedError:  # optional in environments that do not pass `gem-core check`
        return None


def _read_answer() -> str | None:
    """Return the next line, or the whole block that it starts, or None at the end of the input."""
    line = _read("> ")
    if line is None:
        return None
    lines = [line.strip()]
    if lines[0].startswith(FENCE) and lines[0].count(FENCE) == 1:
        while (line := _read("... ")) is not None:
            lines.append(line)
            if line.strip() == FENCE:
                break
    return "\n".join(lines)


def _read(prompt: str) -> str | None:
    """Return the next line without its line break, or None at the end of the input."""
    if sys.stdin.isatty():
        try:
            return input(prompt)
        except EOFError:
            _console.print_text()
            return None
    line = sys.stdin.readline()
    return line.rstrip("\r\n").removeprefix("\ufeff") if line else None


def _show(observation: Observation, info: Info) -> None:
    from gem_core._observations import readable_text

    shown = render_observation(observation, info)
    _console.print_text(readable_text(shown))
    for url in image_urls(shown):
        _console.print_text(f"image: {_image_file(url)}")


def _image_file(url: str) -> str:
    """Write the image in a data URL to a file, because a terminal cannot show it; the file is kept."""
    data = image_bytes(url)
    kind = url[len("data:image/") : url.index(";")]
    kind = kind if kind.isalnum() else "image"
    with tempfile.NamedTemporaryFile(prefix="gem-core-", suffix=f".{kind}", delete=False) as file:
        file.write(data)
    return file.name


def _turns(count: int) -> str:
    return f"{count} turn{'' if count == 1 else 's'}"


def _new_seed() -> int:
    from random import SystemRandom

    return SystemRandom().randrange(1_000_000)
