"""One dataset of reasoning-gym, or a weighted mix of several."""

from __future__ import annotations

import inspect
import json
import logging
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import reasoning_gym
from reasoning_gym.composite import DatasetSpec

from gem_core import Info
from gem_core._core import ResetOptions, ResetResult, StepResult
from gem_core._util.checks import check_int
from gem_core.errors import ConfigError, EnvError
from gem_envs._base import check_bool
from gem_envs._rg import trusted
from gem_envs._rg.generators import own_generators, uses_global_generators
from gem_envs._rg.labels import corrected, label
from gem_envs._rg.scorers import SCORERS, scorer
from gem_envs._rg.solvers import JUDGES, UnknownPrompt
from gem_envs._rg.spelling import spellings
from gem_envs._text import boxed_answer, plain, undecorated
from gem_envs._working_directory import working_in
from gem_envs.data._rows import DataRow
from gem_envs.datasets._base import DatasetEnv, Graded, check_eval_only

_INSTRUCTION = "\n\nGive the final answer as \\boxed{answer}."
EXAMPLE_SEED = 5_000_011
"""Seed of the datasets whose answers are shown as examples."""
_CHUNK = 500
_ENDLESS = 2**31
_LONGEST = 20_000
"""Maximum length of an answer; a longer one is wrong."""
_SHORT = 10_000
_KEPT = 16
_RUNS_TEXT = re.compile(r"(?<![_.\w])(?:eval|exec|compile)\(|parse_expr|sympify|pickle|yaml")
_MADE_ELSEWHERE = {
    "codeio",
    "isomorphic_strings",
    "knight_swap",
    "list_functions",
    "polynomial_multiplication",
    "ransom_note",
    "word_ladder",
}
"""Datasets whose items or answers follow the order of sets: a process with a fixed order generates them."""
_MOST_CPU_SECONDS = 60.0
_log = logging.getLogger(__name__)
warnings.filterwarnings(  # pool_matrix warns about an empty answer, with the whole answer in the warning
    "ignore", "loadtxt: input contained no data", UserWarning, r"reasoning_gym\."
)
_READINGS: tuple[Callable[[str], str], ...] = (
    str.strip,
    partial(undecorated, keep_period=True),
    undecorated,
    plain,
)
"""Ways to read an answer, in the order in which they are scored until one of them is right."""
_MIX = [
    {"name": "leg_counting", "weight": 1.0, "config": {}},
    {"name": "chain_sum", "weight": 1.0, "config": {}},
    {"name": "spell_backward", "weight": 1.0, "config": {}},
]


