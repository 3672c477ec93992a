"""The records of a training run in its folder, which an interrupted run continues without repetitions."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gem_core.errors import CheckpointError, DataError, TraceError
from gem_core.rollout import Episode, TraceWriter, read_traces
from gem_lab._run_folders import append_line, claimed, read_json_lines
from gem_lab.train._checkpoint import (
    drop_checkpoints,
    list_checkpoints,
    load_state,
    remove_unfinished,
    save_checkpoint,
)
from gem_lab.train._config import TrainConfig
from gem_lab.train._output import write_text
from gem_lab.train._sinks import MetricSinks

TRACES_NAME = "traces.jsonl"
EVALUATIONS_NAME = "evaluations.jsonl"
EVALUATION = "evaluation"
"""Start of the request ids of an evaluation."""


@dataclass
class Progress:
    """State in a checkpoint besides weights, as plain data."""

    step: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    """Metrics, one dict per step."""
    before: dict[str, dict[str, float]] = field(default_factory=dict)
    """Evaluation of the initial weights: maps an environment id to its metrics."""


def learner_of(episode: Episode, learners: Collection[str]) -> str:
    """Return the learner of an episode: its agent, or "" if the agent has no weights of its own."""
    agent: str = episode.metadata.get("agent", "")
    return agent if agent in learners else ""


class RunRecords:
    """The folder of a run, which no other run may use at the same time.

    Args:
        config: Options of the run.
        resources: Closes everything that this object opens.

    Raises:
        ConfigError: The folder cannot be written, or another run is using it.
    """

    def __init__(self, config: TrainConfig, resources: contextlib.ExitStack) -> None:
        self.config = config
        self.folder = config.prepare_folder()
        self._resources = resources
        self._claim = resources.enter_context(claimed(self.folder, "training run"))
        self._decoders: Mapping[str, Callable[[list[int]], str]] = {}
        self._done = 0
        remove_unfinished(self.folder)

    def newest(self) -> tuple[Path | None, dict[str, Any]]:
        """Return the checkpoint from which the run continues, and its state; None and {} for a new run.

        Raises:
            CheckpointError: The checkpoint cannot be read, or was written with other options.
        """
        checkpoints = list_checkpoints(self.folder) if self.config.resume else []
        if not checkpoints:
            return None, {}
        state = load_state(checkpoints[-1])
        if changed := self.config.differences(state["config"]):
            raise CheckpointError(
                f"{checkpoints[-1]} was written with other options ({', '.join(changed)}); "
                "use the same options, another folder, or --no-resume"
            )
        return checkpoints[-1], state

    def begin(self, progress: Progress, decoders: Mapping[str, Callable[[list[int]], str]]) -> MetricSinks:
        """Drop what the run will repeat, or all records of a replaced run, and open the sinks for metrics.

        Args:
            progress: State from which the run continues.
            decoders: Decodes the tokens of each learner's episodes.
        """
        self._done, self._decoders = progress.step, decoders
        if not progress.step:  # a replaced run's checkpoints must not be mistaken for those of this run
            drop_checkpoints(self.folder)
        write_text(self.folder / "config.json", json.dumps(self.config.to_dict(), indent=2) + "\n")
        self._keep_traces_of_the_past()
        self._keep_evaluations_of_the_past()
        sinks = MetricSinks(self.config, self.folder, progress.history)
        return self._resources.enter_context(contextlib.closing(sinks))

    def trace(self, episodes: Sequence[Episode], file: str = TRACES_NAME) -> None:
        """Append episodes to the traces."""
        self._claim.check()  # the writer would create the folder again
        with contextlib.ExitStack() as files:
            writers = {
                agent: files.enter_context(TraceWriter(self.folder / file, decode=decode))
                for agent, decode in self._decoders.items()
            }
            for episode in episodes:
                writers[learner_of(episode, writers)].write(episode)

    def evaluation(self, step: int, env: str, episodes: Sequence[Episode]) -> None:
        """Append the results of every episode of an evaluation to the file of evaluations."""
        line = {
            "step": step,
            "env": env,
            "seed": [episode.seed for episode in episodes],
            "success": [episode.success for episode in episodes],
            "return": [episode.total_reward for episode in episodes],
            "turns": [len(episode.turns) for episode in episodes],
            "error": [bool(episode.error) for episode in episodes],
        }
        append_line(self.folder / EVALUATIONS_NAME, json.dumps(line))

    def evaluations(self, results: Mapping[str, Any]) -> None:
        """Write the metrics of the evaluations before and after training."""
        write_text(self.folder / "evaluation.json", json.dumps(results, indent=2) + "\n")

    def save(
        self, progress: Progress, models: Mapping[str, tuple[Any, Any]], state: Mapping[str, Any]
    ) -> None:
        """Write a checkpoint; see `save_checkpoint`."""
        self._claim.check()
        whole = {
            **state,
            "config": self.config.to_dict(),
            "history": progress.history,
            "before": progress.before,
        }
        save_checkpoint(self.folder, progress.step, models, whole, self.config.keep_checkpoints)

    def _is_past(self, step: int, *, evaluation: bool) -> bool:
        """Return whether a training step, or an evaluation after that step, will not be repeated."""
        if evaluation and self._done in (0, self.config.steps):  # the first or last evaluation will follow
            return step < self._done
        return step <= self._done

    def _keep_evaluations_of_the_past(self) -> None:
        path = self.folder / EVALUATIONS_NAME
        kept = []
        for number, row in enumerate(read_json_lines(path) if self._done and path.exists() else [], start=1):
            if not isinstance(row, dict) or not isinstance(row.get("step"), int):
                raise DataError(f"{path}, line {number} is not an evaluation")
            if self._is_past(row["step"], evaluation=True):
                kept.append(json.dumps(row) + "\n")
        write_text(path, "".join(kept))

    def _keep_traces_of_the_past(self) -> None:
        path, rewritten = self.folder / TRACES_NAME, f".{TRACES_NAME}.{os.getpid()}"
        if not path.exists():
            return
        kept = []
        for episode in read_traces(path) if self._done else ():
            try:
                step, request = int(episode.metadata["step"]), str(episode.metadata["request"])
            except (KeyError, TypeError, ValueError):
                raise TraceError(f"{path} holds an episode that does not belong to a training run") from None
            if self._is_past(step, evaluation=request.startswith(EVALUATION)):
                kept.append(episode)
        try:
            self.trace(kept, rewritten)
            os.replace(self.folder / rewritten, path)
        finally:
            (self.folder / rewritten).unlink(missing_ok=True)
