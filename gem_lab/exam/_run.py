"""Run the exam: play batches for every task, policy, and batch size, and judge the estimators."""

from __future__ import annotations

import math
import os
import pickle
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from gem_core._util.checks import check_choice, check_int, check_number, expected
from gem_core._util.messages import error_text
from gem_core._util.seeds import derive_int
from gem_core.advantages import Estimator, get_estimator, list_estimators
from gem_core.errors import ConfigError
from gem_lab.exam._bias import Bias, compare
from gem_lab.exam._certificates import Cell, Certificate, certify
from gem_lab.exam._controls import BLOCKS
from gem_lab.exam._exact import STAGES, Reference, gradient, policies_at, solve
from gem_lab.exam._inputs import INPUTS, Candidate
from gem_lab.exam._measure import AGGREGATIONS, Measured, enumerate_gradients, sample_gradients
from gem_lab.exam._store import Store
from gem_lab.exam._task import FloatArray, TableTask
from gem_lab.exam._tasks import get_task, list_tasks

Chosen: TypeAlias = str | Estimator[..., Any] | Callable[..., Any]

BATCH_SIZES = (8, 64, 512)
VARIANTS = ("gigpo(normalization='mean')", "mt_grpo(compared='return')", "rebn(statistics='group')")
"""Estimators with options that also take the exam if none are named."""
MOST_BATCHES = 1024
ENUMERATED_SIZES = (2, 4)


@dataclass(frozen=True)
class Result:
    """One row of the table: an estimator on one task, policy, and batch size.

    Attributes:
        estimator: Name of the estimator.
        aggregation: Key of `measure.AGGREGATIONS`.
        task: Name of the task.
        stage: Stage of learning of the policy.
        gamma: Discount per turn.
        batch_size: Episodes per batch.
        group_size: Episodes per group.
        batches: Number of batches; 0 if the expectation is exact.
        cosine: Cosine between the expectation and the gradient of the expected return.
        cosine_low: Lower end of its 95% interval.
        cosine_high: Upper end.
        bias: Relative bias after the best scale, see `measure.Bias`.
        bias_low: Lower end of its 95% interval.
        bias_high: Upper end.
        p_value: p-value of the test for bias.
        scale: Factor between exact gradient and expectation.
        cosine_discounted: Cosine to the gradient of the discounted return.
        cosine_per_turn: Cosine to the gradient without the factor gamma^t.
        snr: Norm of the expectation divided by the standard deviation of the gradient of a batch; None if
            the expectation is exact.
        alignment: Mean cosine between the gradient of a batch and the exact one; None if the expectation is
            exact.
        credit: Correlation between the advantages and the exact advantages of the actions, over turns; None
            if the expectation is exact.
    """

    estimator: str
    aggregation: str
    task: str
    stage: str
    gamma: float
    batch_size: int
    group_size: int
    batches: int
    cosine: float
    cosine_low: float
    cosine_high: float
    bias: float
    bias_low: float
    bias_high: float
    p_value: float
    scale: float
    cosine_discounted: float
    cosine_per_turn: float
    snr: float | None
    alignment: float | None
    credit: float | None


@dataclass(frozen=True)
class Exam:
    """The results of an exam.

    Attributes:
        results: One row per estimator, aggregation, task, stage, discount, and batch size.
        certificates: One per estimator and aggregation.
        config: Arguments of the exam, JSON-serializable.
        skipped: Maps registered estimators that were left out to the reasons.
    """

    results: tuple[Result, ...]
    certificates: tuple[Certificate, ...]
    config: dict[str, Any]
    skipped: dict[str, str] = field(default_factory=dict)

    def select(self, **values: Any) -> list[Result]:
        """Return the results whose attributes have these values."""
        return [row for row in self.results if all(getattr(row, k) == v for k, v in values.items())]

    def certificate(self, estimator: str, aggregation: str = "token-sum") -> Certificate:
        """Return the certificate of an estimator.

        Raises:
            KeyError: The exam has no such estimator or aggregation.
        """
        for certificate in self.certificates:
            if (certificate.estimator, certificate.aggregation) == (estimator, aggregation):
                return certificate
        raise KeyError((estimator, aggregation))

    def __str__(self) -> str:
        return "\n".join(
            f"{certificate.estimator} ({certificate.aggregation}): {certificate}"
            for certificate in self.certificates
        )


