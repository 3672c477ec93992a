"""Processes of a run are killed in the middle of a step, and the run continues from its last checkpoint."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gem_core.rollout import read_traces
from tests.trainers.evidence import NAME, Update, name_in
from tests.trainers.processes import Kill
from tests.trainers.verl import harness
from tests.trainers.verl.spied import metrics_of, updates

pytestmark = [
    pytest.mark.skipif(not os.environ.get("GEM_CORE_VERL"), reason="runs the trainer: `nox -s verl` does"),
    pytest.mark.full,
    pytest.mark.timeout(3000),
]
SLOW = "test:Slow-v0(max_number=20, max_turns=6)"
DIED = "a process that plays episodes died"
WORKER, ENGINE, TRAINER = "ray::GemAgentLoop", "ray::vLLM", "ray::TaskRunner"
MODES = {
    "gem_sync": ["trainer.v1.trainer_mode=gem_sync"],
    "gem_colocate_async": ["trainer.v1.trainer_mode=gem_colocate_async", harness.WAIT],
    "gem_separate_async": harness.SEPARATE,
}


@pytest.mark.parametrize(
    ("mode", "ahead", "kills"),
    [
        ("gem_sync", 0, [WORKER, ENGINE, TRAINER]),
        ("gem_colocate_async", 1, [WORKER, ENGINE, TRAINER]),
        ("gem_separate_async", 1, [WORKER, ENGINE, TRAINER]),
    ],
)
def test_a_run_continues_after_a_kill_of_each_of_its_processes(
    mode: str,
    ahead: int,
    kills: list[str],
    tmp_path: Path,
    warm: Path,
    warm_tokenizer: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kill an agent loop worker, an inference server, and the trainer, each in the middle of a step.

    Args:
        mode: Trainer mode.
        ahead: Number of batches that the mode plays ahead.
        kills: Processes to kill, one in each run; one more run ends by itself.
        tmp_path: Folder of the runs.
        warm: Folder of the model.
        warm_tokenizer: Its tokenizer.
        monkeypatch: Sets a variable of the runs.
    """
    monkeypatch.setenv("VERL_LOGGING_LEVEL", "WARNING")  # verl 0.9.1 logs a line with an unknown argument
    latest = tmp_path / "checkpoints" / "latest_checkpointed_iteration.txt"
    kept: list[Update] = []
    done = 0
    for index, process in enumerate([*kills, None]):
        folder = tmp_path / f"run{index}"

        def in_the_middle(folder: Path = folder, done: int = done) -> bool:
            """Return whether an episode has made a step since the first checkpoint of this run."""
            lines = folder / "spy" / "env.jsonl"
            if not latest.exists() or int(latest.read_text() or 0) <= done or not lines.exists():
                return False
            return lines.stat().st_mtime > latest.stat().st_mtime

        run = harness.run_verl(
            folder,
            warm,
            *MODES[mode],
            f"data.train_files=['{SLOW}']",
            f"trainer.total_training_steps={16 if process else done + 1}",
            "trainer.val_before_train=False",
            "trainer.save_freq=1",
            "trainer.resume_mode=auto",
            f"trainer.default_local_dir={tmp_path}/checkpoints",
            f"+gem.traces={tmp_path}/traces",
            kill=Kill(process, in_the_middle) if process else None,
        )
        assert (run.code == 0) == (process is None), run.output[-20000:]
        assert (DIED in run.output) == (process in (WORKER, ENGINE))
        before, done = done, int(latest.read_text())
        kept += updates(run.spy)[: done - before]  # the others are not in the checkpoint
        if mode == "gem_sync":
            assert done == before + 1
    assert [metrics["training/global_step"] for metrics in metrics_of(run)] == [done]
    traces = list(read_traces(tmp_path / "traces" / "train.jsonl"))
    seeds = {match[1]: e.seed for e in traces if (match := NAME.search(str(e.turns[0].observation)))}
    trained: Counter[int | None] = Counter()
    for update in kept:
        tasks = Counter(seeds[name_in(row.prompt, warm_tokenizer)] for row in update.rows)
        assert sorted(tasks.values()) == [2] * 4
        trained += tasks
    assert len(kept) == done
    assert len(trained) == 4 * done  # no task counts in two steps
    assert len({episode.seed for episode in traces} - trained.keys()) <= 4 * ahead  # none was lost
