"""Plans the runs of a study and executes the missing ones, one process per core."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

from records import Record

from gem_core._util.files import write_atomically
from studies import Study, estimators
from studies.stats import mean_of_last

TUNING, EVALUATION = "tuning", "evaluation"
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Rounding depends on the instructions that PyTorch and its matrix library choose for a processor, and a
    # different rounding changes the sampled tokens. AVX2 is available on all current x86 processors.
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "AVX2",
    # Otherwise glibc returns the memory of tensors to the kernel after each pass, and maps it again.
    "MALLOC_TRIM_THRESHOLD_": "1000000000",
    "MALLOC_MMAP_THRESHOLD_": "1000000000",
}
"""Environment variables of the processes that execute runs."""


@dataclass(frozen=True)
class Run:
    """One training run of a study.

    Attributes:
        task: Name of the task.
        arm: Name of the arm.
        phase: "tuning" or "evaluation".
        seed: Seed of the run.
        point: Values of the grid.
    """

    task: str
    arm: str
    phase: str
    seed: int
    point: Mapping[str, Any]

    @property
    def id(self) -> str:
        """Name of the run, which is also a file name."""
        values = [f"{option}={value}" for option, value in self.point.items()]
        words = [self.phase, self.task, self.arm, *values, f"seed={self.seed}"]
        return "--".join(re.sub(r"[^\w.=+-]+", "_", word) for word in words)

    def options(self, study: Study) -> dict[str, Any]:
        """Return the options of `TrainConfig`, except for the model and the folder."""
        task = study.tasks[self.task]
        options = {"trace_every": 0, "threads": 1, "device": "cpu", **study.options, **task.options}
        options |= {**study.arms[self.arm], **self.point, **study.overrides}
        if self.phase == TUNING:
            options |= {"eval_episodes": 0, "eval_every": 0}
        return {**options, "env": [task.env], "seed": self.seed}


class Runner:
    """Executes a study in a folder; a killed runner continues where it stopped.

    Args:
        name: Name of the study, for the commands in the records.
        study: The study.
        folder: Folder of models, unfinished runs, and finished records.
        jobs: Number of processes; 0 executes in this process.
        deadline: Value of `time.monotonic` after which no run is started.
        known: Records of earlier runs, which are not repeated.
    """

    def __init__(
        self,
        name: str,
        study: Study,
        folder: Path,
        *,
        jobs: int,
        deadline: float = float("inf"),
        known: Sequence[Record] = (),
    ) -> None:
        self.name, self.study, self.folder, self.jobs, self.deadline = name, study, folder, jobs, deadline
        self._known = {record.run: record for record in known}

    def run(self) -> bool:
        """Execute everything that is missing; return whether the study is complete."""
        with self._pool() as pool:
            self._work(pool, _make_model, "model", list(self._models()))
            self._work(pool, _execute, TUNING, self._missing(self.tuning_runs()))
            if self.tuned():
                self._work(pool, _execute, EVALUATION, self._missing(self.evaluation_runs()))
        return bool(self.tuned()) and not self._missing(self.evaluation_runs())

    def tuning_runs(self) -> list[Run]:
        """Return the runs that tune the arms; none without a grid."""
        study = self.study
        points = list(study.points()) if study.grid else []
        arms = [arm for arm in study.arms if arm not in study.tuned_like]
        return [
            Run(task, arm, TUNING, seed, point)
            for seed in study.tuning_seeds
            for task in study.tasks
            for arm in arms
            for point in points
        ]

    def tuned(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the selected point of each task and arm; nothing before all tuning runs are complete."""
        study = self.study
        if self._missing(self.tuning_runs()):
            return {}
        selected: dict[tuple[str, str], dict[str, Any]] = {}
        for task in study.tasks:
            for arm in study.arms:
                score = partial(self._score, task, study.tuned_like.get(arm, arm))
                selected[task, arm] = max(study.points(), key=score)
        return selected

    def evaluation_runs(self) -> list[Run]:
        """Return the runs on the evaluation seeds, seed by seed; requires the tuning runs."""
        study, tuned = self.study, self.tuned()
        return [
            Run(task, arm, EVALUATION, seed, tuned[task, arm])
            for seed in study.seeds
            for task in study.tasks
            for arm in study.arms
        ]

    def records(self) -> list[Record]:
        """Return the records of all complete runs."""
        runs = self.tuning_runs()
        if self.tuned():
            runs += self.evaluation_runs()
        return [record for record in map(self._record, runs) if record is not None]

    def execute(self, run: Run) -> Record:
        """Execute a single run, and return its record."""
        seed = self.study.model_seed(run.seed)
        with self._pool() as pool:
            if not (model_folder(self.folder, self.study, run.task, seed) / "gem_tiny.json").exists():
                _submit(pool, _make_model, (self.study, self.folder, run.task, seed)).result()
            _submit(pool, _execute, (self.name, self.study, self.folder, run)).result()
        record = self._record(run)
        assert record is not None
        return record

    def _score(self, task: str, arm: str, point: Mapping[str, Any]) -> float:
        """Return the tuning metric in the last quarter of the steps, averaged over the tuning seeds."""
        if not self.study.grid:
            return 0.0
        scores = []
        for seed in self.study.tuning_seeds:
            record = self._record(Run(task, arm, TUNING, seed, point))
            assert record is not None
            scores.append(mean_of_last(record.curve(self.study.tuning_metric), 4))
        return fmean(scores)

    def _record(self, run: Run) -> Record | None:
        """Return the record of a complete run with the same options, or None."""
        path = _record_path(self.folder, run)
        if path.exists():
            record = Record(**json.loads(path.read_text(encoding="utf-8")))
        elif run.id in self._known:
            record = self._known[run.id]
        else:
            return None
        options, recorded = run.options(self.study), record.config
        same = all(name in recorded and recorded[name] == value for name, value in options.items())
        return record if same else None

    def _missing(self, runs: Sequence[Run]) -> list[tuple[str, Study, Path, Run]]:
        return [(self.name, self.study, self.folder, run) for run in runs if self._record(run) is None]

    def _models(self) -> Iterator[tuple[Study, Path, str, int]]:
        """Yield the initial models that the missing runs need and that do not exist."""
        study, runs = self.study, self.tuning_runs()
        seeds = set()
        if self.tuned():
            runs += self.evaluation_runs()
        else:
            seeds = {(task, study.model_seed(seed)) for task in study.tasks for seed in study.seeds}
        seeds |= {(run.task, study.model_seed(run.seed)) for run in runs if self._record(run) is None}
        made = set()
        for task, seed in sorted(seeds):
            folder = model_folder(self.folder, study, task, seed)
            if folder not in made and not (folder / "gem_tiny.json").exists():
                made.add(folder)
                yield study, self.folder, task, seed

    @contextlib.contextmanager
    def _pool(self) -> Iterator[ProcessPoolExecutor | None]:
        if not self.jobs:
            yield None
            return
        # The libraries read these variables when a new process imports them.
        os.environ.update(ENVIRONMENT)
        with ProcessPoolExecutor(self.jobs, get_context("spawn")) as pool:
            yield pool

    def _work(
        self, pool: ProcessPoolExecutor | None, function: Callable[..., str], what: str, items: Sequence[Any]
    ) -> None:
        """Execute a function for all items until the deadline, and report progress and time left."""
        began, done, waiting = time.monotonic(), 0, list(items)
        running: set[Future[str]] = set()
        while (waiting and time.monotonic() < self.deadline) or running:
            while waiting and len(running) < max(1, self.jobs) and time.monotonic() < self.deadline:
                running.add(_submit(pool, function, waiting.pop(0)))
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                done += 1
                left = (time.monotonic() - began) / done * (len(items) - done)
                print(f"{what} {done}/{len(items)}: {future.result()}, {left / 60:.1f} min left", flush=True)


