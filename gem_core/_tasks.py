"""Task rows: the content of a trainer's dataset, generated from environment ids and a seed.

A row is ``{"env_id", "env_kwargs", "seed", "index", "item"}``. The plugin of each trainer writes rows in the
trainer's format (`gem-core export`) or generates them on the fly; `Env.reset` creates the task from a row.

An environment over a dataset has numbered items, some for training and the others for evaluation
(`Env.items`). Training tasks draw training items without replacement, in one shuffled pass after another.
Evaluation tasks use each evaluation item at most once.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import ceil, isfinite
from pathlib import Path
from random import Random
from typing import Any, TypedDict, get_args

from gem_core._core import Env, Split
from gem_core._observations import encodable
from gem_core._registration import WrapperLike, accepted_arguments, make, may_have_items, spec, wrap
from gem_core._spec import EnvSpec
from gem_core._util.checks import check_choice, check_int, expected
from gem_core._util.entry_points import absolute
from gem_core._util.expressions import parse_expression
from gem_core._util.files import write_json_lines
from gem_core._util.foreign_json import read_json
from gem_core._util.order import Order
from gem_core._util.seeds import derive_rng
from gem_core._util.urls import without_secrets
from gem_core.errors import ConfigError, GemError

EVAL_SEEDS = range(0, 1_000_000)
"""Seeds for evaluation, taken in order from the first; training never uses them."""
TRAIN_SEEDS = range(1_000_000, 2**31)
"""Seeds for training."""

ALIAS = "as"
"""Key of an environment's own name among its keyword arguments, so that rows of every trainer hold it. No
constructor has an argument of this name, because it is a keyword of Python."""

# Parts of random seeds: changing them changes the generated tasks.
_MIX_SALT: dict[Split, str] = {"train": "train", "eval": "held_out"}
_EVAL_ORDER_SALT = "held out"


class TaskRow(TypedDict):
    """One sample of one task."""

    env_id: str
    env_kwargs: dict[str, Any]
    seed: int
    """Seed for `Env.reset`; the same for all samples of a group."""
    index: int
    """Index of the task; the same for all samples of a group."""
    item: int | None
    """Item of the dataset, for ``reset(options={"index": item})``; the same for all samples of a group.
    None if the seed alone determines the task."""


def read_task(fields: Mapping[str, Any]) -> TaskRow:
    """Return the task in a row of a trainer's dataset.

    Args:
        fields: Fields of a `TaskRow`. `env_kwargs` may be JSON text, because a column has one type for all
            rows. `env_kwargs`, `index`, and `item` may be missing.

    Raises:
        ConfigError: A field is missing or cannot be read. The caller should add instructions for generating
            the data.
    """
    if not isinstance(fields, Mapping):
        raise expected("task", fields, "a dict with the fields of a TaskRow")
    for key in ("env_id", "seed"):
        if fields.get(key) is None:
            raise ConfigError(f"{key} is missing")
    kwargs = fields.get("env_kwargs") or {}
    try:
        return TaskRow(
            env_id=str(fields["env_id"]),
            env_kwargs=dict(read_json(kwargs) if isinstance(kwargs, str) else kwargs),
            seed=int(fields["seed"]),
            index=int(fields.get("index") or 0),
            item=None if fields.get("item") is None else int(fields["item"]),
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{dict(fields)!r} is not a task: {error}") from error


def reset_arguments(task: TaskRow) -> dict[str, Any]:
    """Return the keyword arguments of `Env.reset` and `run_episode` that select the task."""
    item = task.get("item")
    return {"seed": task["seed"], "options": None if item is None else {"index": item}}


@dataclass(frozen=True)
class EnvChoice:
    """One environment of a mix.

    Attributes:
        env_id: Registered id, or ``PATH.py:CLASS``.
        env_kwargs: Keyword arguments in addition to the id's own. Under "wrappers", the environment's own
            wrappers, and under `ALIAS`, its own name in metrics.
        weight: Weight relative to the other environments, which determines the share of the tasks.
    """

    env_id: str
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    weight: float = 1.0

    @classmethod
    def of(cls, task: TaskRow) -> EnvChoice:
        """Return the environment of a task."""
        return cls(task["env_id"], task["env_kwargs"])

    @classmethod
    def parse(cls, text: str) -> EnvChoice:
        """Read ``ID``, ``ID(key=value, ...)``, each also with `` as NAME`` and at the end ``=WEIGHT``.

        >>> EnvChoice.parse("game:GuessTheNumber-v0(max_number=50)=2")
        EnvChoice(env_id='game:GuessTheNumber-v0', env_kwargs={'max_number': 50}, weight=2.0)
        >>> EnvChoice.parse("game:GuessTheNumber-v0(max_number=50) as guess=2").label
        'guess'

        The path of an id ``PATH.py:CLASS`` becomes absolute, because trainers run in other folders.

        Raises:
            ConfigError: The text has none of these forms, or the weight is not above 0.
        """
        # The folders of a file may have any name.
        env = r"([^:]*\.py:[\w.]+|[^()=\s]+)\s*(?:\((.*)\))?(?:\s*\bas\s+(\w[\w.-]*))?\s*(?:=\s*([^=()\s]+))?"
        try:
            match = re.fullmatch(env, str.strip(text), re.DOTALL)
            if match is None:
                unbalanced = text.count("(") != text.count(")")
                raise ValueError("a parenthesis is missing" if unbalanced else "there is no id")
            call = parse_expression(f"f({match[2] or ''})")
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                raise ValueError("write the arguments in one pair of parentheses")
            if call.args or any(k.arg is None for k in call.keywords):
                raise ValueError("arguments need names, such as max_turns=5")
            kwargs = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg}
            weight = float(match[4] or 1)
        except (SyntaxError, TypeError, ValueError) as error:  # TypeError: a literal such as {[]: 1}
            raise ConfigError(
                f"{text!r} is not an environment: expected an id with optional arguments, name, and weight, "
                f"such as 'game:GuessTheNumber-v0(max_number=50) as guess=2' ({error})"
            ) from None
        if not (isfinite(weight) and weight > 0):
            raise ConfigError(f"{text!r}: expected a weight above 0")
        return cls(absolute(match[1]), kwargs | ({ALIAS: match[3]} if match[3] else {}), weight)

    def for_split(self, split: Split) -> EnvChoice:
        """Return this choice with the arguments for a split; see ``EnvSpec.eval_kwargs``.

        Raises:
            UnknownEnv: There is no such id.
        """
        own = spec(self.env_id).eval_kwargs if split == "eval" else {}
        return replace(self, env_kwargs={**own, **self.env_kwargs})

    def make(self, wrappers: WrapperLike | Sequence[WrapperLike] = ()) -> Env:
        """Build the environment, with its own wrappers inside the given ones.

        Raises:
            ConfigError: The environment rejects its arguments.
            GemError: As in `gem_core.make`.
        """
        arguments = self.arguments
        own = arguments.pop("wrappers", ())
        try:
            return wrap(make(self.env_id, wrappers=own, **arguments), wrappers)
        except GemError:
            raise
        except (TypeError, ValueError) as error:  # unknown arguments, or values the constructor rejects
            text = str(error)
            raise ConfigError(text if text.startswith(self.env_id) else f"{self.env_id}: {text}") from error

    def check_buildable(
        self,
        wrappers: WrapperLike | Sequence[WrapperLike] = (),
        *,
        no_images: str | Callable[[], str | None] | None = None,
        services: bool = True,
    ) -> bool:
        """Build and close the environment, to report errors before any episode is played.

        Args:
            wrappers: Wrappers around the environment, as in `gem_core.make`.
            no_images: Reason why the policy takes no images, or None if it takes them; or a function that
                returns this, which is called only if the environment shows images.
            services: Whether servers that the environment depends on must answer.

        Returns:
            Whether the environment shows images.

        Raises:
            ConfigError: The environment shows images, but the policy takes none.
            GemError: As in `make`, or a server does not answer.
        """
        with self.make(wrappers) as env:
            if services:
                env.check_services()
            if env.shows_images:
                reason = no_images() if callable(no_images) else no_images
                if reason is not None:
                    raise ConfigError(f"{self.label} shows images, but {reason}")
            return env.shows_images

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the environment, without its own name."""
        return {key: value for key, value in self.env_kwargs.items() if key != ALIAS}

    @property
    def call(self) -> str:
        """``ID`` or ``ID(key=value, ...)``: the environment in the form that `parse` reads."""
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.arguments.items())
        return f"{self.env_id}({arguments})" if arguments else self.env_id

    @property
    def label(self) -> str:
        """Name in metrics and reports: the environment's own name, or `call` without secrets, in UTF-8."""
        return encodable(without_secrets(str(self.env_kwargs.get(ALIAS) or self.call)))

    @property
    def text(self) -> str:
        """The environment and its own name, in the form that `parse` reads; without the weight."""
        return f"{self.call} as {self.label}" if ALIAS in self.env_kwargs else self.call


