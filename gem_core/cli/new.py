"""`gem-core new`: write a working environment to start from, as one file or as a package."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from gem_core._util.files import write_atomically
from gem_core.cli import _console
from gem_core.cli._arguments import Command
from gem_core.errors import ConfigError

_ENV = r'''"""{name}: find a secret number; every reply says whether the guess is too low or too high."""

from random import Random

from gem_core.envs.base import MoveResult, TurnBasedEnv
from gem_core.text import integer


class {name}(TurnBasedEnv[int]):
    """Find a number from 1 to `max_number` in `max_turns` turns.

    Args:
        max_number: Largest possible number.
        max_turns: Number of turns of an episode.
    """

    # Everything that a running episode needs, so that it can be saved and continued.
    state_fields = (*TurnBasedEnv.state_fields, "secret")

    def __init__(self, max_number: int = 100, max_turns: int = 8) -> None:
        self.max_number = max_number
        self.max_turns = max_turns

    def new_game(self) -> None:
        """Start an episode. Draw from `self.random` only, so that a seed determines the episode."""
        self.turn_limit = self.max_turns
        self.secret = self.random.randint(1, self.max_number)

    def rules(self) -> str:
        """Return the prompt, with one example of an answer."""
        return (
            f"Find the secret number from 1 to {{self.max_number}} in {{self.max_turns}} turns. "
            r"Answer with a number in \boxed{{}}, for example \boxed{{7}}."
        )

    def parse(self, text: str) -> int | None:
        """Return the move in the box of a response, or None if it is not a number."""
        return integer(text)

    def play(self, move: int) -> MoveResult:
        """Return the reply, the reward, and "continue", "solved", "lost", or "illegal"."""
        if not 1 <= move <= self.max_number:
            return f"The number is from 1 to {{self.max_number}}.", 0.0, "illegal"
        if move == self.secret:
            return "Correct.", 1.0, "solved"
        return f"{{move}} is too {{'low' if move < self.secret else 'high'}}.", 0.0, "continue"

    def random_move(self, random: Random) -> str:
        """Return a legal move, for the random player."""
        return str(random.randint(1, self.max_number))

    def best_move(self) -> str:
        """Return the move of a perfect player."""
        return str(self.secret)
'''

_PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{distribution}"
version = "0.1.0"
requires-python = ">=3.10"
dependencies = ["gem-core"]

[project.entry-points."gem_core.envs"]
{module} = "{module}:register_envs"
"""

_INIT = '''"""Registers the environments of this package; gem-core calls `register_envs`."""

from gem_core import register


def register_envs() -> None:
    register(
        "{family}:{name}-v0",
        "{module}.env:{name}",
        description="Find a number from 1 to 100 in 8 turns",
        floor=0.08,  # success rate of a player that ignores the replies and counts up from 1
    )
'''

_TEST = """from gem_core.checker import EnvContract


class Test{name}(EnvContract):
    env_id = "{family}:{name}-v0"
"""


COMMAND = Command(
    "write a new environment to start from",
    examples=["HotCold", "HotCold --package --out my-envs"],
    details=(
        "The file holds a small game that passes `gem-core check`; replace its rules with your own. "
        "--package adds an id, a pyproject.toml, and a test."
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", metavar="NAME", help="name of the class, such as HotCold")
    parser.add_argument("--package", action="store_true", help="write a package that registers an id")
    parser.add_argument(
        "--out", metavar="DIR", help="folder to write to (default: here, or a new folder for a package)"
    )


def run(args: argparse.Namespace) -> int:
    """Write the files and say what to do next."""
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", args.name):
        raise ConfigError(f"{args.name!r} is not the name of a class: expected a name such as HotCold")
    module = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", args.name).lower()
    names = {
        "name": args.name, "module": module, "family": module.replace("_", ""),
        "distribution": module.replace("_", "-"),
    }  # fmt: skip
    if args.package:
        folder = Path(args.out or names["distribution"])
        templates = {
            "pyproject.toml": _PYPROJECT,
            f"{module}/__init__.py": _INIT,
            f"{module}/env.py": _ENV,
            f"test_{module}.py": _TEST,
        }
        id, install = "{family}:{name}-v0".format(**names), [f"pip install -e {folder}"]
    else:
        folder = Path(args.out or ".")
        templates = {f"{module}.py": _ENV}
        id, install = f"{folder / module}.py:{args.name}", []
    for path in templates:
        if (folder / path).exists():
            raise ConfigError(f"{folder / path} exists already; choose another name or folder")
    for path, template in templates.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / path, [template.format(**names)])
    _console.note(f"wrote {', '.join(str(folder / path) for path in templates)}")
    for command in (*install, f"gem-core check {id}", f"gem-core play {id}"):
        _console.note(f"next: {command}")
    return 0