@dataclass(frozen=True)
class _Job:
    """One task, stage, discount, and batch size, with all estimators."""

    task: TableTask
    stage: str
    policy: FloatArray
    gamma: float
    batch_size: int
    group_size: int
    enumerated: bool
    candidates: tuple[Candidate, ...]
    aggregations: tuple[str, ...]
    budget: int
    seed: int

    @property
    def parts(self) -> tuple[Any, ...]:
        """Everything on which the measurement depends, besides code."""
        task = self.task
        return (
            task.name, task.limit, task.start, task.probability, task.next_state, task.rewards, task.rows,
            task.tokens, task.keys, self.policy, self.stage, self.gamma, self.batch_size, self.group_size,
            self.enumerated, [candidate.name for candidate in self.candidates], self.aggregations,
            self.budget, self.seed,
        )  # fmt: skip


def run(
    estimators: Chosen | Sequence[Chosen] | None = None,
    *,
    tasks: Sequence[str | TableTask] | None = None,
    stages: Sequence[str] = ("initial", "halfway"),
    batch_sizes: Sequence[int] = BATCH_SIZES,
    enumerated_sizes: Sequence[int] = ENUMERATED_SIZES,
    group_size: int | Sequence[int] = 8,
    gamma: float | Sequence[float] = 1.0,
    aggregations: Sequence[str] = tuple(AGGREGATIONS),
    budget: int = 60_000,
    seed: int = 0,
    workers: int = 1,
    resume: str | Path | None = None,
    advance: Callable[[float], None] = lambda done: None,
) -> Exam:
    """Compare estimators with exact gradients.

    Args:
        estimators: Registered names (with options: ``"rebn(statistics='group')"``), `Estimator` objects, or
            functions of turn rewards. A function gets `gamma` if it has that argument, and every argument
            without a default, which must be a name in `inputs.INPUTS`. None means every registered estimator
            and `VARIANTS`.
        tasks: Names of tasks, or tasks; None means all.
        stages: Stages of learning: keys of `exact.STAGES`.
        batch_sizes: Episodes per batch, multiples of every group size.
        enumerated_sizes: Episodes per batch of one group, for which the expectation is an exact sum over all
            possible batches if there are at most 1,000. Empty leaves these out.
        group_size: Episodes that share a first state, and a group id; or several such numbers.
        gamma: Discount per turn, or several; certificates are for the largest.
        aggregations: Keys of `measure.AGGREGATIONS`.
        budget: Number of turns to play for each task, stage, discount, group size, and batch size; at least
            256 batches of up to 64 episodes, or 64 larger ones, and at most 1024 batches are played.
        seed: Seed of all randomness.
        workers: Number of processes. The results do not depend on it. With more than one, functions must be
            importable.
        resume: Folder for finished parts of the exam. An exam with the same arguments continues from them.
            None keeps nothing.
        advance: Called with the completed share of the work, from 0 to 1.

    Returns:
        Results and certificates.

    Raises:
        ConfigError: An argument is out of range, an estimator needs something that the tasks lack, or the
            machine cannot run `workers`.
        UnknownName: An estimator or task does not exist.
    """
    candidates, skipped = _candidates(estimators)
    chosen = [task if isinstance(task, TableTask) else get_task(task) for task in tasks or list_tasks()]
    gammas = [float(value) for value in np.atleast_1d(gamma)]
    groups = [group_size] if isinstance(group_size, int) else list(group_size)
    _check(stages, batch_sizes, groups, gammas, aggregations, budget)
    for size in enumerated_sizes:
        check_int("enumerated_sizes", size, 1)
    # (episodes per batch, episodes per group, whether to enumerate all batches)
    shapes = [(size, size, True) for size in enumerated_sizes]
    shapes += [(size, group, False) for group in groups for size in sorted(batch_sizes)]
    jobs = [
        _Job(task, stage, policy, discount, *shape, candidates, tuple(aggregations), budget, seed)
        for task in chosen
        for stage, policy in zip(stages, policies_at(task, stages), strict=True)
        for discount in gammas
        for shape in shapes
    ]
    store = None if resume is None else Store(resume, candidates)
    results: list[Result] = []
    cells: dict[tuple[str, str], list[Cell]] = {}
    check_int("workers", workers, 1)
    for job, measured in zip(jobs, _run_jobs(jobs, workers, store, advance), strict=True):
        for name, reason in measured.rejected.items():
            skipped[f"{name} on {job.task.name}"] = reason
        exact = gradient(job.task, job.policy)
        for (name, aggregation), gradients in measured.gradients.items():
            bias = compare(gradients, exact)
            results.append(_result(job, measured, name, aggregation, bias))
            if job.gamma == max(gammas):
                where = (job.task.name, job.stage, job.batch_size, job.group_size, job.enumerated)
                cells.setdefault((name, aggregation), []).append(Cell(*where, gradients, exact, bias))
    judged = {name for name, _ in cells}
    for candidate in candidates:
        if candidate.name not in judged:
            reasons = [reason for key, reason in skipped.items() if key.startswith(f"{candidate.name} on ")]
            raise ConfigError(f"estimator {candidate.name!r} accepts the rewards of no task: {reasons[0]}")
    config = {
        "estimators": [candidate.name for candidate in candidates],
        "tasks": [task.name for task in chosen],
        "stages": list(stages),
        "batch_sizes": list(batch_sizes),
        "enumerated_sizes": list(enumerated_sizes),
        "group_sizes": groups,
        "gamma": gammas,
        "aggregations": list(aggregations),
        "budget": budget,
        "seed": seed,
    }
    certificates = [certify(*key, group) for key, group in cells.items()]
    return Exam(tuple(results), tuple(certificates), config, skipped)


