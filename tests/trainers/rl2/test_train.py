"""RL2's own trainer with a tiny model: what its loss consumes is what it should be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gem_core.rollout import read_traces
from tests.trainers import evidence
from tests.trainers.rl2 import harness, spied

pytestmark = [
    pytest.mark.skipif(not os.environ.get("GEM_CORE_RL2"), reason="runs the trainer: `nox -s rl2` does"),
    pytest.mark.timeout(900),
]
tree = pytest.mark.skipif(not harness.HOME, reason="needs RL2's source tree in RL2_HOME")
VERSIONS = ["index", pytest.param("tree", marks=tree)]


def assert_steps_are_right(
    run: harness.Run, tokenizer: Any, model: Any, *, episodes_per_step: int | None = 8, **options: Any
) -> list[list[evidence.Played]]:
    """Every update of a run of three steps, and its metrics; the episodes by step."""
    episodes = evidence.played(run.spy, tokenizer)
    updates, metrics = spied.updates(run.spy, model), harness.metrics_of(run)
    assert len(updates) == 3
    steps = []
    for number, update in enumerate(updates, start=1):
        mine = evidence.assert_update_is_right(update, episodes, tokenizer, model, **options)
        assert len(mine) == (episodes_per_step or len(mine))
        logged = metrics[number]
        returns = [sum(episode.rewards) for episode in mine]
        turns = sum(len(episode.rewards) for episode in mine)
        assert logged["gem/return"] == pytest.approx(sum(returns) / len(returns), abs=1e-6)
        assert logged["gem/turns"] == pytest.approx(turns / len(mine))
        assert logged["gem/error_rate"] == 0
        assert logged["rebn/turns"] == turns
        assert {"gem/success", "gem/truncation_rate", "rebn/return_mean", "rebn/return_std"} <= logged.keys()
        steps.append(mine)
    assert any(len(episode.rewards) > 1 for step in steps for episode in step)
    return steps


@pytest.mark.parametrize("version", VERSIONS)
def test_three_steps_on_a_mix(
    tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any, version: str
) -> None:
    run = harness.run_rl2(
        tmp_path, warm, f"+gem.traces={tmp_path}/traces", "trainer.test_freq=3", version=version
    ).check()
    steps = assert_steps_are_right(run, warm_tokenizer, model)
    traces = list(read_traces(tmp_path / "traces" / "train.jsonl"))
    assert {episode.env_id for episode in traces} == {harness.GUESS, harness.MASTERMIND}
    played = [episode.token_ids for step in steps for episode in step]
    found = [episode.sequence().token_ids for episode in traces]
    if version == "index":  # its environments see texts, so traces have the ids of these
        assert sorted(map(warm_tokenizer.decode, found)) == sorted(map(warm_tokenizer.decode, played))
    else:
        assert sorted(found) == sorted(played)
    held_out = list(read_traces(tmp_path / "traces" / "validation.jsonl"))
    assert {(episode.env_id, episode.seed) for episode in held_out} <= {
        (env, seed) for env in (harness.GUESS, harness.MASTERMIND) for seed in range(4)
    }
    last = harness.metrics_of(run)[3]
    assert last["gem/return/test"] == pytest.approx(
        sum(episode.total_reward for episode in held_out) / len(held_out)
    )


@tree
def test_two_ranks_and_groups(tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any) -> None:
    run = harness.run_rl2(
        tmp_path,
        warm,
        "rollout.train.prompts_per_rollout=4",
        "rollout.train.responses_per_prompt=2",
        "rollout.train.dynamic_filtering=false",
        version="tree",
        ranks=2,
    ).check()
    steps = assert_steps_are_right(run, warm_tokenizer, model)
    assert len({path.stem.split("-")[1] for path in run.spy.glob("update-*.pt")}) == 2
    for step in steps:
        firsts = [observation_of(episode, warm_tokenizer) for episode in step]
        assert len(firsts) == 2 * len(set(firsts))  # the same task twice


@tree
def test_a_partial_rollout(tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any) -> None:
    """Weights hardly change here: what a paused episode sampled before is as good as new."""
    run = harness.run_rl2(
        tmp_path,
        warm,
        "rollout.train.partial_rollout=true",
        "rollout.train.prompts_per_rollout=4",
        "actor.optimizer.lr=1e-6",
        version="tree",
    ).check()
    assert spied.join_aborted(run.spy)
    assert_steps_are_right(run, warm_tokenizer, model, episodes_per_step=None)


def observation_of(episode: evidence.Played, tokenizer: Any) -> str:
    """What the environment said first, without the name that the spy gave the episode."""
    text: str = tokenizer.decode(episode.requests[0]["prompt"])
    return text.split(".\n", 1)[1]
