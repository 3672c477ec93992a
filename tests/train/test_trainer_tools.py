"""The reference trainer with tools, from the wrappers option and from the environment itself."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra 'train'")

from gem_core.rollout import read_traces
from gem_lab.train import TrainConfig, train
from tests.train.helpers import options, read_metrics

FILES = "math:FileArithmetic-v0"


@pytest.fixture(scope="module")
def caller(made_once):
    """Folder of a tiny model that has seen random programs and random answers."""
    return made_once(
        "caller", env=(f"{FILES}-python",), layers=1, warm_start_steps=60, warm_start_tokens=6000,
        corpus_episodes=40,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("env", "wrappers"),
    [
        (f"{FILES}-python", ""),
        (FILES, "python_tool(instructions='Write <python>program</python> to run it.')"),
    ],
)
def test_tool_turns_are_played_paid_and_trained(caller, tmp_path, env, wrappers):
    config = TrainConfig(
        **options(
            caller, tmp_path / "run", env=[env], wrappers=wrappers, episodes_per_step=24, trace_every=1,
            trace_episodes=24, max_tokens_per_turn=32, eval_episodes=0,
        )
    )  # fmt: skip
    train(config)
    first = read_metrics(tmp_path / "run")[0]
    assert first["gem/tool_calls"] > 0.2
    assert first["gem/error_rate"] == 0.0
    assert first["rebn/turns"] == pytest.approx(24 * first["gem/turns"])
    turns = [turn for episode in read_traces(tmp_path / "run" / "traces.jsonl") for turn in episode.turns]
    called = [turn for turn in turns if turn.info["use_tool"]]
    assert any(turn.info["tool_results"][0]["ok"] for turn in called)
    assert all(turn.advantage is not None for turn in called)
    if wrappers:
        assert {round(turn.reward, 2) for turn in called} <= {0.0, 0.05, 0.3}
        assert any(turn.reward > 0.2 for turn in called)