def check_labels(sources: Iterable[EnvChoice]) -> None:
    """Raise a `ConfigError` if two different environments have the same label."""
    calls: dict[str, str] = {}
    for source in sources:
        if (other := calls.setdefault(source.label, source.call)) != source.call:
            raise ConfigError(f"both {other} and {source.call} are named {source.label!r}; change one name")


def make_tasks(
    sources: Sequence[EnvChoice],
    num_tasks: int,
    *,
    seed: int = 0,
    group_size: int = 1,
    split: Split = "train",
    start: int = 0,
) -> Iterator[TaskRow]:
    """Return an iterator over the rows of `num_tasks` tasks, with `group_size` consecutive rows per task.

    The same arguments give the same rows, and a smaller `num_tasks` gives a prefix of them. No two tasks of a
    call share a seed, and training and evaluation tasks never share one.

    A source with items plays each training item once before it repeats any, in an order determined by `seed`,
    the source, and the index of the pass. Evaluation tasks are the same in every call: they use the first
    seeds of `EVAL_SEEDS`, and each evaluation item at most once, so there are fewer than `num_tasks` if the
    items of all sources are used up. For evaluation tasks, `seed` only affects the choice between sources.

    Args:
        sources: The environments of the mix.
        num_tasks: Number of tasks.
        seed: Random seed for the seeds of the tasks, the order of the items, and the choice of sources.
        group_size: Number of samples of each task.
        split: Whether the tasks are for training or evaluation.
        start: Index of the first task; the first `start` tasks of a longer call are skipped.

    Raises:
        ConfigError: There is no source or more tasks than seeds, a number is out of range, the weights are
            too large to add up, or a source has no item for `split`.
        GemError: As in `EnvChoice.make`; a source whose items must be counted is built once.
    """
    if not sources or not all(isinstance(source, EnvChoice) for source in sources):
        raise ConfigError(
            f"sources={sources!r:.80}: expected one EnvChoice or more, such as EnvChoice('game:Wordle-v0')"
        )
    check_choice("split", split, get_args(Split))
    check_int("num_tasks", num_tasks, 1)
    check_int("group_size", group_size, 1)
    check_int("start", start, 0)
    check_int("seed", seed)
    if not isfinite(sum(source.weight for source in sources)):
        weights = ", ".join(f"{source.env_id}={source.weight:g}" for source in sources)
        raise ConfigError(f"the weights {weights} are too large to add up; only their ratios matter")
    seeds = TRAIN_SEEDS if split == "train" else EVAL_SEEDS
    if start + num_tasks > len(seeds):
        raise ConfigError(f"{start + num_tasks} tasks exceed the {len(seeds)} seeds of the split {split!r}")
    check_labels(sources)
    samplers = {source.label: _ItemSampler(source, seed, split) for source in sources}
    return _rows(sources, samplers, range(start, start + num_tasks), seed, group_size, split, seeds)