def _candidates(estimators: Chosen | Sequence[Chosen] | None) -> tuple[tuple[Candidate, ...], dict[str, str]]:
    """Return the estimators that can take the exam, and why the other registered ones cannot."""
    if estimators is None:
        skipped, able = {}, []
        for name in list_estimators():
            if missing := [need for need in get_estimator(name).needs if need not in INPUTS]:
                skipped[name] = f"needs {', '.join(missing)}, which a table task does not have"
            else:
                able.append(Candidate.of(name))
        able += [Candidate.of(variant) for variant in VARIANTS]
        return tuple(sorted(able, key=lambda candidate: candidate.name)), skipped
    chosen = [estimators] if isinstance(estimators, str) or callable(estimators) else estimators
    candidates = tuple(Candidate.of(estimator) for estimator in chosen)
    names = [candidate.name for candidate in candidates]
    if not names or len(set(names)) < len(names):
        raise expected("estimators", names, "different names, at least one")
    return candidates, {}


def _check(
    stages: Sequence[str],
    batch_sizes: Sequence[int],
    groups: Sequence[int],
    gammas: Sequence[float],
    aggregations: Sequence[str],
    budget: int,
) -> None:
    check_int("budget", budget, 1)
    if not (stages and batch_sizes and groups and aggregations and gammas):
        raise ConfigError(
            "stages, batch_sizes, group_size, aggregations, gamma: expected at least one value each"
        )
    for stage in stages:
        check_choice("stages", stage, STAGES)
    for name in aggregations:
        check_choice("aggregations", name, AGGREGATIONS)
    for gamma in gammas:
        check_number("gamma", gamma, 0, 1)
    for group in groups:
        check_int("group_size", group, 1)
        for size in batch_sizes:
            if check_int("batch_sizes", size, 1) % group:
                raise expected("batch_sizes", size, f"a multiple of group_size={group}")


