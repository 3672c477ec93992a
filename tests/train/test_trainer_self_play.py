"""Self-play in the reference trainer: one policy on all sides of a game."""

from __future__ import annotations

import json
import shutil

import pytest

pytest.importorskip("torch", reason="needs the extra 'train'")

from gem_core.errors import ConfigError
from gem_core.rollout import read_traces
from gem_core.tasks import EVAL_SEEDS
from gem_lab.train import TrainConfig, train
from tests.train.helpers import options, read_metrics, same_weights

SELF = 'multi:KuhnPoker-v0(opponent="self")'
RANDOM = "multi:KuhnPoker-v0(opponent='random')"


@pytest.fixture(scope="module")
def player(made_once):
    """Folder of a tiny model that has seen random hands of both players."""
    return made_once(
        "player", env=(SELF,), layers=1, warm_start_steps=50, warm_start_tokens=8000, corpus_episodes=60
    )


def run(player, out, **changes):
    given = {
        "env": [SELF], "eval_env": [RANDOM], "episodes_per_step": 12, "trace_every": 1, "trace_episodes": 100,
        "max_tokens_per_turn": 12,
    }  # fmt: skip
    return train(TrainConfig(**options(player, out, **(given | changes))))


def test_both_sides_of_each_hand_are_trained_and_one_side_is_evaluated(player, tmp_path):
    outcome = run(player, tmp_path / "run")
    episodes = list(read_traces(tmp_path / "run" / "traces.jsonl"))
    first = [e for e in episodes if e.metadata["request"].startswith("step 1/")]
    by_hand = {}
    for episode in first:
        by_hand.setdefault(episode.seed, {})[episode.metadata["agent"]] = episode
    assert len(by_hand) == 12
    both = [hand for hand in by_hand.values() if len(hand) == 2]
    assert both  # no forfeit at the first move
    for hand in both:
        first_player, second_player = hand["player_1"], hand["player_2"]
        if all(e.turns[-1].info["invalid"] is None for e in hand.values() if "invalid" in e.turns[-1].info):
            assert first_player.total_reward == -second_player.total_reward
    assert all(turn.advantage is not None for episode in first for turn in episode.turns)
    metrics = read_metrics(tmp_path / "run")[0]
    assert metrics["rebn/turns"] == sum(len(episode.turns) for episode in first)
    assert metrics["gem/error_rate"] == 0.0

    assert set(outcome.before) == {RANDOM}
    evaluated = [e for e in episodes if e.metadata["request"].startswith("evaluation")]
    assert {e.seed for e in evaluated} == set(EVAL_SEEDS[:4])
    assert all(e.env_kwargs == {"opponent": "random"} for e in evaluated)
    recorded = json.loads((tmp_path / "run" / "config.json").read_text())
    assert recorded["eval_env"] == [RANDOM]


def test_groups_hold_one_role(player, tmp_path):
    run(player, tmp_path / "run", estimator="grpo", group_size=4, eval_episodes=0, steps=1)
    groups = {}
    for episode in read_traces(tmp_path / "run" / "traces.jsonl"):
        groups.setdefault(episode.metadata["group"], []).append(episode)
    assert len(groups) in range(3, 7)
    for members in groups.values():
        assert len(members) <= 4
        assert len({(e.seed, e.metadata["agent"]) for e in members}) == 1


def test_the_same_seed_gives_the_same_run(player, tmp_path):
    runs = [run(player, tmp_path / name, eval_episodes=0) for name in ("one", "two")]
    assert read_metrics(tmp_path / "one") == read_metrics(tmp_path / "two")
    assert same_weights(runs[0].checkpoint, runs[1].checkpoint)


@pytest.mark.parametrize("models", [1, 2])
def test_a_user_and_an_assistant_are_trained_together(made_once, tmp_path, models):
    shop = "service:Shop-v0(task=0, max_turns=4)"
    talker = made_once(
        "talker", env=(shop,), layers=1, warm_start_steps=5, warm_start_tokens=2000, corpus_episodes=8
    )
    together = "service:Shop-v0(task=0, max_turns=4, user='self')"
    config = TrainConfig(
        **options(
            talker, tmp_path / "run", env=[together], eval_env=[shop], steps=1,
            episodes_per_step=4, trace_every=1, trace_episodes=100, max_tokens_per_turn=8, eval_episodes=1,
            agent_model=[f"user={talker}"] * (models - 1),
        )
    )  # fmt: skip
    outcome = train(config)
    assert (outcome.checkpoint / "agents" / "user").is_dir() == (models == 2)
    episodes = list(read_traces(tmp_path / "run" / "traces.jsonl"))
    first = [e for e in episodes if e.metadata["request"].startswith("step 1/")]
    roles = [e.metadata["agent"] for e in first]
    assert roles.count("user") == 4
    assert "assistant" in roles
    assert all(turn.advantage is not None for episode in first for turn in episode.turns)
    briefs = {e.metadata["agent"]: e.turns[0].observation for e in first}
    assert "You are a customer" in briefs["user"]
    assert "customer service of an outdoor shop" in briefs["assistant"]


