"""The trainers' own estimators take the exam, through the trainers' own code.

    python -m tests.trainers.upstream record verl   # in the environment of that trainer

An estimator sees the episodes of a task as rows of tokens: every turn has as many response tokens as the
task says, and one token of the environment separates two turns. The weight of a turn in the gradient is the
advantage of its first token. Options are the trainer's defaults, and the critic outputs the exact value of
the state on all tokens of a turn.
"""

from __future__ import annotations

import inspect
import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from gem_core._util.files import write_atomically
from gem_lab.exam import Exam, run
from gem_lab.exam._certificates import UNBIASED, Certificate
from tests.trainers.upstream.batches import Batch, FloatArray
from tests.trainers.upstream.check import Call
from tests.trainers.upstream.entries import TITLES, VERSIONS, Entry, entries

ROOT = Path(__file__).resolve().parents[3]
OUT = ROOT / "docs" / "results" / "exam"

REDUCED: dict[str, Any] = {
    "tasks": ["stop"],
    "stages": ["initial"],
    "batch_sizes": [8, 32],
    "budget": 6000,
    "aggregations": ["token-sum"],
}
"""The exam of the trainers' sessions, a few tenths of a second per estimator."""

CHANGED: dict[str, dict[str, Any]] = {
    "rl2": {"batch_sizes": [8, 16], "budget": 1},  # a call takes long
    "trl": {"batch_sizes": [16, 64]},  # with one group per batch, a scale per batch is a scale per group
    "roll": {"batch_sizes": [16, 64], "budget": 1},
}
"""Changes to the reduced exam by trainer."""

CHOSEN = {
    "roll": ("gae", "reinforce, whiten_advantages", "grpo, grouping=batch, method=mean_std"),
}
"""Estimators that take the reduced exam, where a call takes long."""

RECORDED: dict[str, Any] = {
    "tasks": ["stop", "tool", "mixture"],
    "stages": ["initial"],
    "batch_sizes": [8, 64, 256],
    "budget": 1,
    "aggregations": ["token-sum"],
}
"""The exam of the documentation: 256 batches of 8 and of 64 episodes, and 64 batches of 256."""

RECORDED_CHANGED: dict[str, dict[str, Any]] = {
    "trl": {"tasks": ["stop", "tool", "mixture", "slippery"], "budget": 10_000}
}
"""Changes to it by trainer."""


ROUNDING = 1e-5
"""Relative bias that an estimator in float32 may have without counting as biased."""


class Upstream:
    """An upstream estimator as a function of turn rewards, as `gem_lab.exam.run` calls it."""

    def __init__(self, entry: Entry, call: Call) -> None:
        self.__name__ = entry.id
        self.__signature__ = inspect.Signature(
            [
                inspect.Parameter("turn_rewards", inspect.Parameter.POSITIONAL_ONLY),
                *(
                    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
                    for name in ("gamma", "group_ids", "lengths", *entry.needs)
                ),
            ]
        )
        self._call = call
        self._lam = entry.lam

    def __call__(self, turn_rewards: Sequence[FloatArray], /, **inputs: Any) -> list[FloatArray]:
        """Return one array of advantages per episode."""
        batch = make_batch(turn_rewards, lam=self._lam, **inputs)
        return batch.split(batch.at_turns(self._call(batch)))


def make_batch(
    turn_rewards: Sequence[FloatArray],
    *,
    gamma: float,
    lam: float,
    group_ids: Sequence[int],
    lengths: Sequence[Any],
    values: Sequence[Any] = (),
    baselines: Sequence[float] = (),
    reward_components: Sequence[Any] = (),
    state_keys: Sequence[Sequence[Any]] = (),
) -> Batch:
    """Return a batch of the exam with its tokens."""
    per_row = [len(rewards) for rewards in turn_rewards]
    rows = np.repeat(np.arange(len(per_row)), per_row)
    gaps = np.ones(len(rows), dtype=np.int64)
    gaps[np.cumsum(per_row) - per_row] = 0
    arguments: dict[str, Any] = {}
    if len(baselines):
        arguments["baselines"] = np.asarray(baselines, dtype=np.float64)
    if len(reward_components):
        arguments["components"] = np.concatenate(reward_components)
    if len(state_keys):
        arguments["keys"] = [key for keys in state_keys for key in keys]
    batch = Batch(
        np.concatenate(turn_rewards), rows, np.concatenate(lengths).astype(np.int64), gaps,
        np.asarray(group_ids), gamma, lam, **arguments,
    )  # fmt: skip
    if len(values):
        turn_values = np.concatenate(values)
        critic = batch.spread(turn_values)
        later = batch.gaps > 0
        critic[rows[later], batch.starts[later] - 1] = turn_values[later]
        batch = replace(batch, values=critic)
    return batch


