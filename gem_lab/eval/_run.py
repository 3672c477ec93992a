"""Run an evaluation: `evaluate`.

    outcome = evaluate(EvalConfig("random", ["game:Mastermind-v0-easy"], episodes=50, out="runs/random"))
    outcome.summary["envs"]["game:Mastermind-v0-easy"]["return"]

Every task has a fixed seed and every request has its own random numbers, so the results depend neither on
the order in which episodes end nor on interruptions and repeated calls.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gem_chat import EnvPlayer
from gem_chat._concurrency import play_tasks
from gem_core._tasks import evaluation_tasks
from gem_core.rollout import EnvPool, Episode, TraceWriter
from gem_core.tasks import TaskRow
from gem_lab._arguments import check_type
from gem_lab._cut_turns import CutTurns
from gem_lab._run_folders import claimed
from gem_lab.eval import _folder as folders
from gem_lab.eval._config import EvalConfig
from gem_lab.eval._policies import PolicySetup, open_policy
from gem_lab.eval._summary import summarize_envs


class EvalReporter:
    """Base class for observers of a running evaluation; its methods do nothing."""

    def note(self, text: str) -> None:
        """Report the current activity in one line."""

    def start(self, totals: Mapping[str, int], done: Mapping[str, int]) -> None:
        """Report the number of episodes per environment, and the number that an earlier run has finished."""

    def episode(self, label: str, episode: Episode) -> None:
        """Report a finished episode of an environment."""

    def close(self) -> None:
        """Finish reporting; no calls follow this one."""


@dataclass(frozen=True)
class EvalOutcome:
    """Result of an evaluation.

    Attributes:
        folder: Folder of the run.
        summary: Content of ``summary.json``.
        episodes: Episodes, ordered by environment, task, and sample.
        played: Number of episodes played by this call; earlier calls played the others.
        repeated: Number of retries of requests to the endpoint.
    """

    folder: Path
    summary: dict[str, Any]
    episodes: list[Episode]
    played: int
    repeated: int


class _Job(NamedTuple):
    label: str
    row: TaskRow
    sample: int

    @property
    def key(self) -> folders.Key:
        return self.label, self.row["index"], self.sample


def evaluate(
    config: EvalConfig, reporter: EvalReporter | None = None, *, setup: PolicySetup | None = None
) -> EvalOutcome:
    """Play the unfinished episodes of the run, and write its summary.

    Args:
        config: Options of the evaluation.
        reporter: Observer that is notified of the progress; None for no observer.
        setup: Policy to evaluate instead of ``config.model``, which is then only its name; None opens the
            model.

    Returns:
        The summary and all episodes, including those of earlier calls.

    Raises:
        ConfigError: The folder holds another evaluation or is removed during the run, or an environment
            rejects its arguments or does not have the requested player.
        ServiceError: The endpoint rejects requests or does not answer; finished episodes are kept.
        ModelError: The model cannot be loaded.
        MissingDependency: A package is not installed.
    """
    check_type("config", config, EvalConfig, "such as EvalConfig(model='m', env=['game:Wordle-v0'])")
    reporter = reporter or EvalReporter()
    folder = Path(config.out)
    tasks = {source.label: evaluation_tasks([source], config.episodes) for source in config.sources}
    jobs = [
        _Job(label, row, sample)
        for label, rows in tasks.items()
        for row in rows
        for sample in range(config.group_size)
    ]
    pool = EnvPool(config.wrappers)
    try:
        for source in config.sources:
            pool.prepare(source)
        with claimed(folder, "evaluation") as claim:
            done = folders.begin(config, folder)
            for label, rows in tasks.items():
                if len(rows) < config.episodes:
                    reporter.note(f"{label}: {_each_once(rows, config)}")
            left = [job for job in jobs if job.key not in done]
            repeated = _play(config, reporter, setup, pool, jobs, left, folder) if left else 0
            claim.check()
            episodes = folders.finished(folder)
            summary = summary_of(config, episodes)
            folders.write_summary(folder, summary)
    finally:
        pool.close()
        reporter.close()
    return EvalOutcome(folder, summary, list(episodes.values()), len(left), repeated)


def _each_once(rows: Sequence[TaskRow], config: EvalConfig) -> str:
    times = "once" if config.group_size == 1 else f"{config.group_size} times"
    return f"{config.episodes} tasks were requested; its {len(rows)} evaluation items are played {times} each"


def summary_of(config: EvalConfig, episodes: Mapping[folders.Key, Episode]) -> dict[str, Any]:
    """Return the content of ``summary.json``, which depends only on the episodes and the prices."""
    by_env: dict[str, list[Episode]] = {source.label: [] for source in config.sources}
    for (label, _, _), episode in episodes.items():
        by_env[label].append(episode)
    summary = summarize_envs(by_env)
    envs = {label: _priced(config, env_summary) for label, env_summary in summary["envs"].items()}
    return {"model": config.model, "overall": _priced(config, summary["overall"]), "envs": envs}


def _priced(config: EvalConfig, summary: dict[str, Any]) -> dict[str, Any]:
    counts = summary["prompt_tokens"], summary["response_tokens"]
    cost = None
    if (config.price_in or config.price_out) and None not in counts:
        cost = (counts[0] * config.price_in + counts[1] * config.price_out) / 1e6
    return {**summary, "cost": cost}


def _play(
    config: EvalConfig,
    reporter: EvalReporter,
    setup: PolicySetup | None,
    pool: EnvPool,
    jobs: Sequence[_Job],
    left: Sequence[_Job],
    folder: Path,
) -> int:
    """Play the remaining jobs and return the number of retried calls."""
    remaining = _count(left)
    totals = _count(jobs)
    if len(left) < len(jobs):
        reporter.note(f"{folder}: {len(jobs) - len(left)} of {len(jobs)} episodes are finished already")

    async def play_jobs() -> int:
        # Clients and engines belong to the event loop in which they are used.
        own = setup or open_policy(config, reporter.note)
        reporter.start(totals, {label: totals[label] - remaining.get(label, 0) for label in totals})
        decode = None if own.tokenizer is None else own.tokenizer.decode
        cut_turns: CutTurns | None = None
        if config.max_tokens_per_turn == EvalConfig.max_tokens_per_turn:
            cut_turns = CutTurns(config.max_tokens_per_turn, "max_tokens_per_turn")
        try:
            with TraceWriter(folder / folders.EPISODES, decode=decode) as traces:

                async def play(index: int, job: _Job) -> None:
                    episode = await _one(config, own, pool, job, traces, reporter)
                    if cut_turns is not None:
                        cut_turns.add(episode)

                first = [job.row for job in left[: config.concurrency]]
                await pool.reserve(first, config.step_timeout)
                await play_tasks(left, play, at_once=config.concurrency)
        finally:
            if setup is None and hasattr(own.policy, "close"):
                await own.policy.close()
        return int(getattr(own.policy, "repeated", 0))

    return asyncio.run(play_jobs())


async def _one(
    config: EvalConfig,
    setup: PolicySetup,
    pool: EnvPool,
    job: _Job,
    traces: TraceWriter,
    reporter: EvalReporter,
) -> Episode:
    began = time.monotonic()
    request_id = f"{job.label}/{job.row['index']}/{job.sample}"
    if isinstance(setup.policy, EnvPlayer):
        request_id = f"{config.seed}/{request_id}"
    episode = await pool.play(
        job.row,
        setup.policy,
        setup.context,
        config,
        max_total_tokens=setup.max_total_tokens,
        request_id=request_id,
        metadata={
            "model": config.model,
            "env": job.label,
            "task": job.row["index"],
            "sample": job.sample,
            "evaluation_seed": config.seed,
        },
    )
    episode.metadata["seconds"] = round(time.monotonic() - began, 3)
    traces.write(episode)
    reporter.episode(job.label, episode)
    return episode


def _count(jobs: Sequence[_Job]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for job in jobs:
        counts[job.label] = counts.get(job.label, 0) + 1
    return counts
