"""verl's own trainer and engine with a tiny model: what its loss consumes is what it should be."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from gem_core.rollout import read_traces
from gem_core.train.objective import policy_gradient
from tests.trainers.verl import evidence, harness
from tests.trainers.verl.measure import gem_seconds

pytestmark = [
    pytest.mark.skipif(not os.environ.get("GEM_CORE_VERL"), reason="runs the trainer: `nox -s verl` does"),
    pytest.mark.timeout(1200),
]
GAMMA = 0.9
GUESS, MASTERMIND = "game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy"


def assert_update_is_right(
    update: evidence.Update,
    episodes: dict[str, evidence.Played],
    tokenizer: Any,
    model: Any,
    *,
    row_per_turn: bool = False,
    kl_coef: float = 0.0,
) -> list[evidence.Played]:
    """Rows, advantages, gradient and weights of one update; returns the episodes in it."""
    rows = [row for row in update.rows if not row.is_pad]
    names = [evidence.name_in(row.prompt, tokenizer) for row in rows]
    mine = {name: episodes[name] for name in names}
    rewards = {name: list(episode.rewards) for name, episode in mine.items()}
    if kl_coef:
        for row, name in zip(rows, names, strict=True):
            penalise(rewards[name], row, mine[name], kl_coef)
    wanted = dict(zip(mine, evidence.oracle(list(rewards.values()), GAMMA), strict=True))
    assert len(rows) == sum(len(episode.rewards) if row_per_turn else 1 for episode in mine.values())
    for row, name in zip(rows, names, strict=True):
        assert_row_is_right(row, mine[name], wanted[name], row_per_turn)
    for row in update.rows:
        if row.is_pad:
            assert not any(row.advantages)
    load(model, update.weights)
    made = [mine[name].episode(wanted[name], rebuilt=row_per_turn) for name in mine]
    gradient = list(policy_gradient(model, made).values())
    assert evidence.cosine(update.gradients, gradient) >= 0.99
    return list(mine.values())


def assert_row_is_right(
    row: evidence.Row, episode: evidence.Played, advantages: list[float], row_per_turn: bool
) -> None:
    """Tokens, mask, log-probs and advantages of a row, against the engine's requests."""
    if row_per_turn:
        turn = episode.turn_of(row.prompt, row.response)
        turns, requests = [turn] * len(row.response), [episode.requests[turn]]
    else:
        assert row.prompt + row.response == episode.token_ids
        turns, requests = episode.turns[episode.prompt_length :], episode.requests
    assert [int(m) for m in row.mask] == [int(turn >= 0) for turn in turns]
    expected = [advantages[turn] if turn >= 0 else 0.0 for turn in turns]
    assert row.advantages == pytest.approx(expected, abs=1e-5 * max(1.0, *map(abs, advantages)))
    on = [n for n, m in enumerate(row.mask) if m]
    sampled = [p for request in requests for p in request["logprobs"]]
    assert [row.rollout[n] for n in on] == pytest.approx(sampled, abs=1e-6)
    assert max(abs(math.exp(row.old[n]) - math.exp(row.rollout[n])) for n in on) <= 1e-3


def penalise(rewards: list[float], row: evidence.Row, episode: evidence.Played, kl_coef: float) -> None:
    """Take the KL penalty of each token off the reward of its turn (verl's estimate "kl")."""
    assert row.reference is not None
    for n, turn in enumerate(episode.turns[episode.prompt_length :]):
        if turn >= 0:
            rewards[turn] -= kl_coef * (row.old[n] - row.reference[n])


def load(model: Any, weights: list[Any]) -> None:
    import torch

    with torch.no_grad():
        for parameter, value in zip(model.parameters(), weights, strict=True):
            parameter.copy_(value)