class ReasoningGymEnv(DatasetEnv):
    r"""Answer an item of a reasoning-gym dataset.

    Action: the answer in ``\boxed{...}``; the last box with an answer counts.

    Rewards: the dataset's own score of the content of the box, from 0 to 1 (many datasets pay a little for
    a wrong answer in the right format); 0 without a box. Spaces around the answer, ``\text{...}``,
    ``$...$``, ``**...**``, quotation marks, backticks, and ``Answer:`` cost nothing: the better score with or
    without them counts. One step.

    The best return is 1. The oracle gives the item's own answer or the example in its metadata, and is None
    if there is neither.

    No answer is ever evaluated as a program: `scorers` replaces the scoring of datasets that would do so.
    """

    format_error_reward = 0.0
    state_fields: ClassVar[tuple[str, ...]] = ("index", "place", "order_seed")

    def __init__(
        self,
        name: str,
        size: int | None = 500,
        seed: int = 42,
        config: dict[str, Any] | None = None,
        datasets: list[dict[str, Any]] | None = None,
        eval_only: bool | None = None,
        example: bool = True,
    ) -> None:
        """Create the dataset.

        Args:
            name: Name of a dataset of reasoning-gym.
            size: Number of items. None means as many as there are seeds (2^31), generated in chunks.
            seed: Seed of the dataset.
            config: Settings of the dataset; None means its defaults.
            datasets: ``{"name", "weight", "config"}`` of each part of ``composite``; None means a small
                mix.
            eval_only: Whether all items are for evaluation only; False lets all of them be trained on. None
                reserves items 7, 15, 23, ... for evaluation.
            example: Whether the prompt shows the answer to another question of the dataset.

        Raises:
            ConfigError: The dataset does not exist, rejects its settings, or belongs to another version of
                the package and would evaluate answers.
        """
        if name not in reasoning_gym.factory.DATASETS:
            raise ConfigError(f"reasoning-gym has no dataset {name!r}")
        size = check_int("size", size, 1, optional=True)
        seed = check_int("seed", seed)
        if datasets is not None and name != "composite":
            raise ConfigError("datasets: only rg:composite accepts this argument")
        settings = dict(config or {})
        if name == "composite":
            settings["datasets"] = _MIX if datasets is None else datasets
        self.eval_only = check_eval_only(eval_only)
        self.rows = self._items = _Items(name, size, seed, settings)
        self.place, self.order_seed = -1, 0
        self.example = check_bool("example", example)
        self._instruction = None if name == "composite" else self._instruction_of(name)
        for part in _parts(settings) or (name,):
            if _runs_text(part):
                raise ConfigError(
                    f"reasoning-gym scores {part!r} by evaluating the answer; gem-core has no scorer for it"
                )
        if self._items.elsewhere:
            self.blocking = True

    def reset(self, seed: int | None = None, *, options: ResetOptions | None = None) -> ResetResult:
        if seed is not None or options is not None or self.place < 0:
            return super().reset(seed, options=options)
        self._running = True  # a shortcut to the next item; the full path costs a tenth of a small one
        place = self.place + 1
        self.place = self.index = place = place if place < self._items.size else 0
        self._item = item = self._items.get(place)
        return item["question"] + (self._instruction or self._instruction_for(item)), {}

    def step(self, action: str) -> StepResult:
        if not self._running or not isinstance(action, str):
            return super().step(action)
        answer = boxed_answer(action)
        if answer is None:
            return super().step("")  # a format error, without scanning a long text again
        self._running = False
        if len(answer) > _SHORT:
            score, text, _ = self.grade(answer, self.row)
            return text, score, True, False, {
                "invalid": None, "parsed_action": answer[:_SHORT], "success": score >= 1
            }  # fmt: skip
        score = self._items.score(answer, self._item or self.row)
        info: Info = {"invalid": None, "parsed_action": answer, "success": score == 1.0}
        return "That is right." if score == 1.0 else _text(score), score, True, False, info

    def question(self, row: DataRow) -> str:
        return f"{row['question']}{self._instruction or self._instruction_for(row)}"

    def _instruction_for(self, item: DataRow) -> str:
        """Return the instruction for an item of a mix."""
        return self._instruction_of(item["metadata"]["source_dataset"])

    def _instruction_of(self, name: str) -> str:
        example = _examples().get(name) if self.example else None
        if example is None:
            return _INSTRUCTION
        space = "\n" if "\n" in example else " "
        return f"{_INSTRUCTION} The answer to another question was{space}\\boxed{{{example}}}."

    parse = staticmethod(boxed_answer)

    def grade(self, answer: str, row: DataRow) -> Graded:
        score = self._items.score(answer, row) if len(answer) <= _LONGEST else 0.0
        return Graded(score, _text(score))

    def right_answer(self, row: DataRow) -> str | None:
        answer = label(row)
        return None if answer is None else f"\\boxed{{{answer}}}"

    def verify(self, action: str) -> bool | None:
        """Return whether a response is right, judged by a solver of `gem_envs._rg.solvers`."""
        self._require_running("verify")
        judge = JUDGES.get(self.row["metadata"].get("source_dataset", self._items.name))
        answer = boxed_answer(action)
        if judge is None or answer is None:
            return None
        try:
            return bool(judge(self.row["question"], answer))  # None: no answer is right
        except UnknownPrompt:
            return None

    def random_answer(self, row: DataRow, random: Random) -> str:
        """Return the answer of another item of the same chunk, which may be right by chance."""
        start = self.index - self.index % _CHUNK
        other = self.rows[start + random.randrange(min(_CHUNK, self._items.size - start))]
        return self.right_answer(other) or f"\\boxed{{{random.randrange(100)}}}"

    def _next(self, new_pass: bool) -> int:
        """Return the items in order from a random start, because they are drawn independently."""
        size = self._items.size
        self.place = self.random.randrange(size) if new_pass or self.place < 0 else (self.place + 1) % size
        return self.place


