"""Processes of a run are killed in the middle of a step, and the run continues from its last checkpoint."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gem_core.rollout import read_traces
from tests.trainers.evidence import NAME, name_in
from tests.trainers.openrlhf.data import write_rows
from tests.trainers.openrlhf.harness import run_openrlhf
from tests.trainers.openrlhf.logged import metrics_of
from tests.trainers.openrlhf.spied import updates as updates_of
from tests.trainers.processes import Kill
from tests.trainers.spies import gem_trouble

gem_trouble.register()  # in this process, which makes the tasks

SLOW = "test:Slow-v0(max_number=20, max_turns=6)"


@pytest.mark.skipif(
    not os.environ.get("GEM_CORE_OPENRLHF"), reason="runs the trainer: `nox -s openrlhf-full` does"
)
@pytest.mark.full
@pytest.mark.timeout(3000)
def test_a_run_continues_after_a_kill_of_each_of_its_processes(
    tmp_path: Path, warm: Path, tokenizer: Any
) -> None:
    """Kill the worker that plays the episodes, vLLM's engine, and the trainer, each in the middle of a step.

    Each run completes one step before the kill, except the last one, which completes the last step.
    """
    rows = write_rows(tmp_path / "rows.jsonl", [SLOW], 16)
    saved = tmp_path / "checkpoints" / "_actor" / "latest"
    trained: Counter[int] = Counter()
    interrupted: set[int] = set()
    for index, process in enumerate(["ray::RolloutRayActor", "VLLM::EngineCore", "ray::PPOTrainer", None]):
        folder, step = tmp_path / f"run{index}", f"global_step{index + 1}"

        def in_the_middle(folder: Path = folder, step: str = step) -> bool:
            """Return whether an episode of the run's second step has begun."""
            lines = folder / "spy" / "env.jsonl"
            if not saved.exists() or saved.read_text() != step or not lines.exists():
                return False
            return lines.stat().st_mtime > saved.stat().st_mtime

        flags = {
            "ckpt.path": str(tmp_path / "checkpoints"),
            "ckpt.save_steps": "1",
            "ckpt.load_enable": None,
            "gem.traces": str(folder / "traces"),
        }
        kill = Kill(process, in_the_middle) if process else None
        run = run_openrlhf(folder, warm, rows, flags, kill=kill)
        assert (run.code == 0) == (process is None), run.output[-20000:]
        assert saved.read_text() == step
        traces = list(read_traces(folder / "traces" / "train.jsonl"))
        seeds = {match[1]: e.seed for e in traces if (match := NAME.search(str(e.turns[0].observation)))}
        (update,) = updates_of(run.spy)
        tasks = Counter(seeds[name_in(row.prompt, tokenizer)] for row in update.rows)
        assert sorted(tasks.values()) == [2] * 4
        assert interrupted <= tasks.keys()  # the tasks whose step was interrupted come next
        interrupted = {e.seed for e in traces} - tasks.keys()
        trained += tasks
    assert len(trained) == 16  # 4 tasks per step: none was lost, none was trained on in two steps
    assert len(metrics_of(run)) == 1
