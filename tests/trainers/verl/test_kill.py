"""Processes of a run are killed in the middle of a step, and the run continues from its last checkpoint."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from gem_core.rollout import read_traces
from tests.trainers.processes import Kill
from tests.trainers.verl import harness
from tests.trainers.verl.spied import metrics_of

pytestmark = [
    pytest.mark.skipif(not os.environ.get("GEM_CORE_VERL"), reason="runs the trainer: `nox -s verl` does"),
    pytest.mark.full,
    pytest.mark.timeout(3000),
]
SLOW = "test:Slow-v0(max_number=20, max_turns=6)"
DIED = "a process that plays episodes died"


def tasks_of(traces: Path, step: int) -> Counter[int]:
    """Return how many episodes of each seed were played for a step."""
    episodes = read_traces(traces / "train.jsonl") if traces.exists() else ()
    return Counter(episode.seed for episode in episodes if episode.metadata["step"] == step)


def test_a_run_continues_after_a_kill_of_each_of_its_processes(tmp_path: Path, warm: Path) -> None:
    """Kill an agent loop worker, an inference server, and the trainer, each in the middle of a step."""
    saved = tmp_path / "checkpoints" / "latest_checkpointed_iteration.txt"
    kills = {"ray::GemAgentLoop": DIED, "ray::vLLM": DIED, "ray::TaskRunner": "", None: ""}
    folders: list[Path] = []
    first_steps: list[int] = []
    for process, message in kills.items():
        folder = tmp_path / f"run{len(folders)}"
        done = int(saved.read_text()) if saved.exists() else 0
        first_steps.append(done + 1)
        folders.append(folder)

        def in_the_middle(folder: Path = folder, done: int = done) -> bool:
            """Return whether an episode of the run's second step has begun."""
            lines = folder / "spy" / "env.jsonl"
            if not saved.exists() or int(saved.read_text()) != done + 1 or not lines.exists():
                return False
            return lines.stat().st_mtime > saved.stat().st_mtime

        run = harness.run_verl(
            folder,
            warm,
            "trainer.v1.trainer_mode=gem_sync",
            f"data.train_files=['{SLOW}']",
            "trainer.total_training_steps=4",
            "trainer.val_before_train=False",
            "trainer.save_freq=1",
            "trainer.resume_mode=auto",
            f"trainer.default_local_dir={tmp_path}/checkpoints",
            f"+gem.traces={folder}/traces",
            kill=Kill(process, in_the_middle) if process else None,
        )
        assert (run.code == 0) == (process is None), run.output[-20000:]
        assert message in run.output
        assert int(saved.read_text()) == (done + 1 if process else 4)
    assert first_steps == [1, 2, 3, 4]
    trained: Counter[int] = Counter()
    for number, folder in enumerate(folders):
        tasks = tasks_of(folder / "traces", number + 1)  # the step that this run completed
        assert sorted(tasks.values()) == [2] * 4
        trained += tasks
        if number:  # what the killed run had played of this step is the start of the same tasks
            interrupted = tasks_of(folders[number - 1] / "traces", number + 1)
            assert interrupted.keys() <= tasks.keys()
    assert len(trained) == 16  # 4 tasks per step: none was lost, none counts in two steps
    assert [metrics["training/global_step"] for metrics in metrics_of(run)] == [4]