class _Items:
    """Numbered items of a dataset, generated in chunks if their number is unlimited."""

    columns: tuple[str, ...] = ("question", "answer", "metadata")

    def __init__(
        self, name: str, size: int | None, seed: int, settings: dict[str, Any], *, here: bool = False
    ) -> None:
        self.name = name
        self.settings = settings
        self.seed = seed
        self.size = _ENDLESS if size is None else size
        self._kept: dict[int, DataRow] = {}
        self._endless = size is None
        self._chunk = 0
        self._data = _create(name, _CHUNK if size is None else size, seed, settings)
        self._score = scorer(name, self._data)
        self._global = uses_global_generators(name, _parts(settings))
        self.elsewhere = not here and not _MADE_ELSEWHERE.isdisjoint((name, *_parts(settings)))
        kept = size is None or self._global or self.elsewhere
        self.get = self.__getitem__ if kept else self._data.__getitem__

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> DataRow:
        if index not in self._kept:  # generating an item may take a second: a group of resets shares it
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            self._kept[index] = self._made(index)
        return self._kept[index]

    def _made(self, index: int) -> DataRow:
        return self._made_elsewhere(index) if self.elsewhere else self.made_here(index)

    def _made_elsewhere(self, index: int) -> DataRow:
        task = (self.name, None if self._endless else self.size, self.seed, self.settings, index)
        try:
            item: DataRow = trusted.call("gem_envs._rg.env:item_here", *task, cpu_seconds=_MOST_CPU_SECONDS)
        except (trusted.LimitExceeded, trusted.CallFailed) as error:
            raise EnvError(f"reasoning-gym made no item {index} of {self.name!r}: {error}") from error
        return item

    def made_here(self, index: int) -> DataRow:
        """Return item `index`, generated in this process."""
        chunk, within = divmod(index, _CHUNK) if self._endless else (0, index)
        if chunk != self._chunk:
            self._data = _create(self.name, _CHUNK, self.seed + chunk * _CHUNK, self.settings)
            self._chunk = chunk
        if self._global:
            with own_generators(self.seed + index):
                shared: DataRow = self._data[within]
            return shared
        item: DataRow = self._data[within]
        return item

    def score(self, answer: str, row: DataRow) -> float:
        """Return the dataset's own score of the answer, unchanged or without decoration.

        The unchanged answer comes first, because spaces and stars may be part of a drawing.
        """
        score = self._scored(answer, row)
        if score == 1.0:
            return score
        tried = {answer}
        for text in self._readings(answer, row):
            if text not in tried:
                tried.add(text)
                score = max(score, self._scored(text, row))
                if score == 1.0:
                    break
        return score

    def _readings(self, answer: str, row: DataRow) -> Iterator[str]:
        """Yield the answer without decoration, and in other spellings that mean the same."""
        texts = [answer] if answer.isalnum() else list(dict.fromkeys(read(answer) for read in _READINGS))
        yield from texts
        expected = label(row)
        if expected is not None:
            for text in texts:
                yield from spellings(text, expected, row["metadata"].get("source_dataset", self.name))

    def _scored(self, answer: str, row: DataRow) -> float:
        """Return the score; an answer that makes the dataset's code fail is wrong."""
        try:
            score = self._score(answer, row)
            if score.__class__ is float and 0.0 <= score <= 1.0:
                return score
            return min(1.0, max(0.0, float(score)))
        except Exception:  # its parsers raise any exception
            return 0.0


@lru_cache
def _examples() -> dict[str, str]:
    """Return an answer by dataset, as ``tools/rg_examples.py`` wrote them."""
    text = (Path(__file__).parent / "examples.json").read_text(encoding="utf-8")
    examples: dict[str, str] = json.loads(text)
    return examples


def item_here(name: str, size: int | None, seed: int, settings: dict[str, Any], index: int) -> DataRow:
    """Run `_Items.made_here` in the worker, in an empty folder, because programs of codeio write files."""
    items = _Items(name, size, seed, settings, here=True)
    with tempfile.TemporaryDirectory() as folder, working_in(folder):
        return items.made_here(index)


def _create(name: str, size: int, seed: int, settings: dict[str, Any]) -> Any:
    try:
        return _shared(name, size, seed, json.dumps(settings, sort_keys=True))
    except (TypeError, ValueError, AssertionError, AttributeError, KeyError) as error:
        raise ConfigError(f"reasoning-gym rejects the settings of {name!r}: {error}") from error


@lru_cache(maxsize=32)
def _shared(name: str, size: int, seed: int, settings: str) -> Any:
    """Return the dataset, shared by the environments of a process because some take a second to create."""
    arguments = json.loads(settings)
    if "datasets" in arguments:
        arguments["datasets"] = [DatasetSpec(**part) for part in arguments["datasets"]]
    dataset = corrected(name, reasoning_gym.create_dataset(name, size=size, seed=seed, **arguments))
    _log_prints()
    return dataset


def _log_prints() -> None:
    """Redirect the output of reasoning-gym to the log; tower_of_hanoi prints a line per bad move."""
    for name, module in list(sys.modules.items()):
        if name.startswith("reasoning_gym."):
            vars(module).setdefault("print", lambda *words, **_: _log.debug(" ".join(map(str, words))))


@lru_cache
def _runs_text(name: str) -> bool:
    """Return whether the package's scoring would evaluate the model's text, judging by its source.

    The datasets of the recorded version have been reviewed; this is for other versions.
    """
    if name in SCORERS or name not in reasoning_gym.factory.DATASETS:
        return False
    dataset = reasoning_gym.factory.DATASETS[name][0]
    source = inspect.getsource(dataset.score_answer)
    for method in re.findall(r"self\.(\w+)\(", source):
        if inspect.isfunction(getattr(dataset, method, None)):
            source += inspect.getsource(getattr(dataset, method))
    return _RUNS_TEXT.search(source) is not None


def _parts(settings: dict[str, Any]) -> tuple[str, ...]:
    return tuple(part.get("name", "") for part in settings.get("datasets", ()))


def _text(score: float) -> str:
    return (
        "That is right." if score >= 1 else "That is not right." if score < 0.5 else "That is partly right."
    )
