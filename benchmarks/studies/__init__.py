"""Studies: declarative comparisons of training runs, in one file each under ``catalog/``.

`gem_lab.train` runs them, `runner` plans and executes, and `page` draws the results.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from pathlib import Path
from typing import Any

CATALOG = Path(__file__).parent / "catalog"


@dataclass(frozen=True)
class Task:
    """An environment of a study.

    Attributes:
        env: Environment, including arguments.
        tiny: Options of the tiny model (`TinyOptions`) from which the runs start.
        model: Name of this model, for tasks that share it; "" for the name of the task.
        options: Options of the runs (`TrainConfig`) on this environment.
        note: Description for the page, such as the known optimum.
        measure: Function of a module that returns further metrics of weights, given their folder and the
            options of the run. Runs on evaluation seeds call it for the initial and the final weights. None
            adds no metrics.
    """

    env: str
    tiny: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    measure: Callable[[Path, Mapping[str, Any]], dict[str, float]] | None = None


@dataclass(frozen=True)
class Study:
    """A comparison of arms, which differ in options of the run, on one or more tasks.

    If there is a grid, each arm is tuned separately on each task: all points of the grid run on the tuning
    seeds, and the point with the best training episodes at the end runs on the evaluation seeds. Training
    episodes decide, so that no evaluation item influences the choice.

    Attributes:
        title: Title of the page and of the figure.
        question: Question that the study answers, in one or two sentences.
        tasks: Environments, by name.
        arms: Options of each arm, by name.
        options: Options of `TrainConfig` shared by all runs.
        grid: Values to try, by option.
        tuned_like: Maps an arm without its own tuning, such as a control, to the arm whose values it uses.
        baseline: Arm that the others are compared with, paired by seed; "" for no comparison.
        pairs: Further comparisons of two arms, first minus second.
        metric: Main metric of the evaluation.
        more_metrics: Further metrics in the tables.
        tuning_metric: Metric of the training episodes that selects from the grid.
        panels: Metrics of the figure, with captions; with several tasks, each panel shows `metric` on a task.
        tuning_seeds: Seeds of the tuning runs.
        seeds: Seeds of the evaluation runs.
        models: Seeds of the initial models: run seed s starts from model ``s % len(models)`` of this list.
            None means that each run starts from the model with its own seed.
        notes: Paragraphs for the page.
        overrides: Options that replace all others.
        command: Command that runs the study; "" for ``make study``.
    """

    title: str
    question: str
    tasks: Mapping[str, Task]
    arms: Mapping[str, Mapping[str, Any]]
    options: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    tuned_like: Mapping[str, str] = field(default_factory=dict)
    baseline: str = ""
    pairs: Sequence[tuple[str, str]] = ()
    metric: str = "gem/success"
    more_metrics: Sequence[str] = ()
    tuning_metric: str = "gem/return"
    panels: Sequence[tuple[str, str]] = (
        ("gem/success", "success"),
        ("gem/return", "return"),
        ("train/entropy", "entropy per token"),
    )
    tuning_seeds: Sequence[int] = range(3)
    seeds: Sequence[int] = range(100, 110)
    models: Sequence[int] | None = (0, 1, 2)
    notes: Sequence[str] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""

    def __post_init__(self) -> None:
        names = {*self.arms}
        for name in (self.baseline, *chain(*self.pairs), *self.tuned_like, *self.tuned_like.values()):
            if name and name not in names:
                raise ValueError(f"unknown arm {name!r}; the arms are {', '.join(sorted(names))}")
        if self.grid and {*self.tuning_seeds} & {*self.seeds}:
            raise ValueError("tuning seeds and evaluation seeds overlap")

    def points(self) -> Iterator[dict[str, Any]]:
        """Yield the points of the grid; one empty point if there is no grid."""
        for values in product(*self.grid.values()):
            yield dict(zip(self.grid, values, strict=True))

    def model_seed(self, seed: int) -> int:
        """Return the seed of the initial model of a run."""
        return seed if self.models is None else self.models[seed % len(self.models)]

    def toy(self) -> Study:
        """Return the same study in a small size, which takes seconds, to check that it runs."""
        tiny = {"warm_start_steps": 2, "warm_start_tokens": 500, "corpus_episodes": 10, "layers": 1}
        return replace(
            self,
            tasks={name: replace(task, tiny={**task.tiny, **tiny}) for name, task in self.tasks.items()},
            grid={option: values[:2] for option, values in self.grid.items()},
            tuning_seeds=self.tuning_seeds[:1],
            seeds=self.seeds[:2],
            models=None if self.models is None else self.models[:1],
            overrides={
                **self.overrides,
                "steps": 2,
                "episodes_per_step": 16,
                "minibatches": 1,
                "eval_episodes": 4,
                "eval_every": 1,
            },
        )


GUESS = Task("game:GuessTheNumber-v0-easy", tiny={"warm_start_steps": 300})
"""The task of most studies of estimators: numbers from 1 to 10 in 4 turns, which bisection always finds."""

_ONE_DIGIT = '{"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}'
SUMS = f"rg:chain_sum(config={_ONE_DIGIT}, size=None)"
"""Sums and differences of two digits."""

_ONE_ANIMAL = '{"min_animals": 1, "max_animals": 1, "min_instances": 1, "max_instances": 2}'
ONE_ANIMAL = f"rg:leg_counting(config={_ONE_ANIMAL}, size=None)"
"""The legs of one or two animals of a kind."""

SMALL_MASTERMIND = "game:Mastermind-v0(code_length=2, num_numbers=4, max_turns=5)"
"""Codes of two of four numbers."""

SHORT_RUN = {
    "steps": 30,
    "episodes_per_step": 256,
    "warmup_steps": 3,
    "eval_episodes": 500,
    "eval_every": 10,
}
"""Options of a run that is long enough to learn `GUESS`."""


def list_studies() -> list[str]:
    """Return the names of the studies in the catalog."""
    return sorted(path.stem for path in CATALOG.glob("[a-z]*.py"))


def load_study(name: str) -> Study:
    """Return a study of the catalog."""
    study = importlib.import_module(f"studies.catalog.{name}").STUDY
    assert isinstance(study, Study)
    return study