def _submit(pool: ProcessPoolExecutor | None, function: Callable[..., str], item: Any) -> Future[str]:
    if pool is not None:
        return pool.submit(function, item)
    future: Future[str] = Future()
    future.set_result(function(item))
    return future


def model_folder(folder: Path, study: Study, task: str, seed: int) -> Path:
    """Return the folder of an initial model."""
    return folder / "models" / f"{study.tasks[task].model or task}-{seed}"


def _record_path(folder: Path, run: Run) -> Path:
    return folder / "records" / f"{run.id}.json"


def _make_model(item: tuple[Study, Path, str, int]) -> str:
    """Create an initial model."""
    from gem_lab.train import TinyOptions, save_tiny
    from gem_lab.train._console import quiet_transformers

    quiet_transformers()
    study, folder, task, seed = item
    options = {"env": (study.tasks[task].env,), **study.tasks[task].tiny, "seed": seed}
    save_tiny(model_folder(folder, study, task, seed), TinyOptions(**options))
    return f"{task}, seed {seed}"


def _execute(item: tuple[str, Study, Path, Run]) -> str:
    """Execute a run, or continue it, and write its record."""
    from gem_lab.train import TrainConfig, train
    from gem_lab.train._checkpoint import list_checkpoints
    from gem_lab.train._console import quiet_transformers

    quiet_transformers()
    estimators.register()
    name, study, folder, run = item
    out = folder / "unfinished" / run.id
    model = model_folder(folder, study, run.task, study.model_seed(run.seed))
    resumed = bool(list_checkpoints(out))
    wall, cpu = time.perf_counter(), time.process_time()
    outcome = train(TrainConfig(model=str(model), out=str(out), curve=False, **run.options(study)))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    metrics = [metric for metric, _ in study.panels]
    metrics = list(dict.fromkeys([*metrics, study.metric, *study.more_metrics, study.tuning_metric]))
    record = Record.from_run(
        run.arm,
        run.seed,
        f"python benchmarks/study.py {name} --run '{run.id}'",
        out,
        table=[metric for metric in metrics if metric.startswith("gem/")],
        figure=metrics if run.phase == EVALUATION else [study.tuning_metric],
    )
    measure = study.tasks[run.task].measure
    if measure is not None and run.phase == EVALUATION:
        options = run.options(study)
        before, after = measure(model, options), measure(outcome.checkpoint, options)
        record = replace(record, before={**record.before, **before}, after={**record.after, **after})
    record = replace(
        record,
        run=run.id,
        task=run.task,
        phase=run.phase,
        wall_s=round(wall, 1),
        cpu_s=round(cpu, 1),
        resumed=resumed,
    )
    write_atomically(_record_path(folder, run), [json.dumps(asdict(record)) + "\n"])
    shutil.rmtree(out)
    curve = record.curve(study.tuning_metric)
    return f"{run.id}: {study.tuning_metric} {curve[0]:.3f} -> {curve[-1]:.3f}, {cpu:.0f} s of CPU time"
