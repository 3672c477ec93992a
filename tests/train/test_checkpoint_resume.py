"""A killed run resumes as if nothing had happened; whatever fails, the last checkpoint is kept."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
from contextlib import contextmanager

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

from gem_core.errors import CheckpointError, ModelError  # noqa: E402
from gem_core.rollout import read_traces  # noqa: E402
from gem_lab._engines.loading import load_model  # noqa: E402
from gem_lab.train import TrainConfig, train  # noqa: E402
from gem_lab.train._checkpoint import STATE_NAME, list_checkpoints, load_state  # noqa: E402
from gem_lab.train._report import TrainReporter  # noqa: E402
from tests.train.helpers import options, read_metrics, same_weights  # noqa: E402


class Killer(TrainReporter):
    """Kills its process after five steps."""

    def step(self, metrics):
        if metrics["step"] == 5:
            os.kill(os.getpid(), signal.SIGKILL)


class Stop(TrainReporter):
    """Calls a function after a step."""

    def __init__(self, step, action):
        self.at, self.action = step, action

    def step(self, metrics):
        if metrics["step"] == self.at:
            self.action()


def fail():
    raise ZeroDivisionError


def run(model, out, **changes):
    given = {
        "steps": 7,
        "eval_every": 2,
        "save_every": 2,
        "trace_every": 1,
        "trace_episodes": 3,
        "keep_checkpoints": 9,
    }
    return TrainConfig(**options(model, out, **given | changes))


def played(folder):
    return [
        (e.metadata["request"], e.metadata["step"], e.seed, [turn.response_ids for turn in e.turns])
        for e in read_traces(folder / "traces.jsonl")
    ]


def assert_same_run(first, second):
    assert read_metrics(first) == read_metrics(second)
    assert len(read_metrics(first)) == 7
    assert played(first) == played(second)
    assert same_weights(list_checkpoints(first)[-1], list_checkpoints(second)[-1])
    for name in ("evaluation.json", "evaluations.jsonl"):
        assert (first / name).read_text() == (second / name).read_text()
    evaluations = (first / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in evaluations] == [0, 2, 4, 6, 7]


@pytest.mark.long
def test_a_run_killed_at_any_moment_is_resumed_exactly(tiny_folder, tmp_path):
    config = run(tiny_folder, tmp_path / "killed")
    process = multiprocessing.get_context("fork").Process(target=train, args=(config, Killer()))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert len(read_metrics(tmp_path / "killed")) == 5
    assert list_checkpoints(tmp_path / "killed")[-1].name == "step-000004"
    half_written = tmp_path / "killed" / "checkpoints" / ".step-000006.abcdefgh"
    half_written.mkdir()
    with (tmp_path / "killed" / "evaluations.jsonl").open("a") as file:
        file.write('{"step": 6, "env"')  # as if the process had been killed while it wrote the line
    train(config)
    assert not half_written.exists()
    train(run(tiny_folder, tmp_path / "whole"))
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


@pytest.mark.parametrize("critic", ["head", "model"])
def test_critic_and_optimizer_are_resumed_too(critic, tiny_folder, tmp_path):
    changes = {"estimator": "gae", "critic": critic, "epochs": 2, "entropy": 0.01, "weight_decay": 0.01}
    with pytest.raises(ZeroDivisionError):
        train(run(tiny_folder, tmp_path / "broken", **changes), Stop(5, fail))
    train(run(tiny_folder, tmp_path / "broken", **changes))
    train(run(tiny_folder, tmp_path / "whole", **changes))
    assert_same_run(tmp_path / "broken", tmp_path / "whole")
    first, second = (load_state(list_checkpoints(tmp_path / name)[-1]) for name in ("broken", "whole"))
    assert torch.equal(*(state["learners"][""]["critic"]["weight"] for state in (first, second)))


def test_a_complete_run_evaluates_again_and_stays_the_same(tiny_folder, tmp_path):
    first = train(run(tiny_folder, tmp_path))
    before = played(tmp_path), read_metrics(tmp_path)
    second = train(run(tiny_folder, tmp_path))
    assert (played(tmp_path), read_metrics(tmp_path)) == before
    assert (first.before, first.after) == (second.before, second.after)


def test_other_options_are_rejected_and_named(tiny_folder, tmp_path):
    train(run(tiny_folder, tmp_path, steps=2, eval_episodes=0))
    with pytest.raises(CheckpointError, match=r"written with other options \(gamma, learning_rate\)"):
        train(run(tiny_folder, tmp_path, steps=2, eval_episodes=0, gamma=0.5, learning_rate=0.1))
    assert len(read_metrics(tmp_path)) == 2


def test_starting_over_replaces_the_old_run(tiny_folder, tmp_path):
    train(run(tiny_folder, tmp_path, steps=6))
    outcome = train(run(tiny_folder, tmp_path, steps=3, seed=1, resume=False, keep_checkpoints=1))
    assert outcome.checkpoint.name == "step-000003"
    assert list_checkpoints(tmp_path) == [outcome.checkpoint]
    assert [metrics["step"] for metrics in read_metrics(tmp_path)] == [1, 2, 3]
    fresh = train(run(tiny_folder, tmp_path / "fresh", steps=3, seed=1))
    assert same_weights(outcome.checkpoint, fresh.checkpoint)
    assert played(tmp_path) == played(tmp_path / "fresh")
    train(run(tiny_folder, tmp_path, steps=3, seed=1))  # now the new run is resumed


def test_starting_over_with_a_mistake_keeps_the_old_run(tiny_folder, tmp_path):
    checkpoint = train(run(tiny_folder, tmp_path, steps=2)).checkpoint
    before = played(tmp_path), read_metrics(tmp_path)
    with pytest.raises(ModelError):
        train(run(tmp_path / "nothing", tmp_path, steps=2, resume=False))
    assert list_checkpoints(tmp_path) == [checkpoint]
    assert (played(tmp_path), read_metrics(tmp_path)) == before


@contextmanager
def room_for(size):
    """Limit files to `size` bytes, which looks like a full disk to a program."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_checkpoint_before_intact(tiny_folder, tmp_path):
    config = run(tiny_folder, tmp_path, trace_every=0)
    with room_for(100_000) as fill, pytest.raises(CheckpointError, match=r"cannot write .*step-000004"):
        train(config, Stop(3, fill))
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000002"]
    load_model(str(tmp_path / "checkpoints" / "step-000002"), torch.device("cpu"), "float32")
    train(config)
    assert len(read_metrics(tmp_path)) == 7


def test_a_full_disk_while_metrics_are_written_is_named(tiny_folder, tmp_path):
    config = run(tiny_folder, tmp_path, trace_every=0)
    with room_for(1500) as fill, pytest.raises(OSError, match=r"File too large: .*metrics\.jsonl"):
        train(config, Stop(3, fill))
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000002"]
    train(config)
    assert len(read_metrics(tmp_path)) == 7


def test_a_damaged_checkpoint_is_named(tiny_folder, tmp_path):
    checkpoint = train(run(tiny_folder, tmp_path, steps=2, eval_episodes=0)).checkpoint
    (checkpoint / STATE_NAME).write_bytes(b"not a state")
    with pytest.raises(CheckpointError, match=f"cannot read .*{STATE_NAME}"):
        train(run(tiny_folder, tmp_path, steps=2, eval_episodes=0))
