"""`gem-core new`: write a working environment to start from, as one file or as a package."""

from __future__ import annotations

import argparse
import ast
import keyword
import re
import shlex
import sys
from pathlib import Path

from gem_core._util.files import write_atomically
from gem_core.errors import ConfigError
from gem_lab._cli import _console
from gem_lab._cli._arguments import CliCommand

_ENV = r'''"""{name}: find a secret number; every reply says whether the guess is too low or too high."""

from random import Random

from gem_envs import MoveResult, TurnBasedEnv
from gem_envs.text import integer


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

_TOOL_ENV = r'''"""{name}: add up prices that only a tool knows; looking up a needed price earns a reward."""

from gem_chat.tools import Tool, ToolResult
from gem_core import Env
from gem_envs.text import integer, last_boxed
from gem_envs.tools import Tools

ITEMS = ("apples", "bread", "cheese", "dates", "eggs")


class Price(Tool):
    """Looks up a price of the running episode, which is in `state.env`."""

    name = "price"
    description = "Returns the price of an item."
    parameters = {{
        "type": "object",
        "properties": {{"item": {{"type": "string", "enum": ITEMS}}}},
        "required": ["item"],
    }}

    async def call(self, arguments, state):
        env, item = state.env, arguments["item"]
        useful = item in env.wanted and item not in env.seen
        if useful:
            env.seen.append(item)
        return ToolResult(f"{{env.prices[item]}} cents", reward=0.1 if useful else 0.0)


class {name}Task(Env):
    """Answer with the sum of two prices: 0.1 for each price that was looked up, and 0.8 for the answer."""

    # Everything that a running episode needs, so that it can be saved and continued.
    state_fields = ("prices", "wanted", "seen")
    max_return = 1.0
    format_error_reward = -0.1

    def new_task(self):
        """Start an episode. Draw from `self.random` only, so that a seed determines the episode."""
        self.prices = {{item: self.random.randint(10, 99) for item in ITEMS}}
        self.wanted = self.random.sample(ITEMS, 2)
        self.seen = []

    def prompt(self):
        """Return the task; the explanation of the tool is added to it."""
        one, other = self.wanted
        return f"What do {{one}} and {{other}} cost together? " r"Answer in cents, such as \boxed{{50}}."

    def step(self, action):
        """Take a response without a tool call, which is the answer and ends the episode."""
        self.require_reset()
        self.end_episode()
        answer = integer(last_boxed(action) or "")
        success = answer == sum(self.prices[item] for item in self.wanted)
        info = {{"invalid": "format" if answer is None else None, "success": success}}
        reward = self.format_error_reward if answer is None else 0.8 * success
        return "The end.", reward, True, False, info

    def sample_random_action(self):
        """Return a random answer, for the random player."""
        return rf"\boxed{{{{{{self.action_random.randint(20, 198)}}}}}}"

    def sample_tool_call(self):
        """Return a random call, for the random player."""
        return "price", {{"item": self.action_random.choice(ITEMS)}}

    def oracle_action(self):
        """Return the answer of a perfect player."""
        return rf"\boxed{{{{{{sum(self.prices[item] for item in self.wanted)}}}}}}"

    def oracle_tool_call(self, uses):
        """Return the next call of a perfect player; None when it answers."""
        left = [item for item in self.wanted if item not in self.seen]
        return ("price", {{"item": left[0]}}) if left else None


def {name}(max_tool_uses: int = 6) -> Tools:
    """Return the environment with its tool.

    Args:
        max_tool_uses: Number of calls of an episode.
    """
    return Tools({name}Task(), tools=Price(), max_tool_uses=max_tool_uses)
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
        description="{description}",
        floor={floor}
    )
'''

_TEST = """from gem_lab import EnvContract


class Test{name}(EnvContract):
    env_id = "{family}:{name}-v0"
"""


_KINDS = {
    "game": (
        _ENV,
        "Find a number from 1 to 100 in 8 turns",
        "0.08,  # success rate of a player that ignores the replies and counts up from 1",
    ),
    "tool": (
        _TOOL_ENV,
        "Add up two prices that a tool knows",
        "0.02,  # success rate of a player that guesses the most frequent sum",
    ),
}
"""Template of the environment, and the description and the floor of its id, by kind."""

COMMAND = CliCommand(
    "write a new environment to start from",
    examples=["HotCold", "Prices --kind tool", "HotCold --package --out my-envs"],
    details=(
        "The file holds a small environment that passes `gem-core check`; replace its rules with your own. "
        "A game is played in moves; an environment of the kind tool has a tool, which reads the running "
        "episode and earns rewards. --package adds an id, a pyproject.toml, and a test."
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", metavar="NAME", help="name of the class, such as HotCold")
    parser.add_argument(
        "--kind", choices=tuple(_KINDS), default="game", help="environment to start from (default game)"
    )
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
    env, names["description"], names["floor"] = _KINDS[args.kind]
    if args.name in _names_in(env) or keyword.iskeyword(args.name):
        raise ConfigError(f"{args.name} has a meaning in the file already; choose another name")
    if module in sys.stdlib_module_names:
        raise ConfigError(f"{module}.py would hide Python's own module {module!r}; choose another name")
    if args.package:
        folder = Path(args.out or names["distribution"])
        templates = {
            "pyproject.toml": _PYPROJECT,
            f"{module}/__init__.py": _INIT,
            f"{module}/env.py": env,
            f"test_{module}.py": _TEST,
        }
        id, install = "{family}:{name}-v0".format(**names), [["pip", "install", "-e", str(folder)]]
    else:
        folder = Path(args.out or ".")
        templates = {f"{module}.py": env}
        id, install = f"{folder / module}.py:{args.name}", []
    for path in templates:
        if (folder / path).exists():
            raise ConfigError(f"{folder / path} exists already; choose another name or folder")
    for path, template in templates.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / path, [template.format(**names)])
    _console.note(f"wrote {', '.join(str(folder / path) for path in templates)}")
    for command in (*install, *(["gem-core", command, id] for command in ("check", "play"))):
        _console.note(f"next: {shlex.join(command)}")
    return 0


def _names_in(template: str) -> set[str]:
    """Return the names that a template defines, imports, or reads."""
    nodes = list(ast.walk(ast.parse(template.format(name="name"))))
    read = {node.id for node in nodes if isinstance(node, ast.Name)}
    return read | {node.name for node in nodes if isinstance(node, ast.alias | ast.ClassDef)}
