r"""`DatasetEnv`: one item of a dataset, one answer, one score.

| response | reward | effect |
|---|---|---|
| without a readable answer | `format_error_reward` | terminates, ``info["invalid"] == "format"`` |
| an answer | its score, from 0 to 1 | terminates, ``info["success"]``: whether the score is 1 |

``reset(options={"index": i})`` selects item i. ``reset(seed=s)`` starts a new pass over the data in an order
derived from s; each reset without a seed takes the next item of the pass, and after the last one a new pass
in another order begins. Resets with seeds alone therefore draw with replacement; callers that play every item
once select items by the indices that `DatasetEnv.items` returns (`gem_core.tasks`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, get_args
from weakref import WeakKeyDictionary

from gem_core import Env, Info, Observation
from gem_core._core import ResetOptions, ResetResult, Split, StepResult, check_reset_options
from gem_core._util.checks import check_choice, check_int, expected
from gem_core._util.order import Order
from gem_core.errors import ConfigError, DataError, ResetNeeded
from gem_envs.data import GeneratedRows, Rows, open_rows
from gem_envs.data._columns import answer_texts, prompt_text, roots
from gem_envs.data._file_rows import SUFFIXES
from gem_envs.data._formats import FORMATS, DataFormat, recognized
from gem_envs.data._hub import split_of
from gem_envs.data._rows import ChosenRows, DataRow
from gem_envs.data._split import ItemSplit, split_by_content, split_by_index, undivided

logger = logging.getLogger(__name__)

BadRows: TypeAlias = Literal["error", "skip"]
"""What happens to rows that cannot be graded."""


class Graded(NamedTuple):
    """Result of grading an answer."""

    score: float
    """Score from 0 to 1; 1 is right."""
    text: str
    """Feedback for the player. It does not reveal the answer, so that a retry makes sense."""
    metrics: dict[str, float] = {}  # noqa: RUF012  # never changed; a tuple has no default_factory


class DatasetEnv(Env):
    """Base class of dataset environments. A subclass shows an item, and reads and grades an answer.

    The rows come from a dataset by name (`open`) or are passed to `use_rows`. Missing columns are reported
    when the environment is created.
    """

    state_fields: ClassVar[tuple[str, ...]] = ("index", "place", "order_seed", "epoch")
    max_return: float | None = 1.0
    form: str = "\\boxed{}"
    """How a response marks an answer, for messages."""

    rows: Rows
    possible_answers: int | None = None
    """Number of different answers, for `retry`; None if it is large or unknown."""
    eval_only: bool | None = None
    """Whether all items or no items are for evaluation only; None reserves one in eight (`split_rows`)."""
    key_columns: tuple[str, ...] | None = None
    """Columns that identify an item; None means all of its columns."""
    index: int
    """Index of the current item."""
    place: int
    """Position in the current pass; -1 before the first item."""
    order_seed: int
    """Seed of the order of the current pass."""
    epoch: int
    """Number of passes that were completed, because a reset without a seed came after the last item."""

    _item: DataRow | None = None
    """The row of `index` once it has been read."""
    _parts: ItemSplit | None = None
    """Return value of `split_rows`."""

    # -- hooks --------------------------------------------------------------------------------

    def question(self, row: DataRow) -> Observation:
        """Return the first observation."""
        raise NotImplementedError

    def parse(self, text: str) -> str | None:
        """Return the answer in a response; None is a format error."""
        raise NotImplementedError

    def grade(self, answer: str, row: DataRow) -> Graded:
        """Return the score of an answer."""
        raise NotImplementedError

    def right_answer(self, row: DataRow) -> str | None:
        """Return a correct response if the item provides one."""
        return None

    def random_answer(self, row: DataRow, random: Random) -> str:
        """Return a response with a readable answer, by default the right answer of some item."""
        answer = self.right_answer(self.rows[random.randrange(len(self.rows))])
        return answer if answer is not None else f"\\boxed{{{random.randrange(100)}}}"

    def use_format(self, form: DataFormat, question: str, answer: str) -> dict[str, str]:
        """Read the rows of a format; return the required columns by the argument that names the column."""
        raise ConfigError(f"{type(self).__name__} does not read data formats; name the columns instead")

    def row_problem(self, row: DataRow) -> str | None:
        """Return why a row cannot be shown or graded; None if it can."""
        return None

    # -- data ---------------------------------------------------------------------------------

    def graded_keys(self, columns: Mapping[str, str]) -> Sequence[str]:
        """Return the columns that `row_problem` reads: those of `columns`, or all; see `open`."""
        return [*columns.values()] or self.rows.columns

    def open(
        self,
        dataset_name: str | None,
        dataset: list[DataRow] | None,
        split: str | None,
        subset: str | None,
        streaming: bool,
        eval_only: bool | None,
        columns: Mapping[str, str],
        data_format: str | None = None,
        bad_rows: BadRows = "error",
    ) -> None:
        """Set `rows` and `eval_only` from the arguments that all families share; see `MathEnv`.

        `columns` maps the arguments that name a column to the required columns, as in `use_rows`. A
        `data_format` replaces them.

        Raises:
            ConfigError: There is no dataset or more than one, or it lacks a required column.
            DataError: The dataset cannot be found, reached, or read, is empty, or has a row that cannot be
                graded.
            UnknownName: There is no such format.
        """
        check_choice("bad_rows", bad_rows, get_args(BadRows))
        if (dataset_name is None) == (dataset is None):
            raise ConfigError(
                "give dataset_name= (a file, a folder, or a hub id) or dataset= (a list of rows)"
            )
        rows: Rows
        if dataset is not None:
            rows = _ListRows(dataset)
        else:
            rows = open_rows(str(dataset_name), split, subset=subset, streaming=streaming)
        if data_format is not None and len(rows):
            form = FORMATS.get(data_format)
            columns = self.use_format(form, *form.keys(rows.name, rows.columns))
        self.use_rows(rows, columns)
        self._leave_out_bad_rows(self.graded_keys(columns), skip=bad_rows == "skip")
        self.eval_only = check_eval_only(eval_only)
        if eval_only is None and _is_for_evaluation(split, dataset_name):
            self.eval_only = True

    def use_rows(self, rows: Rows, columns: Mapping[str, str] | None = None) -> None:
        """Set `rows`; generated rows also determine whether they are for evaluation.

        Args:
            rows: At least one row.
            columns: Required columns by the argument that names the column, for messages. The first one and
                the one of ``image_key`` identify an item.

        Raises:
            ConfigError: The rows lack a required column.
            DataError: There are no rows.
        """
        if not len(rows):
            raise DataError(f"{rows.name} has no rows; choose another file or split")
        for argument, key in (columns or {}).items():
            for column in roots(key, rows.columns):
                if column not in rows.columns:
                    form = recognized(rows.columns, rows[0])
                    advice = "" if form is None else f"; for its format, set data_format={form!r}"
                    raise ConfigError(
                        f"{rows.name} has no column {column!r} ({argument}); it has {', '.join(rows.columns)}"
                        f"{advice}"
                    )
        self.rows = rows
        self.place, self.order_seed, self.epoch = -1, 0, 0
        if columns:
            first = roots(next(iter(columns.values())), rows.columns)
            self.key_columns = (*first, *(columns[name] for name in ("image_key",) if name in columns))
        if isinstance(rows, GeneratedRows):
            self.eval_only = rows.split == "test"

    def _leave_out_bad_rows(self, keys: Sequence[str], *, skip: bool) -> None:
        """Check every row that is cheap to read.

        Raises:
            DataError: A row cannot be graded, and `skip` is not set, or no row can be graded.
        """
        rows: Any = self.rows
        if not hasattr(rows, "scan") or not getattr(rows, "is_local", True):
            return
        columns = tuple(dict.fromkeys(root for key in keys for root in roots(key, rows.columns)))
        known = _bad_rows.setdefault(rows, {})
        key = (type(self), columns, getattr(self, "keys", None), getattr(self, "no_answer", None))
        if key not in known:
            every = (dict(zip(columns, values, strict=True)) for values in rows.scan(columns))
            problems = ((index, self.row_problem(row)) for index, row in enumerate(every))
            known[key] = {index: problem for index, problem in problems if problem is not None}
        wrong = known[key]
        if wrong and (not skip or len(wrong) == len(rows)):
            first = next(iter(wrong))
            advice = "" if skip else "; correct it, or leave such rows out with bad_rows='skip'"
            raise DataError(
                f"{rows.name}: {len(wrong)} of {len(rows)} rows cannot be graded, such as row {first}: "
                f"{wrong[first]}{advice}"
            )
        if wrong:
            logger.warning("%s: %d of %d rows are left out", rows.name, len(wrong), len(rows))
            self.rows = ChosenRows(rows, [index for index in range(len(rows)) if index not in wrong])

    def items(self, split: Split) -> Sequence[int]:
        if self.eval_only is not None:
            return undivided(len(self.rows), self.eval_only, split)
        if self._parts is None:
            self._parts = self.split_rows()
        return self._parts.of(split)

    def split_rows(self) -> ItemSplit:
        """Split the items if `eval_only` is None: by content if possible, else by index.

        Rows whose class has a method ``scan(columns)``, such as those in memory or in local files, are read
        and split by the values of their `key_columns`; rows generated on demand or read over the network are
        not.
        """
        rows: Any = self.rows
        if not hasattr(rows, "scan") or not getattr(rows, "is_local", True):
            return split_by_index(len(rows))
        return _split_by_content(rows, self.key_columns or rows.columns)

    # -- the contract -------------------------------------------------------------------------

    def reset(self, seed: int | None = None, *, options: ResetOptions | None = None) -> ResetResult:
        check_reset_options(options, ("index", "state"), "a dataset")
        options = options or {}
        state, index = options.get("state"), options.get("index")
        if state is not None and index is not None:
            raise ConfigError("reset options 'index' and 'state' cannot be combined")
        self.begin_episode(seed)
        if state is not None:
            self.resume_episode(state)
            if seed is not None:
                self.begin_episode(seed)
        else:
            self.index = self._next(new_pass=seed is not None) if index is None else self._checked(index)
        self._item = None
        return self.question(self.row), {}

    def step(self, action: str) -> StepResult:
        self.require_reset()
        if not isinstance(action, str):
            raise TypeError(f"an action is the response as a str, not {type(action).__name__}")
        self.end_episode()
        answer = self.parse(action)
        if answer is None:
            text = f"No answer in {self.form} was found."
            return text, self.format_error_reward, True, False, {"invalid": "format", "success": False}
        score, text, metrics = self.grade(answer, self.row)
        info: Info = {"invalid": None, "parsed_action": answer[:10_000], "success": score >= 1}
        if metrics:
            info["metrics"] = metrics
        return text, score, True, False, info

    def sample_random_action(self) -> str:
        self._require_running("sample_random_action")
        return self.random_answer(self.row, self.action_random)

    def oracle_action(self) -> str | None:
        self._require_running("oracle_action")
        return self.right_answer(self.row)

    def set_state(self, state: Mapping[str, Any]) -> None:
        before = getattr(self, "index", None)
        super().set_state(state)
        if self._running:
            self._checked(self.index)
        if self.index != before:  # reading an item can take a second
            self._item = None

    @property
    def row(self) -> DataRow:
        """The current item."""
        if self._item is None:
            self._item = self.rows[self.index]
        return self._item

    @row.setter
    def row(self, row: DataRow) -> None:
        """Replace the row by which answers are graded, until another item is chosen."""
        self._item = row

    # -- plumbing -----------------------------------------------------------------------------

    def _next(self, new_pass: bool) -> int:
        self.place += 1
        size = len(self.rows)
        self.epoch += self.place >= size and not new_pass
        if new_pass or self.place >= size or self.place == 0:
            self.place = 0
            self.order_seed = self.random.getrandbits(32)
        return Order(size, self.order_seed)[self.place]

    def _checked(self, index: Any) -> int:
        position = check_int("index", index)
        if not 0 <= position < len(self.rows):
            raise ConfigError(
                f"index={position} is out of range: {self.rows.name} has {len(self.rows)} items"
            )
        return position

    def _require_running(self, method: str) -> None:
        if not self._running:
            raise ResetNeeded(f"{type(self).__name__}.{method}() needs a running episode; call reset() first")


class _ListRows:
    """Rows in memory."""

    name = "dataset"

    def __init__(self, rows: list[DataRow]) -> None:
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ConfigError("dataset: expected a list of dicts")
        self._rows = rows
        self.columns = tuple(rows[0]) if rows else ()

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> DataRow:
        return dict(self._rows[index])

    def scan(self, columns: Sequence[str]) -> Iterator[list[Any]]:
        return ([row.get(column) for column in columns] for row in self._rows)


_bad_rows: WeakKeyDictionary[Any, dict[Any, dict[int, str]]] = WeakKeyDictionary()
"""Indices of the rows of a dataset that cannot be graded, and why, by the way in which they are read."""


@lru_cache(maxsize=8)
def _split_by_content(rows: Any, columns: tuple[str, ...]) -> ItemSplit:
    """Return the split of rows, computed once and shared by the environments of a process."""
    return split_by_content(rows.scan(columns))


def check_eval_only(value: Any) -> bool | None:
    """Return `value` if it is valid for the argument ``eval_only``.

    Raises:
        ConfigError: The value is invalid.
    """
    if value is None or isinstance(value, bool):
        return value
    raise expected("eval_only", value, "True or False", optional=True)


def _is_for_evaluation(split: str | None, dataset_name: str | None) -> bool:
    """Return whether the split, or the file if there is no split, is named test or validation."""
    name = split or (
        Path(dataset_name).name if dataset_name and Path(dataset_name).suffix in SUFFIXES else ""
    )
    return split_of(name) in ("test", "validation")


def text_of(row: DataRow, key: str, rows: Rows) -> str:
    """Return the text at a key: a text, or chat messages; see `gem_envs.data._columns.prompt_text`.

    Raises:
        DataError: The row has no text there.
    """
    try:
        return prompt_text(row, key)
    except DataError as error:
        raise DataError(f"{rows.name}: {error}") from None


def references(row: DataRow, key: str, rows: Rows) -> list[str]:
    """Return the right answers at a key; see `gem_envs.data._columns.answer_texts`.

    Raises:
        DataError: The row has no answer.
    """
    try:
        return answer_texts(row, key)
    except DataError as error:
        raise DataError(f"{rows.name}: {error}") from None


def problem_of(row: DataRow, question: str, answer: str | None) -> str | None:
    """Return why a row has no prompt, or no answer if `answer` is a key; None if it has them."""
    try:
        prompt_text(row, question)
        if answer is not None:
            answer_texts(row, answer)
    except DataError as error:
        return str(error)
    return None
