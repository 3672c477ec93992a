r"""`Databases`: do a task in an SQLite database; the state that is left decides."""

from __future__ import annotations

import base64
import re
import sqlite3
import uuid
import weakref
import zlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from random import Random
from typing import Any, ClassVar

from gem_core.envs.base import MoveResult, TurnBasedEnv, check_count
from gem_core.envs.databases.task import TASKS, Task, build, unlike_solution
from gem_core.errors import ConfigError
from gem_core.text import undecorated
from gem_core.tools.mcp.database import folder, path_of

DONE = "done"
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?")
_RULES = r"""You work on an SQLite database, with tools. {instruction}

When the task is done, end with {end}."""


class Databases(TurnBasedEnv[str]):
    r"""Do what an instruction asks for in an SQLite database, with the tools of an MCP server.

    Action: calls of the tools ``list_tables``, ``describe_table``, ``query`` and ``execute``, which the
    wrapper ``tools(tools='sqlite')`` of the registered ids brings; in the end ``\boxed{done}``, or the answer
    in the box where the task asks for one.

    Rewards: with the box, 1 when the database is as the task wants it, in every table, view and index, and
    the answer is right; else 0. A response with neither a call nor a box earns -0.1; the third one truncates.

    `max_return` is 1, and the oracle, which runs the reference solution, reaches it.

    The task is drawn by the seed, and so are its names and numbers; ``reset(options={"index": i})`` takes
    task i.
    A saved state holds the whole database.
    """

    state_fields = (*TurnBasedEnv.state_fields, "task_index", "task_seed", "database", "passed")
    format_error_ends: ClassVar[bool] = False
    blocking = True

    task_index: int
    """Number of the task."""
    task_seed: int
    """What its names and numbers are drawn from."""
    tool_scope: str
    """Name of the database, for the tools."""
    _task: Task | None = None

    def __init__(self, tasks: Sequence[str] | str | None = None, max_errors: int = 3) -> None:
        """Choose the tasks.

        Args:
            tasks: Names of groups or of tasks. None for all.
            max_errors: Responses with neither a call nor a box; the last one truncates.

        Raises:
            ConfigError: A value that cannot be honoured.
        """
        self.source = TASKS.choose(tasks)
        self.num_items = len(self.source)
        self.set_up(check_count("max_errors", max_errors, 1))

    def set_up(self, max_errors: int) -> None:
        """Give the environment a place for its database."""
        self.max_errors = max_errors
        self.tool_scope = uuid.uuid4().hex
        self._path = path_of(folder(), self.tool_scope)
        weakref.finalize(self, self._path.unlink, missing_ok=True)

    # -- the game -----------------------------------------------------------------------------

    def new_game(self) -> None:
        self.turn_limit = self.max_errors
        self.task_seed = self.random.getrandbits(48)
        self.passed = 0.0
        self.take_item(self.random.randrange(self.num_items))

    def take_item(self, index: int) -> None:
        self.task_index, self._task = index, None
        self.prepare()

    def rules(self) -> str:
        asked = self.task.answer is not None
        end = "the answer in a box, \\boxed{answer}" if asked else f"\\boxed{{{DONE}}}"
        return _RULES.format(instruction=self.task.instruction, end=end)

    def parse(self, text: str) -> str | None:
        return text or None

    def play(self, move: str) -> MoveResult:
        wrong = self.wrong()
        if self.task.answer is not None and _words(move) != _words(self.task.answer):
            wrong.append("answer")
        self.passed = float(not wrong)
        if wrong:
            return f"Not as it should be: {', '.join(wrong)[:500]}.", 0.0, "lost"
        return "The database is as it should be.", 1.0, "solved"

    def progress(self) -> float:
        return self.passed

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self._task = None
        if self._running and not 0 <= self.task_index < self.num_items:
            raise ConfigError("the state is of an episode with other tasks")

    def close(self) -> None:
        self._path.unlink(missing_ok=True)

    # -- players ------------------------------------------------------------------------------

    def sample_tool_call(self) -> tuple[str, dict[str, Any]]:
        """A look at the tables, for a random player with tools."""
        tables = self.table_names()
        if not tables:
            return "list_tables", {}
        name = self.action_random.choice(tables)
        return self.action_random.choice([
            ("list_tables", {}), ("describe_table", {"table": name}),
            ("query", {"sql": f'SELECT count(*) FROM "{name}"'}),
        ])  # fmt: skip

    def table_names(self) -> list[str]:
        """Tables that the database has at the start."""
        return [line.split()[2] for line in self.task.setup.splitlines() if line.startswith("CREATE TABLE")]

    def oracle_tool_call(self) -> tuple[str, dict[str, Any]] | None:
        """The reference solution."""
        return "execute", {"sql": self.task.solution.strip()}

    def random_move(self, random: Random) -> str:
        return DONE

    def best_move(self) -> str | None:
        return self.task.answer or DONE

    # -- the database -------------------------------------------------------------------------

    @property
    def task(self) -> Task:
        """The task of this episode."""
        if self._task is None:
            self._task = self.source.task(self.task_index, self.task_seed)
        return self._task

    @property
    def database(self) -> str | None:
        """The file of the database, packed as text; None when there is none."""
        if not self._path.is_file():
            return None
        return base64.b64encode(zlib.compress(self._path.read_bytes(), 1)).decode()

    @database.setter
    def database(self, packed: str | None) -> None:
        if packed is None:
            self._path.unlink(missing_ok=True)
        else:
            self._path.write_bytes(zlib.decompress(base64.b64decode(packed)))

    def prepare(self) -> None:
        """Make the database of the task."""
        build(self._path, self.task.setup)

    def wrong(self) -> list[str]:
        """What differs from the state that the reference solution leads to."""
        try:
            return unlike_solution(self._path, self.task)
        except sqlite3.Error as error:
            return [f"the database cannot be read ({error})"]


def _words(answer: str) -> list[str]:
    """An answer as far as it matters: its words in lower case, and the values of its numbers."""
    words = undecorated(answer).casefold().replace(",", " ").split()
    return [str(Fraction(word)) if _NUMBER.fullmatch(word) else word for word in words]
