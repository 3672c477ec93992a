"""The training loop in one process, on CPU or CUDA: roll out, compute advantages, update, record.

    outcome = train(TrainConfig(env=["game:GuessTheNumber-v0-easy"], gamma=0.9, out="runs/guess"))
    outcome.mean("after", "gem/success")

A step depends only on the seed of the run, the number of the step, and the state after the previous step, so
a killed run resumes exactly from its last checkpoint.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gem_core._util.files import append_line, claimed, read_json_lines
from gem_core._util.seeds import derive_seed
from gem_core.errors import CheckpointError, DataError, EnvError, TraceError
from gem_core.rollout import (
    CutTurns,
    Episode,
    TraceWriter,
    describe_failures,
    episode_metrics,
    nothing_trainable,
    read_traces,
)
from gem_core.rollout.metrics import evaluation_metrics
from gem_core.rollout.sources import SourceLedger, split_by_source
from gem_core.tasks import TaskRow, evaluation_tasks
from gem_lab.engines.loading import pick_device
from gem_lab.train.checkpoint import (
    agent_folder,
    drop_checkpoints,
    list_checkpoints,
    load_state,
    reading,
    remove_unfinished,
    save_checkpoint,
)
from gem_lab.train.config import TINY, TrainConfig
from gem_lab.train.learner import Learner
from gem_lab.train.models import prepare_model
from gem_lab.train.output import write_text
from gem_lab.train.report import TrainOutcome, TrainReporter, write_report
from gem_lab.train.rollouts import Players, Rollouts, require_environments, training_tasks
from gem_lab.train.sinks import MetricSinks, require_packages

logger = logging.getLogger(__name__)

TRACES_NAME = "traces.jsonl"
EVALUATIONS_NAME = "evaluations.jsonl"
_EVALUATION = "evaluation"
_SMALL = 1_000_000
"""Number of parameters below which one thread is faster per CPU second."""


def train(config: TrainConfig, reporter: TrainReporter | None = None) -> TrainOutcome:
    """Train a model, and evaluate it before and after training.

    The folder `config.out` holds the results: ``metrics.jsonl`` (one line per step), ``evaluation.json``,
    ``evaluations.jsonl`` (the results of each evaluation seed), ``curve.png``, ``episodes.txt``,
    ``traces.jsonl``, ``config.json``, and ``checkpoints/``.

    Args:
        config: Options of the run.
        reporter: Observer that is notified of the progress; None for no observer.

    Returns:
        Metrics of every step and of both evaluations, and the last checkpoint.

    Raises:
        ConfigError: The folder cannot be written, is removed during the run, or another run is using it, or
            a limit does not fit the model.
        ModelError: The model or its tokenizer cannot be loaded.
        CheckpointError: A checkpoint cannot be read or written, or does not belong to this run.
        DataError: The evaluations of the interrupted run are damaged.
        TraceError: Its traces are damaged.
        OSError: A file of the run cannot be written; the error names it.
        EnvError: All episodes of a step, of one of its environments (`SourceLedger`), or of an environment's
            evaluation before training were untrainable; the state before that step has been saved.
        MissingDependency: A package that the run needs is not installed.
    """
    with contextlib.ExitStack() as resources:
        return Trainer(config, reporter or TrainReporter(), resources).run()


@dataclass
class Progress:
    """State in a checkpoint besides weights, as plain data."""

    step: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    """Metrics, one dict per step."""
    before: dict[str, dict[str, float]] = field(default_factory=dict)
    """Evaluation of the initial weights: maps an environment id to its metrics."""


class Trainer:
    """One training run, started by `train`, which closes everything in `resources`."""

    def __init__(self, config: TrainConfig, reporter: TrainReporter, resources: contextlib.ExitStack) -> None:
        self.config = config
        self.reporter = reporter
        resources.callback(reporter.close)
        self.folder = config.prepare_folder()
        self.claim = resources.enter_context(claimed(self.folder, "training run"))
        remove_unfinished(self.folder)
        require_packages(config)
        pick_device(config.device)
        require_environments(config)
        # Episodes consist of many small objects. Each full garbage collection that they cause would otherwise
        # go through all objects of the imported packages, which takes a fifth of the time of a rollout.
        if not gc.get_freeze_count():  # a caller that froze its objects keeps them frozen
            gc.freeze()
            resources.callback(gc.unfreeze)
        resources.callback(gc.set_threshold, *gc.get_threshold())
        gc.set_threshold(100_000)  # most new objects belong to episodes, which stay until the step ends
        resources.callback(torch.set_num_threads, torch.get_num_threads())
        if config.threads:
            torch.set_num_threads(config.threads)
        torch.manual_seed(config.seed)
        checkpoints = list_checkpoints(self.folder) if config.resume else []
        state = load_state(checkpoints[-1]) if checkpoints else None
        if state is not None:
            changed = config.differences(state["config"])
            if changed:
                raise CheckpointError(
                    f"{checkpoints[-1]} was written with other options ({', '.join(changed)}); "
                    "use the same options, another folder, or --no-resume"
                )
        newest = checkpoints[-1] if checkpoints else None
        self.learners = {
            agent: Learner(
                config, prepare_model(config, model, reporter), newest and agent_folder(newest, agent)
            )
            for agent, model in {"": config.model, **config.agent_models}.items()
        }
        """Learners by agent; the entry "" plays and learns for all agents without separate weights."""
        if not config.threads and all(learner.size < _SMALL for learner in self.learners.values()):
            torch.set_num_threads(1)  # threads would spend more time waiting for each other than computing
        limits = [learner.max_total_tokens for learner in self.learners.values()]
        shortest = min((limit for limit in limits if limit is not None), default=None)
        rollouts = Rollouts(config, self._players(derive_seed(config.seed, "check", sep="/")), shortest)
        self.rollouts = resources.enter_context(contextlib.closing(rollouts))
        self.cut_turns: CutTurns | None = None
        if config.model != TINY and config.max_tokens_per_turn == TrainConfig.max_tokens_per_turn:
            self.cut_turns = CutTurns(config.max_tokens_per_turn, "max_tokens_per_turn")
        self.progress = Progress()
        self.ledger = SourceLedger()
        if state is not None:
            with reading(checkpoints[-1]):
                self._restore(state)
        else:  # checkpoints of a replaced run must not be mistaken for checkpoints of this one
            drop_checkpoints(self.folder)
        write_text(self.folder / "config.json", json.dumps(config.to_dict(), indent=2) + "\n")
        self._keep_traces_of_the_past()
        self._keep_evaluations_of_the_past()
        sinks = MetricSinks(config, self.folder, self.progress.history)
        self.sinks = resources.enter_context(contextlib.closing(sinks))

    # -- the run ------------------------------------------------------------------------------

    def run(self) -> TrainOutcome:
        """Evaluate, train to the last step, evaluate again, and write the report."""
        config, progress = self.config, self.progress
        if progress.step == 0:
            progress.before, first = self._evaluate("before")
        else:
            first = []
            self.reporter.note(f"resumed from step {progress.step}")
        self.reporter.start(config.steps, progress.step)
        saved = progress.step
        while progress.step < config.steps:
            try:
                metrics, episodes = self._step(progress.step + 1)
            except EnvError:
                if saved != progress.step:
                    self._save()
                raise
            progress.step += 1
            progress.history.append(metrics)
            self.sinks.write(metrics)
            self.reporter.step(metrics)
            if config.trace_every and progress.step % config.trace_every == 0:
                self._trace(episodes[: config.trace_episodes])
            if config.eval_every and progress.step % config.eval_every == 0 and progress.step < config.steps:
                self._evaluate("during")
            if progress.step % config.save_every == 0 or progress.step == config.steps:
                self._save()
                saved = progress.step
        self.reporter.stop()
        after, last = self._evaluate("after")
        outcome = TrainOutcome(
            folder=self.folder,
            checkpoint=list_checkpoints(self.folder)[-1],
            history=progress.history,
            before=progress.before,
            after=after,
        )
        write_report(outcome, config, last)
        self.reporter.finish(outcome, first, last)
        return outcome

    def _step(self, step: int) -> tuple[dict[str, float], list[Episode]]:
        config = self.config
        began = time.perf_counter()
        tasks = training_tasks(config, step)
        players = self._players(derive_seed(config.seed, "train", sep="/"))
        episodes = self._play(tasks, players, f"step {step}", step)
        if "baselines" in config.needs:
            self._set_baselines(step, tasks, episodes)
        rolled_out = time.perf_counter()
        if self.cut_turns is not None:
            self.cut_turns.add(*episodes)
        metrics: dict[str, float] = {"step": step}
        metrics |= self.ledger.close_step(f"step {step}", *split_by_source(episodes))
        for agent, learner in self.learners.items():
            mine = [episode for episode in episodes if self._learner_of(episode) == agent]
            values = episode_metrics(mine)
            if trained := [episode for episode in mine if self._has_part(episode)]:
                values |= learner.learn(step, trained)
            metrics |= {f"{agent}/{key}" if agent else key: value for key, value in values.items()}
        metrics["time/rollout"] = rolled_out - began
        metrics["time/update"] = time.perf_counter() - rolled_out
        return metrics, episodes

    def _set_baselines(self, step: int, tasks: Sequence[TaskRow], episodes: Sequence[Episode]) -> None:
        """Play one greedy episode per task, whose return is the baseline of the episodes of the task.

        Episodes of a task whose greedy episode fails have no baseline and are left out of the update.

        Raises:
            EnvError: All greedy episodes failed.
        """
        first = {task["index"]: task for task in tasks}
        players = self._players(derive_seed(self.config.seed, "greedy", sep="/"), greedy=True)
        played = self._play([*first.values()], players, f"greedy episodes of step {step}", step)
        baselines = {one.metadata["group"]: one.total_reward for one in played if one.trainable}
        for episode in episodes:
            if episode.metadata["group"] in baselines:
                episode.metadata["baseline"] = baselines[episode.metadata["group"]]

    def _has_part(self, episode: Episode) -> bool:
        """Return whether the update includes an episode."""
        return episode.trainable and ("baselines" not in self.config.needs or "baseline" in episode.metadata)

    def _play(
        self, tasks: Sequence[TaskRow], players: Players, name: str, step: int, *, may_fail: bool = False
    ) -> list[Episode]:
        """Play tasks; with `may_fail`, the run continues even if no episode could be played."""
        episodes = self.rollouts.play(tasks, players, name=name)
        failed = [episode for episode in episodes if not episode.trainable]
        if failed:
            if len(failed) == len(episodes) and not may_fail:
                raise nothing_trainable(episodes, name)
            logger.warning("%s: %s", name, describe_failures(episodes))
        for episode in episodes:
            episode.metadata |= {"step": step, "gamma": self.config.gamma}
        return episodes

    # -- evaluation and records ---------------------------------------------------------------

    def _players(self, seed: str, *, greedy: bool = False) -> Players:
        return {
            agent: (learner.policy(seed, greedy=greedy), learner.context)
            for agent, learner in self.learners.items()
        }

    def _learner_of(self, episode: Episode) -> str:
        """Return the key of the episode's learner in `learners`."""
        agent: str = episode.metadata.get("agent", "")
        return agent if agent in self.learners else ""

    def _evaluate(self, when: str) -> tuple[dict[str, dict[str, float]], list[Episode]]:
        """Play the evaluation seeds of every environment with the sampled policy.

        `when` is "before", "during", or "after" training.
        """
        config = self.config
        results: dict[str, dict[str, float]] = {}
        played: list[Episode] = []
        sources = config.eval_sources if config.eval_episodes else ()
        # An environment with few held-out items has fewer tasks than requested.
        tasks_by_source = [(source, evaluation_tasks([source], config.eval_episodes)) for source in sources]
        if tasks_by_source:
            count = sum(len(tasks) for _, tasks in tasks_by_source)
            self.reporter.note(f"evaluation {when} training: {count} episodes")
        for source, tasks in tasks_by_source:
            # The name is the same before and after training, and so are the random numbers; only the policy
            # differs.
            name = f"{_EVALUATION} of {source.label}"
            episodes = self._play(
                tasks,
                self._players(derive_seed(config.seed, "eval", sep="/")),
                name,
                self.progress.step,
                may_fail=when != "before",
            )
            results[source.label] = evaluation_metrics(episodes)
            played += episodes
            self._trace(episodes[: config.trace_episodes])
            self._record_evaluation(source.label, episodes)
        if when == "during":
            return results, played
        recorded = {"before": self.progress.before or results}
        if when == "after":
            recorded["after"] = results
        write_text(self.folder / "evaluation.json", json.dumps(recorded, indent=2) + "\n")
        return results, played

    def _record_evaluation(self, env: str, episodes: Sequence[Episode]) -> None:
        """Append the results of every episode of an evaluation to the file of evaluations."""
        line = {
            "step": self.progress.step,
            "env": env,
            "seed": [episode.seed for episode in episodes],
            "success": [episode.success for episode in episodes],
            "return": [episode.total_reward for episode in episodes],
            "turns": [len(episode.turns) for episode in episodes],
            "error": [bool(episode.error) for episode in episodes],
        }
        append_line(self.folder / EVALUATIONS_NAME, json.dumps(line))

    def _keep_evaluations_of_the_past(self) -> None:
        """Drop the evaluations that the resumed run will repeat."""
        path = self.folder / EVALUATIONS_NAME
        rows = read_json_lines(path) if self.progress.step and path.exists() else []
        kept = []
        for number, row in enumerate(rows, start=1):
            if not isinstance(row, dict) or not isinstance(row.get("step"), int):
                raise DataError(f"{path}, line {number} is not an evaluation")
            if self._is_past(row["step"], evaluation=True):
                kept.append(json.dumps(row) + "\n")
        write_text(path, "".join(kept))

    def _is_past(self, step: int, *, evaluation: bool) -> bool:
        """Return whether a training step, or an evaluation after that step, will not be repeated."""
        done = self.progress.step
        if evaluation and done in (0, self.config.steps):  # the first or the last evaluation will follow
            return step < done
        return step <= done

    def _trace(self, episodes: Sequence[Episode], file: str = TRACES_NAME) -> None:
        self.claim.check()  # the writer would create the folder again
        with contextlib.ExitStack() as files:
            traces = {
                agent: files.enter_context(TraceWriter(self.folder / file, decode=learner.tokenizer.decode))
                for agent, learner in self.learners.items()
            }
            for episode in episodes:
                traces[self._learner_of(episode)].write(episode)

    def _keep_traces_of_the_past(self) -> None:
        """Drop the traces of steps and evaluations that the resumed run will repeat."""
        path, rewritten = self.folder / TRACES_NAME, f".{TRACES_NAME}.{os.getpid()}"
        if not path.exists():
            return
        kept = []
        for episode in read_traces(path) if self.progress.step else ():
            try:
                step, request = int(episode.metadata["step"]), str(episode.metadata["request"])
            except (KeyError, TypeError, ValueError):
                raise TraceError(f"{path} holds an episode that does not belong to a training run") from None
            evaluation = request.startswith(_EVALUATION)
            if self._is_past(step, evaluation=evaluation):
                kept.append(episode)
        try:
            self._trace(kept, rewritten)
            os.replace(self.folder / rewritten, path)
        finally:
            (self.folder / rewritten).unlink(missing_ok=True)

    # -- checkpoints --------------------------------------------------------------------------

    def _save(self) -> None:
        progress = self.progress
        self.claim.check()
        save_checkpoint(
            self.folder,
            progress.step,
            {agent: (learner.model, learner.processor) for agent, learner in self.learners.items()},
            {
                "config": self.config.to_dict(),
                "learners": {agent: learner.state() for agent, learner in self.learners.items()},
                "torch_rng": torch.get_rng_state(),
                "history": progress.history,
                "before": progress.before,
            },
            self.config.keep_checkpoints,
        )

    def _restore(self, state: dict[str, Any]) -> None:
        for agent, learner in self.learners.items():
            learner.restore(state["learners"][agent])
        torch.set_rng_state(state["torch_rng"])
        self.progress = Progress(state["step"], state["history"], state["before"])
        self.ledger.restore(self.progress.history)