def take(
    trainer: str, calls: Mapping[str, Call], *, with_ours: bool = False, **settings: Any
) -> tuple[list[Entry], Exam]:
    """Return the entries of a trainer that take the exam, and its results."""
    taking = [entry for entry in entries(trainer) if entry.name in calls]
    estimators: list[Any] = [Upstream(entry, calls[entry.name]) for entry in taking]
    if with_ours:
        estimators += sorted({entry.ours for entry in taking if entry.ours})
    # All batches of 2 and 4 episodes would take most of the time, because an upstream function costs as much
    # for a small batch as for a large one.
    return taking, run(estimators, enumerated_sizes=(), **settings)


def verdicts(trainer: str, calls: Mapping[str, Call]) -> dict[str, str]:
    """Return the verdicts of the reduced exam by the names of the estimators that take it."""
    names = CHOSEN.get(trainer) or [entry.name for entry in entries(trainer) if entry.verdict]
    calls = {name: calls[name] for name in names}
    taking, exam = take(trainer, calls, **{**REDUCED, **CHANGED.get(trainer, {})})
    return {entry.name: verdict(exam.certificate(entry.id)) for entry in taking}


def check_verdicts(trainer: str, calls: Mapping[str, Call]) -> None:
    """Check that the calls have entries, and that the reduced exam gives the verdicts of the entries."""
    expected = {entry.name: entry.verdict for entry in entries(trainer)}
    assert set(calls) <= set(expected)
    for name, verdict in verdicts(trainer, calls).items():
        assert verdict == expected[name], name


def verdict(certificate: Certificate) -> str:
    """Return the verdict, where a bias of the size of float32's rounding counts as none."""
    return UNBIASED if certificate.bias < ROUNDING else certificate.verdict


def record(trainer: str, calls: Mapping[str, Call]) -> Path:
    """Take the exam and write one line per estimator, after a header."""
    taking, exam = take(trainer, calls, with_ours=True, **{**RECORDED, **RECORDED_CHANGED.get(trainer, {})})
    header = {
        "command": f"python -m tests.trainers.upstream record {trainer}",
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True, cwd=ROOT
        ).stdout.strip(),
        "trainer": trainer,
        "versions": {
            TITLES[trainer]: VERSIONS[trainer],
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "numpy")},
        },
        "config": {key: value for key, value in exam.config.items() if key != "estimators"},
    }
    names = {entry.id: entry.ours for entry in taking} | {entry.ours: None for entry in taking if entry.ours}
    lines = [_line(name, counterpart, exam) for name, counterpart in names.items()]
    path = OUT / f"trainer-{trainer}.jsonl"
    write_atomically(path, (json.dumps(line) + "\n" for line in (header, *lines)))
    return path


def _line(name: str, counterpart: str | None, exam: Exam) -> dict[str, Any]:
    certificate = exam.certificate(name)
    largest = exam.config["batch_sizes"][-1]
    rows = exam.select(estimator=name, batch_size=largest)
    place = {"task": certificate.task, "stage": certificate.stage, "batch_size": certificate.batch_size}
    (worst,) = exam.select(estimator=name, **place)
    return {
        "estimator": name,
        "ours": counterpart,
        "verdict": verdict(certificate),
        "bias": _short(certificate.bias),
        "bias_low": _short(certificate.bias_low),
        "bias_high": _short(certificate.bias_high),
        "cosine": _short(worst.cosine),
        **place,
        "at_largest": {f"{r.task} {r.stage}": [_short(r.bias), _short(r.cosine)] for r in rows},
        "rejected": {
            key.partition(" on ")[2]: reason
            for key, reason in exam.skipped.items()
            if key.startswith(f"{name} on ")
        },
    }


def _short(number: float) -> float:
    return float(f"{number:.4g}")
