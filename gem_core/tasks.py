"""Task rows: what a trainer's data set has to hold, made from environment ids and a seed.

A row is ``{"env_id", "env_kwargs", "seed", "index"}``. Each trainer's plugin writes them in its own
format (`gem-core export`) or makes them on the fly; the environment does the rest at reset.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import isfinite
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeAlias, TypedDict

from gem_core.core import Env
from gem_core.errors import ConfigError, GemError
from gem_core.files import write_atomically
from gem_core.registration import WrapperLike, make

Split: TypeAlias = Literal["train", "held_out"]

EVAL_SEEDS = range(0, 1_000_000)
"""Held-out seeds: evaluation takes the first ones, training never draws from here."""
TRAIN_SEEDS = range(1_000_000, 2**31)


class TaskRow(TypedDict):
    """One sample of one task."""

    env_id: str
    env_kwargs: dict[str, Any]
    seed: int
    """For `Env.reset`; the same for all samples of a group."""
    index: int
    """Number of the task; the same for all samples of a group."""


def read_task(fields: Mapping[str, Any]) -> TaskRow:
    """The task in a row that came back from a trainer's data set.

    Args:
        fields: Those of a `TaskRow`; `env_kwargs` may be JSON text, because a column has one type for
            all rows, and like `index` may be missing.

    Raises:
        ConfigError: A field is missing or cannot be read; the caller says how to make the data.
    """
    for key in ("env_id", "seed"):
        if fields.get(key) is None:
            raise ConfigError(f"{key} is missing")
    kwargs = fields.get("env_kwargs") or {}
    try:
        return TaskRow(
            env_id=str(fields["env_id"]),
            env_kwargs=dict(json.loads(kwargs) if isinstance(kwargs, str) else kwargs),
            seed=int(fields["seed"]),
            index=int(fields.get("index") or 0),
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{dict(fields)!r} is no task: {error}") from error


@dataclass(frozen=True)
class TaskSource:
    """One environment of a mix.

    Attributes:
        env_id: Registered id.
        env_kwargs: Arguments on top of the id's own.
        weight: Share of the tasks, relative to the other sources.
    """

    env_id: str
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    weight: float = 1.0

    @classmethod
    def parse(cls, text: str) -> TaskSource:
        """Read ``ID``, ``ID=WEIGHT``, ``ID(key=value, ...)`` or ``ID(key=value, ...)=WEIGHT``.

        >>> TaskSource.parse("game:GuessTheNumber-v0(max_number=50)=2")
        TaskSource(env_id='game:GuessTheNumber-v0', env_kwargs={'max_number': 50}, weight=2.0)

        Raises:
            ConfigError: None of these forms, or a weight that is not above 0.
        """
        match = re.fullmatch(r"\s*([^()=\s]+)\s*(?:\((.*)\))?\s*(?:=\s*([^=()\s]+))?\s*", text, re.DOTALL)
        try:
            if match is None:
                raise ValueError("no id")
            call = ast.parse(f"f({match[2] or ''})", mode="eval").body
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                raise ValueError("arguments stand in one pair of parentheses")
            if call.args or any(k.arg is None for k in call.keywords):
                raise ValueError("arguments need names")
            kwargs = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg}
            weight = float(match[3] or 1)
        except (SyntaxError, TypeError, ValueError) as error:  # TypeError: a literal such as {[]: 1}
            raise ConfigError(
                f"{text!r} is not an environment of a mix: expected an id with an optional weight, such as "
                f"'game:Mastermind-v0=2' or 'game:GuessTheNumber-v0(max_number=50)=2' ({error})"
            ) from None
        if not (isfinite(weight) and weight > 0):
            raise ConfigError(f"{text!r}: expected a weight above 0")
        return cls(match[1], kwargs, weight)

    def make(self, wrappers: WrapperLike | Sequence[WrapperLike] = ()) -> Env:
        """Build the environment.

        Raises:
            ConfigError: The environment refuses its arguments.
            GemError: As in `gem_core.make`.
        """
        try:
            return make(self.env_id, wrappers=wrappers, **self.env_kwargs)
        except GemError:
            raise
        except (TypeError, ValueError) as error:  # unknown arguments, or values the constructor refuses
            text = str(error)
            raise ConfigError(text if text.startswith(self.env_id) else f"{self.env_id}: {text}") from error

    def try_once(
        self,
        wrappers: WrapperLike | Sequence[WrapperLike] = (),
        *,
        no_pictures: str | Callable[[], str | None] | None = None,
    ) -> bool:
        """Build the environment and close it, so that what is wrong shows before anything is played.

        Args:
            wrappers: Around it, as in `gem_core.make`.
            no_pictures: Why whoever will play it cannot be given pictures, None when they can; or a
                function that says so, asked where there are pictures.

        Returns:
            Whether it shows pictures.

        Raises:
            ConfigError: It shows pictures, which cannot be given.
            GemError: As `make`.
        """
        with self.make(wrappers) as env:
            if env.shows_images:
                reason = no_pictures() if callable(no_pictures) else no_pictures
                if reason is not None:
                    raise ConfigError(f"{self.label} shows pictures, and {reason}")
            return env.shows_images

    @property
    def label(self) -> str:
        """``ID`` or ``ID(key=value, ...)``: what `parse` reads, without the weight."""
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.env_kwargs.items())
        return f"{self.env_id}({arguments})" if arguments else self.env_id


def make_tasks(
    sources: Sequence[TaskSource],
    num_tasks: int,
    *,
    seed: int = 0,
    group_size: int = 1,
    split: Split = "train",
) -> Iterator[TaskRow]:
    """Rows of `num_tasks` tasks, ``num_tasks * group_size`` in all, the samples of a task together.

    The same arguments give the same rows, and fewer tasks give a prefix of more. No two tasks of a
    call share a seed, and no train task shares one with a held-out task. Held-out tasks have the
    first seeds of `EVAL_SEEDS`, so that every evaluation plays the same ones; `seed` then chooses
    between the sources only.

    Raises:
        ConfigError: No source, more tasks than seeds, a number below 1, or weights too large to add up.
    """
    if not sources:
        raise ConfigError("no environment is given: expected at least one task source")
    if num_tasks < 1 or group_size < 1:
        raise ConfigError(f"expected at least 1 task and 1 sample each, got {num_tasks} and {group_size}")
    if not isfinite(sum(source.weight for source in sources)):
        weights = ", ".join(f"{source.env_id}={source.weight:g}" for source in sources)
        raise ConfigError(f"the weights {weights} are too large to add up; only their ratios count")
    seeds = TRAIN_SEEDS if split == "train" else EVAL_SEEDS
    if num_tasks > len(seeds):
        raise ConfigError(f"{num_tasks} tasks are more than the {len(seeds)} seeds of the split {split!r}")
    return _rows(sources, num_tasks, seed, group_size, split, seeds)


def write_tasks(rows: Iterable[TaskRow], path: str | Path) -> None:
    """Write rows as JSON Lines; the file appears at once or not at all."""
    write_atomically(path, (json.dumps(row) + "\n" for row in rows))


def _rows(
    sources: Sequence[TaskSource], num_tasks: int, seed: int, group_size: int, split: Split, seeds: range
) -> Iterator[TaskRow]:
    random = Random(f"tasks {split} {seed}")
    first = random.randrange(len(seeds)) if split == "train" else 0
    shares = list(accumulate(source.weight for source in sources))
    for index in range(num_tasks):
        (source,) = random.choices(sources, cum_weights=shares)
        task_seed = seeds[(first + index) % len(seeds)]
        for _ in range(group_size):
            yield TaskRow(
                env_id=source.env_id, env_kwargs=dict(source.env_kwargs), seed=task_seed, index=index
            )