def evaluation_tasks(sources: Sequence[EnvChoice], num_tasks: int, *, repeat: int = 1) -> list[TaskRow]:
    """Return the tasks of an evaluation, which are always the same; see `make_tasks`.

    Args:
        sources: Environments, among which the tasks are divided evenly.
        num_tasks: Maximum total number of tasks; each environment gets at least one.
        repeat: Number of episodes per task.

    Raises:
        ConfigError: An environment is listed twice.
    """
    for label in (labels := [source.label for source in sources]):
        if labels.count(label) > 1:
            raise ConfigError(f"{label} is listed twice; list it once: an evaluation plays the same tasks")
    each = max(check_int("num_tasks", num_tasks, 1) // max(len(sources), 1), 1)
    return [
        task for source in sources for task in make_tasks([source], each, split="eval", group_size=repeat)
    ]


def count_items(source: EnvChoice, split: Split) -> int | None:
    """Return the number of items of `source` in `split`; None if the seed determines the task.

    Raises:
        ConfigError: There is no item for `split`; the message gives advice.
        GemError: As in `EnvChoice.make`.
    """
    items = _split_of(source, split)[1]
    return None if items is None else len(items)


def check_train_row(task: TaskRow) -> None:
    """Check that a row may be used for training.

    Raises:
        ConfigError: The item is for evaluation only, or the row of a dataset names no item; the message
            gives advice.
        GemError: As in `EnvChoice.make`.
    """
    source = EnvChoice.of(task)
    items, item = _split_of(source, "train")[1], task.get("item")
    if items is None:
        return
    if item is None:
        raise ConfigError(
            f"the row names no item of {source.label}, so it could play an evaluation item; generate "
            "the rows again with `gem-core export`"
        )
    if item not in items:
        raise ConfigError(
            f"item {item} of {source.label} is for evaluation only, or does not exist; generate rows for "
            "training with `--split train`"
        )


def tasks_per_epoch(sources: Sequence[EnvChoice]) -> int | None:
    """Return the number of training tasks that play every item once; None if no source has items.

    With several sources, this is the average number of tasks until the slowest source has played its items.

    Raises:
        GemError: As in `count_items`.
    """
    total = sum(source.weight for source in sources)
    counts = [(count_items(source, "train"), source.weight / total) for source in sources]
    return max((ceil(count / share - 1e-9) for count, share in counts if count is not None), default=None)


def write_tasks(rows: Iterable[TaskRow], path: str | Path) -> None:
    """Write rows as JSON Lines, atomically: a reader never sees an incomplete file."""
    write_json_lines(path, rows)


def _rows(
    sources: Sequence[EnvChoice],
    samplers: Mapping[str, _ItemSampler],
    numbers: range,
    seed: int,
    group_size: int,
    split: Split,
    seeds: range,
) -> Iterator[TaskRow]:
    random = derive_rng("tasks", _MIX_SALT[split], seed)
    first = random.randrange(len(seeds)) if split == "train" else 0
    if len(sources) == 1:
        samplers[sources[0].label].played = numbers.start
    left = list(sources)
    shares = list(accumulate(source.weight for source in left))
    for index in numbers if len(sources) == 1 else range(numbers.stop):
        (source,) = random.choices(left, cum_weights=shares)
        sampler = samplers[source.label]
        while split == "eval" and sampler.is_used_up:
            left = [other for other in left if other.label != source.label]
            if not left:
                return
            shares = list(accumulate(source.weight for source in left))
            (source,) = random.choices(left, cum_weights=shares)
            sampler = samplers[source.label]
        item = sampler.next()
        for _ in range(group_size if index in numbers else 0):
            yield TaskRow(
                env_id=source.env_id,
                env_kwargs=dict(sampler.env_kwargs),
                seed=seeds[(first + index) % len(seeds)],
                index=index,
                item=item,
            )


class _ItemSampler:
    """The items of a source, drawn one by one without replacement.

    Raises:
        GemError: As in `count_items`.
    """

    def __init__(self, source: EnvChoice, seed: int, split: Split) -> None:
        self.env_kwargs, self._items = _split_of(source, split)
        self._name = f"items {seed} {source.call}"
        self._shuffled = split == "train"
        self._order: tuple[int, Order] | None = None
        self.played = 0
        """Number of items drawn so far, over all passes."""

    @property
    def is_used_up(self) -> bool:
        """Whether every item was drawn once."""
        return self._items is not None and self.played >= len(self._items)

    def next(self) -> int | None:
        """Return the next item; None if the source has no items."""
        if self._items is None:
            return None
        passes, place = divmod(self.played, len(self._items))
        self.played += 1
        if self._order is None or self._order[0] != passes:
            name = f"{self._name} {passes}" if self._shuffled else _EVAL_ORDER_SALT
            self._order = passes, Order(len(self._items), Random(name).getrandbits(32))
        return self._items[self._order[1][place]]


_splits: dict[tuple[str, Split], tuple[EnvSpec, dict[str, Any], Sequence[int] | None]] = {}
"""Cache of `_split_of` by text of the source and split; valid while the spec is the same object."""


def _split_of(source: EnvChoice, split: Split) -> tuple[dict[str, Any], Sequence[int] | None]:
    """Return the arguments and items of `source` for `split`; its environment is built only once.

    Raises:
        ConfigError: There is no such item; the message gives advice.
        GemError: As in `EnvChoice.make`.
    """
    env_spec = spec(source.env_id)
    cached = _splits.get((source.text, split))
    if cached is None or cached[0] is not env_spec:
        played = source.for_split(split)
        items: Sequence[int] | None = None
        if may_have_items(env_spec):
            with played.make() as env:
                items = env.items(split)
                if items is not None and not len(items):
                    raise ConfigError(
                        _nothing_to_play(source, split, env_spec, len(env.items(_OTHER[split]) or ()))
                    )
        cached = _splits[source.text, split] = env_spec, played.env_kwargs, items
    return cached[1], cached[2]


_OTHER: dict[Split, Split] = {"train": "eval", "eval": "train"}


def _nothing_to_play(source: EnvChoice, split: Split, env_spec: EnvSpec, others: int) -> str:
    """Return a message that says why a source has no item for `split`, with advice."""
    conflict = [key for key in env_spec.eval_kwargs if key in source.env_kwargs]
    if split == "eval":
        advice = f"omit {conflict[0]}=" if conflict else "evaluate on another environment"
        return f"{source.label} has no evaluation items, all {others} are for training; {advice}"
    accepted = accepted_arguments(env_spec)
    if not conflict and "eval_only" in accepted:
        named = EnvChoice(source.env_id, {**source.env_kwargs, "eval_only": False}).text
        advice = f"to train on them anyway, use {named!r}"
    elif "split" in accepted:
        advice = "set split='train'"
    else:
        advice = "train on another environment"
    return f"{source.label}: all {others} items are for evaluation only; {advice}"
