"""verl on a Ray cluster of two nodes, with environments of a user's package on both."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from gem_core.rollout import read_traces
from tests.trainers import evidence
from tests.trainers.processes import metadata_folder
from tests.trainers.verl import harness
from tests.trainers.verl.spied import assert_metrics_are_right, metrics_of, updates

pytestmark = [
    pytest.mark.skipif(not os.environ.get("GEM_CORE_VERL"), reason="runs the trainer: `nox -s verl` does"),
    pytest.mark.full,
    pytest.mark.timeout(1200),
]

PACKAGE = """
from gem_core import register
from gem_envs._games.guess_the_number import GuessTheNumber


class Guess(GuessTheNumber):
    \"\"\"Tells where it is played, in the `info` of each step.\"\"\"

    def step(self, action):
        import ray

        observation, reward, terminated, truncated, info = super().step(action)
        node = ray.get_runtime_context().get_node_id()
        return observation, reward, terminated, truncated, info | {"node": node, "file": __file__}


def register_envs():
    register("mine:Guess-v0", Guess)
"""


def install(folder: Path) -> None:
    """Put the user's package into a folder of the import path."""
    metadata_folder(folder, {"mine_of_a_user-0": "[gem_core.envs]\nmine = mine_of_a_user:register_envs\n"})
    (folder / "mine_of_a_user.py").write_text(PACKAGE)


def test_both_nodes_play_and_train(
    tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for node in ("head", "worker"):
        install(tmp_path / node)
    path = [str(tmp_path / "head"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))  # the command starts on the head
    run = harness.run_verl(
        tmp_path,
        warm,
        "trainer.v1.trainer_mode=gem_sync",
        "trainer.nnodes=2",
        "actor_rollout_ref.rollout.agent.num_workers=2",
        "data.train_files=['mine:Guess-v0(max_number=10,max_turns=4)']",
        "data.val_files=['mine:Guess-v0(max_number=10,max_turns=4)']",
        "trainer.val_before_train=False",
        "trainer.total_training_steps=2",
        f"+gem.traces={tmp_path}/traces",
        program="tests.trainers.verl.cluster",
    ).check()
    episodes = evidence.played(run.spy, warm_tokenizer)
    traces = list(read_traces(tmp_path / "traces" / "train.jsonl"))
    nodes = defaultdict(set)
    for episode in traces:
        for turn in episode.turns:
            nodes[turn.info["node"]].add(turn.info["file"])
    files = sorted(str(tmp_path / node / "mine_of_a_user.py") for node in ("head", "worker"))
    assert sorted(file for node_files in nodes.values() for file in node_files) == files
    assert len(nodes) == 2  # so each node has played with its own copy
    ranks = {path.stem.split("-")[1] for path in run.spy.glob("update-*.pt")}
    assert len(ranks) == 2
    steps = metrics_of(run)
    assert len(updates(run.spy)) == len(steps) == 2
    for update, metrics in zip(updates(run.spy), steps, strict=True):
        mine = evidence.assert_update_is_right(update, episodes, warm_tokenizer, model)
        assert len(mine) == 8
        assert_metrics_are_right(metrics, mine)