def _run_jobs(
    jobs: list[_Job], workers: int, store: Store | None, advance: Callable[[float], None]
) -> list[Measured]:
    """Run the jobs that are not in the store, the longest first; return the results of all, in order."""
    paths = [store.path(*job.parts) for job in jobs] if store else []
    stored = {index: Store.load(path) for index, path in enumerate(paths)}
    results = {index: measured for index, measured in stored.items() if measured is not None}

    def finish(index: int, measured: Measured) -> None:
        results[index] = measured
        if store:
            Store.save(paths[index], measured)
        advance(len(results) / len(jobs))

    left = [index for index in range(len(jobs)) if index not in results]
    if workers == 1:
        for index in left:
            finish(index, _measure(jobs[index]))
    else:
        try:
            pickle.dumps(jobs[0].candidates)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ConfigError(f"an estimator cannot be sent to processes: {error}; use workers=1") from error
        left.sort(key=lambda index: -jobs[index].task.limit * jobs[index].batch_size)
        others = set(active_children())
        pool = _process_pool(workers)
        try:
            futures = {pool.submit(_measure, jobs[index]): index for index in left}
            for future in as_completed(futures):
                finish(futures[future], future.result())
        except BaseException as error:  # the other jobs may take minutes
            pool.shutdown(wait=False, cancel_futures=True)
            for process in set(active_children()) - others:
                process.terminate()
            if isinstance(error, BrokenProcessPool):
                raise ConfigError(
                    f"workers={workers}: a process could not start or was killed, such as for lack of "
                    "memory; use fewer workers, and resume to keep what is finished"
                ) from error
            raise
        pool.shutdown()
    return [results[index] for index in range(len(jobs))]


def _process_pool(workers: int) -> ProcessPoolExecutor:
    """Return a pool of processes.

    Raises:
        ConfigError: The machine has no semaphores to share, as where ``/dev/shm`` cannot be written.
    """
    try:
        return ProcessPoolExecutor(workers, get_context("spawn"), _end_with_parent)
    except BlockingIOError:  # the user may start no more processes
        raise
    except (OSError, ImportError, NotImplementedError) as error:  # the last two without POSIX semaphores
        raise ConfigError(
            f"workers={workers}: processes need shared semaphores, for which /dev/shm must be writable "
            f"({error_text(error)}); use workers=1"
        ) from error


def _end_with_parent() -> None:
    """End this worker when its parent is killed: the queue of jobs stays open, because workers hold it."""
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _measure(job: _Job) -> Measured:
    """Run one job; the random stream depends on nothing but the job."""
    if job.enumerated:
        return enumerate_gradients(
            job.task, job.policy, job.candidates, batch_size=job.batch_size, gamma=job.gamma,
            aggregations=job.aggregations,
        )  # fmt: skip
    turns = float(solve(job.task, job.policy).visits.sum())
    fewest = BLOCKS if job.batch_size > 64 else 4 * BLOCKS
    batches = max(fewest, min(MOST_BATCHES, int(job.budget / (turns * job.batch_size))))
    parts = (job.seed, "exam", job.task.name, job.stage, job.gamma, job.batch_size, job.group_size)
    return sample_gradients(
        job.task, job.policy, job.candidates, batch_size=job.batch_size, group_size=job.group_size,
        gamma=job.gamma, batches=batches, aggregations=job.aggregations,
        random=np.random.default_rng(derive_int(*parts)),
    )  # fmt: skip


def _result(job: _Job, measured: Measured, name: str, aggregation: str, bias: Bias) -> Result:
    gradients = measured.gradients[name, aggregation]
    sampled = not job.enumerated

    def cosine_to(reference: Reference) -> float:
        return compare(gradients, gradient(job.task, job.policy, job.gamma, reference)).cosine

    discounted = job.gamma < 1
    return Result(
        estimator=name, aggregation=aggregation, task=job.task.name, stage=job.stage, gamma=job.gamma,
        batch_size=job.batch_size, group_size=job.group_size, batches=measured.batches,
        cosine=bias.cosine, cosine_low=bias.cosine_low, cosine_high=bias.cosine_high,
        bias=bias.bias, bias_low=bias.bias_low, bias_high=bias.bias_high, p_value=bias.p_value,
        scale=bias.scale,
        cosine_discounted=cosine_to("discounted") if discounted else bias.cosine,
        cosine_per_turn=cosine_to("per turn") if discounted else bias.cosine,
        snr=bias.norm / math.sqrt(gradients.variance) if sampled and gradients.variance > 0 else None,
        alignment=gradients.alignment if sampled else None,
        credit=measured.credit.get(name),
    )  # fmt: skip