def metrics_of(run: harness.Run) -> list[dict[str, float]]:
    (path,) = run.folder.glob("gem/*.jsonl")
    return [json.loads(line)["data"] for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def model(warm: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(warm, attn_implementation="eager").float()


@pytest.fixture(scope="module")
def warm_tokenizer(warm: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(warm)


def assert_metrics_are_right(metrics: dict[str, float], episodes: list[evidence.Played]) -> None:
    """Those of a step, by the names that all trainers share."""
    returns = [sum(episode.rewards) for episode in episodes]
    mean = sum(returns) / len(returns)
    assert metrics["gem/return"] == pytest.approx(mean, abs=1e-6)
    assert metrics["critic/score/mean"] == pytest.approx(mean, abs=1e-6)
    turns = sum(len(episode.rewards) for episode in episodes)
    assert metrics["gem/turns"] == pytest.approx(turns / len(episodes))
    assert metrics["rebn/turns"] == turns
    assert metrics["training/num_turns/mean"] == pytest.approx(2 * turns / len(episodes))
    assert metrics["gem/error_rate"] == 0
    assert {
        "gem/success",
        "gem/truncation_rate",
        "gem/format_error_rate",
        "rebn/return_std",
    } <= metrics.keys()


def test_three_steps_on_a_mix(
    tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run = harness.run_verl(
        tmp_path,
        warm,
        "trainer.v1.trainer_mode=gem_sync",
        f"+gem.traces={tmp_path}/traces",
    ).check()
    episodes = evidence.played(run.spy, warm_tokenizer)
    updates = evidence.updates(run.spy)
    before, *steps = metrics_of(run)
    assert len(updates) == len(steps) == 3
    trained = []
    for update, metrics in zip(updates, steps, strict=True):
        assert len(update.rows) == 8
        mine = assert_update_is_right(update, episodes, warm_tokenizer, model)
        assert_metrics_are_right(metrics, mine)
        trained += mine
    assert any(len(episode.rewards) > 1 for episode in trained)
    assert run.output.count("taken from the turn ids of the agent loop") == 1
    traces = list(read_traces(tmp_path / "traces" / "train.jsonl"))
    assert {episode.env_id for episode in traces} == {GUESS, MASTERMIND}
    ids = sorted(episode.sequence().token_ids for episode in traces)
    assert ids == sorted(episode.token_ids for episode in trained)
    for env_id in (GUESS, MASTERMIND):
        (watched,) = {
            (before[f"val-core/{env_id}/reward/mean@1"], before[f"val-aux/{env_id}/gem/return/mean@1"])
        }
        assert watched[0] == pytest.approx(watched[1], abs=1e-6)
    held_out = list(read_traces(tmp_path / "traces" / "validation.jsonl"))
    assert sorted(episode.seed for episode in held_out) == [0, 0, 1, 1]
    last = [episode for episode in traces if episode.metadata["step"] == 3]
    spent, step = gem_seconds(last, warm_tokenizer), steps[-1]["timing_s/step"]
    with capsys.disabled():
        print(f"\nGEM's code: {1000 * spent:.1f} ms of a step of {step:.2f} s ({100 * spent / step:.2f}%)")


@pytest.mark.full
def test_rows_of_turns(tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any) -> None:
    run = harness.run_verl(
        tmp_path,
        warm,
        "trainer.v1.trainer_mode=gem_sync",
        "+gem.context=rebuild",
        '+gem.wrappers="spy,concat_with_action"',
        "trainer.val_before_train=False",
        "trainer.test_freq=3",
    ).check()
    episodes = evidence.played(run.spy, warm_tokenizer)
    updates, steps = evidence.updates(run.spy), metrics_of(run)
    assert len(updates) == len(steps) == 3  # one update a step, however many rows
    for update, metrics in zip(updates, steps, strict=True):
        mine = assert_update_is_right(update, episodes, warm_tokenizer, model, row_per_turn=True)
        assert len(mine) == 8
        assert_metrics_are_right(metrics, mine)
    for env_id in (GUESS, MASTERMIND):
        score, whole = (
            steps[-1][name]
            for name in (f"val-core/{env_id}/reward/mean@1", f"val-aux/{env_id}/gem/return/mean@1")
        )
        assert score == pytest.approx(whole, abs=1e-6)


@pytest.mark.full
def test_a_penalty_in_the_reward(tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any) -> None:
    run = harness.run_verl(
        tmp_path,
        warm,
        "algorithm.use_kl_in_reward=True",
        "algorithm.kl_ctrl.kl_coef=0.5",
        "actor_rollout_ref.ref.strategy=fsdp2",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.ref.fsdp_config.dtype=float32",
        "actor_rollout_ref.ref.fsdp_config.model_dtype=float32",
        "trainer.val_before_train=False",
    ).check()
    episodes = evidence.played(run.spy, warm_tokenizer)
    updates = evidence.updates(run.spy)
    assert len(updates) == 3
    for update in updates:
        assert_update_is_right(update, episodes, warm_tokenizer, model, kl_coef=0.5)
    gaps = [abs(a - b) for row in updates[-1].rows for a, b in zip(row.old, row.reference or [], strict=True)]
    assert max(gaps) > 1e-3  # the penalty was not zero


@pytest.mark.full
def test_two_ranks(tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any) -> None:
    run = harness.run_verl(
        tmp_path,
        warm,
        "trainer.v1.trainer_mode=gem_sync",
        "trainer.val_before_train=False",
        "trainer.total_training_steps=2",
        gpus=2,
    ).check()
    episodes = evidence.played(run.spy, warm_tokenizer)
    updates, steps = evidence.updates(run.spy), metrics_of(run)
    assert len({path.stem.split("-")[1] for path in run.spy.glob("update-*.pt")}) == 2
    assert len(updates) == len(steps) == 2
    for update, metrics in zip(updates, steps, strict=True):
        assert_metrics_are_right(metrics, assert_update_is_right(update, episodes, warm_tokenizer, model))


@pytest.mark.full
def test_a_run_that_was_stopped_goes_on(tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any) -> None:
    words = ["trainer.v1.trainer_mode=gem_sync", "trainer.val_before_train=False"]
    places = f"trainer.default_local_dir={tmp_path}/checkpoints"
    whole = harness.run_verl(tmp_path / "whole", warm, *words, places, "trainer.save_freq=2").check()
    (tmp_path / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("2")
    rest = harness.run_verl(tmp_path / "rest", warm, *words, places, "trainer.resume_mode=auto").check()
    (resumed,) = evidence.updates(rest.spy)
    last = evidence.updates(whole.spy)[-1]
    assert all((a == b).all() for a, b in zip(resumed.weights, last.weights, strict=True))
    mine = assert_update_is_right(resumed, evidence.played(rest.spy, warm_tokenizer), warm_tokenizer, model)
    assert len(mine) == 8
    assert [m["training/global_step"] for m in metrics_of(rest)] == [3]


@pytest.mark.full
def test_the_documented_words_behind_verls_own_command(
    tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any
) -> None:
    from tests.trainers.verl.test_docs import commands

    run = harness.run_verl(
        tmp_path, warm, "trainer.total_training_steps=1", "trainer.save_freq=-1", gem=commands()[0]
    ).check()
    (update,) = evidence.updates(run.spy)
    assert_update_is_right(update, evidence.played(run.spy, warm_tokenizer), warm_tokenizer, model)


@pytest.mark.full
def test_rebn_with_verls_own_tool_loop(tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any) -> None:
    """No GEM environment, agent loop or data: only ``algorithm.adv_estimator=rebn``."""
    import zlib

    import pyarrow
    import pyarrow.parquet

    rows = [
        {
            "data_source": "tools",
            "agent_name": "tool_agent",
            "prompt": [{"role": "user", "content": f"Task {number}. Guess a number."}],
            "reward_model": {"style": "rule", "ground_truth": ""},
            "extra_info": {"index": number},
        }
        for number in range(16)
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "tools.parquet")
    tools = str(harness.CPU / "measure_tool.py")
    run = harness.run_verl(
        tmp_path,
        warm,
        f"data.train_files={tmp_path}/tools.parquet",
        f"data.val_files={tmp_path}/tools.parquet",
        f"actor_rollout_ref.rollout.multi_turn.function_tool_path={tools}",
        "actor_rollout_ref.rollout.multi_turn.format=always",
        "actor_rollout_ref.rollout.multi_turn.max_assistant_turns=3",
        f"reward.custom_reward_function.path={tools}",
        "trainer.val_before_train=False",
        "trainer.total_training_steps=2",
        gem=["algorithm.adv_estimator=rebn", f"algorithm.gamma={GAMMA}"],
        modules="verl_cpu,verl_spy,verl_tools",
    ).check()
    requests = [json.loads(line) for line in (run.spy / "engine.jsonl").read_text().splitlines()]
    updates = evidence.updates(run.spy)
    assert len(updates) == 2
    for update in updates:
        played = [evidence.conversation(row.prompt + row.response, requests) for row in update.rows]
        for row, made in zip(update.rows, played, strict=True):
            text = warm_tokenizer.decode(row.response, skip_special_tokens=True)
            made.rewards[-1] = zlib.crc32(text.encode()) % 100 / 100
        wanted = evidence.oracle([made.rewards for made in played], GAMMA)
        assert max(len(made.rewards) for made in played) == 3
        for row, made, advantages in zip(update.rows, played, wanted, strict=True):
            turns = made.turns[made.prompt_length :]
            turns += [-1] * (len(row.response) - len(turns))  # a tool's answer may come last
            expected = [advantages[turn] if turn >= 0 else 0.0 for turn in turns]
            assert row.advantages == pytest.approx(expected, abs=1e-5 * max(1.0, *map(abs, advantages)))
