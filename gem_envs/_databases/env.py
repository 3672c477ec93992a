r"""`Databases`: do a task in an SQLite database; its resulting state is graded."""

from __future__ import annotations

import base64
import re
import uuid
import weakref
import zlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from random import Random
from typing import Any, ClassVar

from gem_core._util.checks import check_int
from gem_core.errors import ConfigError, EnvError
from gem_envs._base import MoveResult, TurnBasedEnv
from gem_envs._databases.task import TASKS, DatabaseTask, build, unlike_solution
from gem_envs._text import boxed_answer, plain
from gem_envs.tools.mcp._database import MOST_BYTES, SECONDS, folder, path_of
from gem_envs.tools.mcp._limited import LimitedError, run_limited

DONE = "done"
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?")
_RULES = r"""You work on an SQLite database, with tools. {instruction}

When the task is done, end with {end}."""


class Databases(TurnBasedEnv[str]):
    r"""Follow an instruction in an SQLite database, with the tools of an MCP server.

    Action: calls of the tools ``list_tables``, ``describe_table``, ``query``, and ``execute``, which the
    wrapper ``tools(tools='sqlite')`` of the registered ids provides; at the end ``\boxed{done}``, or the
    answer in the box if the task asks for one.

    Rewards: for the box, 1 if every table, view, and index of the database is as the task requires and the
    answer is right, else 0. A response with neither a call nor a box earns -0.1; the third one truncates the
    episode.

    `max_return` is 1, and the oracle, which runs the reference solution, reaches it.

    The seed draws the task and its names and numbers; ``reset(options={"index": i})`` selects task i. A saved
    state holds the whole database.
    """

    state_fields = (*TurnBasedEnv.state_fields, "task_index", "task_seed", "database", "passed")
    format_error_ends: ClassVar[bool] = False
    blocking = True

    task_index: int
    """Index of the current task."""
    task_seed: int
    """Seed of its names and numbers."""
    tool_scope: str
    """Name by which the tools find the database."""
    _task: DatabaseTask | None = None
    _task_key: tuple[int, int] | None = None

    def __init__(self, tasks: Sequence[str] | str | None = None, max_errors: int = 3) -> None:
        """Select the tasks.

        Args:
            tasks: Names of groups or tasks; None means all.
            max_errors: Number of responses with neither a call nor a box after which the episode is
                truncated.

        Raises:
            ConfigError: A task is unknown, or `max_errors` is out of range.
        """
        self.source = TASKS.choose(tasks)
        self.num_items = len(self.source)
        self.set_up(check_int("max_errors", max_errors, 1))

    def set_up(self, max_errors: int) -> None:
        """Reserve a file for the database."""
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
        self.task_index = index
        self.prepare()

    def rules(self) -> str:
        has_answer = self.task.answer is not None
        end = "the answer in a box, \\boxed{answer}" if has_answer else f"\\boxed{{{DONE}}}"
        return _RULES.format(instruction=self.task.instruction, end=end)

    def parse(self, text: str) -> str | None:
        return text or None

    def play(self, move: str) -> MoveResult:
        wrong = self.wrong()
        if self.task.answer is not None and not _same_answer(move, self.task.answer):
            wrong.append("answer")
        self.passed = float(not wrong)
        if wrong:
            return f"Not as it should be: {', '.join(wrong)[:500]}.", 0.0, "lost"
        return "The database is as it should be.", 1.0, "solved"

    def progress(self) -> float:
        return self.passed

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        if self._running and not 0 <= self.task_index < self.num_items:
            raise ConfigError(
                "the state belongs to an environment with other tasks; make the environment with the "
                "arguments "
                "of the saved one"
            )

    def close(self) -> None:
        self._path.unlink(missing_ok=True)

    def _suffix(self) -> str:
        """Return a warning after a turn; calls of tools are not turns, so a prompt need not count turns."""
        if not self.turn:
            return ""
        return f"Responses left with neither a call nor a box: {self.turn_limit - self.turn}."

    # -- players ------------------------------------------------------------------------------

    def sample_tool_call(self) -> tuple[str, dict[str, Any]]:
        """Return a tool call that reads the tables, for a random player."""
        tables = self.table_names()
        if not tables:
            return "list_tables", {}
        name = self.action_random.choice(tables)
        return self.action_random.choice([
            ("list_tables", {}), ("describe_table", {"table": name}),
            ("query", {"sql": f'SELECT count(*) FROM "{name}"'}),
        ])  # fmt: skip

    def table_names(self) -> list[str]:
        """Return the names of the initial tables."""
        return [line.split()[2] for line in self.task.setup.splitlines() if line.startswith("CREATE TABLE")]

    def oracle_tool_call(self, uses: int) -> tuple[str, dict[str, Any]] | None:
        """Return the tool call of the reference solution."""
        return None if uses else ("execute", {"sql": self.task.solution.strip()})

    def random_move(self, random: Random) -> str:
        return DONE

    def best_move(self) -> str | None:
        return self.task.answer or DONE

    def verify(self, action: str) -> bool | None:
        """Return whether the database and the answer are right, by following the instruction in Python.

        None for a response without a box, which does not end the episode, and for tasks about a constraint or
        a trigger, whose effects are no rows. False for a database that cannot be read under the limits of a
        call.

        Raises:
            EnvError: The process that reads the database ended, so that there is no verdict.
        """
        self._require_running("verify")
        answer = boxed_answer(action)
        if answer is None or not self.task.setup:
            return None
        try:
            verdict: bool | None = run_limited(
                "gem_envs._databases.second_solvers:judged_file", SECONDS,
                instruction=self.task.instruction, setup=self.task.setup, path=str(self._path), answer=answer,
            )  # fmt: skip
        except LimitedError as error:
            if error.kind in ("CPU time", "MemoryError"):
                return False
            raise EnvError(f"the database is not read: {error}") from None
        return verdict

    # -- the database -------------------------------------------------------------------------

    @property
    def task(self) -> DatabaseTask:
        """The task of this episode."""
        key = self.task_index, self.task_seed
        if self._task is None or self._task_key != key:
            self._task, self._task_key = self.source.task(*key), key
        return self._task

    @property
    def database(self) -> str | None:
        """The file of the database, packed as text; None if there is no database."""
        if not self._path.is_file():
            return None
        return base64.b64encode(zlib.compress(self._path.read_bytes(), 1)).decode()

    @database.setter
    def database(self, packed: str | None) -> None:
        if packed is None:
            self._path.unlink(missing_ok=True)
        else:
            self._path.write_bytes(_unpacked(packed, MOST_BYTES + self.given_bytes()))

    def given_bytes(self) -> int:
        """Return the size of a database that comes with the task."""
        return 0

    def prepare(self) -> None:
        """Create the database of the task."""
        build(self._path, self.task.setup)

    def wrong(self) -> list[str]:
        """Return the differences from the state after the reference solution."""
        return unlike_solution(self._path, self.task)


def _unpacked(packed: str, most: int) -> bytes:
    """Return the file of a saved database.

    Raises:
        ConfigError: It is damaged or larger than `most` bytes.
    """
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(base64.b64decode(packed, validate=True), most + 1)
    except (ValueError, TypeError, zlib.error) as error:
        raise ConfigError(f"the database of the state is damaged: {error}") from None
    if len(data) > most:
        raise ConfigError(f"the database of the state has more than {most} bytes")
    if not unpacking.eof:
        raise ConfigError("the database of the state is damaged: its end is missing")
    return data


def _same_answer(answer: str, reference: str) -> bool:
    """Return whether two answers have the same words, ignoring case, and the same values of numbers."""
    words, expected = (plain(text).casefold().replace(",", " ").split() for text in (answer, reference))
    return len(words) == len(expected) and all(map(_same_word, words, expected))


def _same_word(word: str, expected: str) -> bool:
    if _NUMBER.fullmatch(word) and _NUMBER.fullmatch(expected):
        return Fraction(word) == Fraction(expected)
    return word == expected