def weights_by_agent(checkpoint):
    return {"": checkpoint, "player_2": checkpoint / "agents" / "player_2"}


def test_each_agent_learns_from_its_own_episodes_with_weights_of_its_own(player, tmp_path):
    second = "multi:KuhnPoker-v0(agent='player_2')"
    outcome = run(
        player, tmp_path / "run", agent_model=[f"player_2={player}"], eval_env=[RANDOM, second], steps=1
    )
    folders = weights_by_agent(outcome.checkpoint)
    assert not same_weights(folders[""], folders["player_2"])
    assert not same_weights(folders[""], player)
    assert not same_weights(folders["player_2"], player)
    episodes = list(read_traces(tmp_path / "run" / "traces.jsonl"))
    first = [e for e in episodes if e.metadata["request"].startswith("step 1/")]
    (metrics,) = read_metrics(tmp_path / "run")
    for prefix, agent in (("", "player_1"), ("player_2/", "player_2")):
        mine = [e for e in first if e.metadata["agent"] == agent]
        assert metrics[f"{prefix}gem/return"] == pytest.approx(sum(e.total_reward for e in mine) / len(mine))
        assert metrics[f"{prefix}rebn/turns"] == sum(len(e.turns) for e in mine)
        credit = [turn.advantage for e in mine for turn in e.turns]
        assert sum(credit) == pytest.approx(0, abs=1e-4)  # statistics of only this agent's turns
        assert metrics[f"{prefix}train/grad_norm"] > 0
    after = [
        e for e in episodes if e.metadata["request"].startswith("evaluation") and e.metadata["step"] == 1
    ]
    sides = [e.metadata.get("agent") for e in after if e.env_kwargs.get("agent")]
    assert sides == ["player_2"] * 4

    # Restarted, the complete run evaluates both models from its checkpoint.
    resumed = run(
        player, tmp_path / "run", agent_model=[f"player_2={player}"], eval_env=[RANDOM, second], steps=1
    )
    assert resumed.after == outcome.after


def test_two_models_of_the_same_weights_play_as_one(player, tmp_path):
    together = run(player, tmp_path / "both", agent_model=[f"player_2={player}"], steps=1, eval_episodes=0)
    one = run(player, tmp_path / "one", steps=1, eval_episodes=0)
    both, single = (
        {
            (e.seed, e.metadata["agent"]): [t.response_ids for t in e.turns]
            for e in read_traces(tmp_path / name / "traces.jsonl")
        }
        for name in ("both", "one")
    )
    assert both == single  # in the first episodes, both sides have the same weights either way
    assert not same_weights(together.checkpoint, one.checkpoint)


def test_a_resumed_run_of_two_models_equals_an_uninterrupted_one(player, tmp_path):
    given = {"agent_model": [f"player_2={player}"], "eval_episodes": 0, "save_every": 1, "steps": 2}
    whole = run(player, tmp_path / "whole", **given)
    half = run(player, tmp_path / "half", **given)
    shutil.rmtree(half.checkpoint)  # killed before the second step was saved
    again = run(player, tmp_path / "half", **given)
    assert read_metrics(tmp_path / "whole") == read_metrics(tmp_path / "half")
    for agent in ("", "player_2"):
        assert same_weights(
            weights_by_agent(whole.checkpoint)[agent], weights_by_agent(again.checkpoint)[agent]
        )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["player_3=tiny"], "unknown agent 'player_3' of "),
        (["player_2"], "expected AGENT=MODEL"),
        (["../x=tiny"], "expected AGENT=MODEL"),
        (["player_2=tiny", "player_2=other"], "expected each agent at most once"),
    ],
)
def test_problems_with_an_agents_model_are_reported_immediately(player, tmp_path, given, message):
    given = [text.replace("tiny", str(player)) for text in given]
    with pytest.raises(ConfigError, match=message):
        run(player, tmp_path / "run", agent_model=given)
