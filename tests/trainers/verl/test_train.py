"""The loss of verl's own trainer gets the right inputs from verl's engine and a tiny model."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from gem_core.rollout import read_traces
from gem_core.tasks import EVAL_SEEDS
from gem_lab import main
from tests.trainers import evidence, marks
from tests.trainers.evidence import GAMMA, assert_update_is_right
from tests.trainers.spies.gem_trouble import chaos_counts
from tests.trainers.verl import harness
from tests.trainers.verl.measure import gem_seconds
from tests.trainers.verl.mixes import answered, guess, write
from tests.trainers.verl.spied import assert_metrics_are_right, metrics_of
from tests.trainers.verl.spied import updates as updates_of
from tests.trainers.verl.test_docs import COMMANDS

pytestmark = [
    pytest.mark.skipif(not os.environ.get("GEM_CORE_VERL"), reason="runs the trainer: `nox -s verl` does"),
    pytest.mark.timeout(1200),
]
GUESS, MASTERMIND = "game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy"
CHAOS, ENDLESS = "test:Chaos-v0", "test:Endless"
SEED = 1242
"""The first ten tasks are of all environments of the mix, and some of those that fail fail twice in a row."""
MEASURE = harness.CPU / "measure_tool.py"
"""File of a tool and of a reward function."""


def checksum(text: str) -> float:
    """Return the reward of `MEASURE`'s function."""
    return zlib.crc32(text.encode()) % 100 / 100


def test_three_steps_on_a_mix_with_environments_that_fail(
    tmp_path: Path,
    base: Path,
    warm_tokenizer: Any,
    model: Any,
    own_ids: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each step is an epoch of 12 rows of files, 8 questions and 4 games, and of 10 tasks of environments.

    The other environments are new ones, a class in a file and an installed package, and two whose episodes
    end at the limit of tokens of a response and of an episode. The model is a base model, whose
    end-of-sequence token does not end the answers of its chat template. The user's own function rewards the
    answers, each in another way.
    """
    file, package = own_ids
    files = [
        write("pandas", [guess(number) for number in range(4)], tmp_path),
        write(
            "datasets", [guess(number, agent_name="single_turn_agent") for number in range(4, 8)], tmp_path
        ),
        f"{tmp_path}/exported.parquet",
    ]
    assert main(["export", "--to", "verl", "--env", GUESS, "--num", "4", "--out", files[-1]]) == 0
    long_told, long_asked = f"{ENDLESS}(told=17)", f"{ENDLESS}(asked=18,told=9)"
    weights = {file: 8, package: 8, f"{CHAOS}(p=0.1,hang=6)": 40, ENDLESS: 8, long_told: 8, long_asked: 8}
    envs = [f"{env_id}={weight / 100}" for env_id, weight in weights.items()]
    run = harness.run_verl(
        tmp_path,
        marks.marked_model(base, tmp_path),
        "trainer.v1.trainer_mode=gem_sync",
        "+algorithm.rebn.ddof=1",
        "+data.apply_chat_template_kwargs.mark='Banner. '",
        "+gem.system_prompt='Say a number.'",
        "+gem.max_turns=3",
        f"data.train_files={[*files, *envs]}",
        f"data.val_files={[files[0], GUESS, MASTERMIND]}",
        f"+data.seed={SEED}",
        "data.max_prompt_length=160",  # with the 192 tokens of a response, 352 of an episode
        "data.train_batch_size=22",
        "trainer.total_epochs=3",
        "actor_rollout_ref.actor.ppo_mini_batch_size=22",
        "+gem.step_timeout=2",
        "+gem.on_env_error=retry",
        "+gem.max_env_retries=1",
        f"reward.custom_reward_function.path={MEASURE}",
        f"+gem.traces={tmp_path}/traces",
        f"trainer.rollout_data_dir={tmp_path}/rollouts",
    ).check()
    episodes = evidence.played(run.spy, warm_tokenizer)
    evidence.assert_answers_stop(episodes, warm_tokenizer)
    updates = updates_of(run.spy)
    traces = list(read_traces(tmp_path / "traces" / "train.jsonl"))
    before, *steps = metrics_of(run)
    assert len(updates) == len(steps) == 3
    trained, scores = [], []
    for number, (update, metrics) in enumerate(zip(updates, steps, strict=True), start=1):
        collected = [episode for episode in traces if episode.metadata["step"] == number]
        failed = sum(not episode.trainable for episode in collected)
        assert (len(update.rows), len(collected)) == (44, 28)
        assert sum(row.is_pad for row in update.rows) == failed
        answers = answered(run.spy, update, warm_tokenizer, score=lambda text, truth: checksum(text))
        assert len(answers) == 16
        mine = assert_update_is_right(update, episodes, warm_tokenizer, model, ddof=1, others=answers)
        assert any(any(row.advantages) for row in update.rows)
        games = [episode for episode in mine if episode not in answers.values()]
        assert_metrics_are_right(metrics, games, failed, others=[*answers.values()])
        dumped = (tmp_path / "rollouts" / f"{number}.jsonl").read_text().strip("\n").split("\n")
        rows = [row for row in map(json.loads, dumped) if not row["uid"].startswith("pad")]
        assert (len(dumped), len(rows)) == (44, 44 - failed)
        scored = [answer.rewards[0] for answer in answers.values()]
        returns = [episode.total_reward for episode in collected if episode.trainable]
        assert sorted(row["score"] for row in rows) == pytest.approx(sorted(returns + scored), abs=1e-6)
        scores += scored
        assert metrics["gem/played/lighteval/MATH"] == 16
        assert metrics[f"gem/played/{GUESS}"] == 8
        assert sum(metrics[name] for name in metrics if name.startswith("gem/failed/")) == failed
        assert metrics["gem/filled"] == failed
        again = sum(episode.env_retries > 0 for episode in collected)
        assert metrics["gem/retry_rate"] == pytest.approx(again / 28)
        trained += games
    assert len({*scores}) > 12
    assert before["val-aux/gem/played/lighteval/MATH"] == 4
    assert 0 <= before["val-core/lighteval/MATH/acc/mean@1"] <= 1
    assert "plan: train: 8 rows of lighteval/MATH, played by single_turn_agent" in run.output
    chaos = chaos_counts(run.spy)
    fatal = sum(count for (call, _), count in chaos.items() if call != "close")
    assert fatal == sum(episode.env_retries + (not episode.trainable) for episode in traces)
    assert any(not episode.trainable for episode in traces)
    assert any(episode.env_retries and episode.trainable for episode in traces)
    assert {episode.env_id for episode in traces if episode.error or episode.env_retries} == {CHAOS}
    requests = [request for episode in episodes.values() for request in episode.requests]
    begins = "Banner. <|system|>Say a number.<|end|><|user|>Episode "
    assert all(warm_tokenizer.decode(request["prompt"]).startswith(begins) for request in requests)
    assert max(len(request["response"]) for request in requests) == 24
    assert max(len(episode.rewards) for episode in episodes.values()) == 3
    endless = {(e.env_kwargs.get("told"), len(e.turns), e.stop_reason) for e in traces if e.env_id == ENDLESS}
    # The response of one has no room for a third turn, and the prompt of the other one is long.
    assert endless == {(None, 3, "max_turns"), (17, 2, "token_budget"), (9, 2, "token_budget")}
    assert run.output.count("taken from the runs of 1s in response_mask") == 1
    assert {episode.env_id for episode in traces} == evidence.env_ids(*own_ids, CHAOS, ENDLESS, GUESS)
    assert not any(episode.seed in EVAL_SEEDS for episode in traces)
    made = {(episode.env_id, episode.seed) for episode in traces if episode.env_id != GUESS}
    counts = {env_id: max(round(0.12 * weight), 1) for env_id, weight in weights.items()}
    assert sum(counts.values()) == 10
    assert made == {one for env_id, n in counts.items() for one in evidence.tasks_of([env_id], n, SEED)}
    ids = sorted(episode.rows()[0].token_ids for episode in traces if episode.trainable)
    assert ids == sorted(episode.token_ids for episode in trained)
    for env_id in (GUESS, MASTERMIND):
        (watched,) = {
            (before[f"val-core/{env_id}/reward/mean@1"], before[f"val-aux/{env_id}/gem/return/mean@1"])
        }
        assert watched[0] == pytest.approx(watched[1], abs=1e-6)
    evaluated = list(read_traces(tmp_path / "traces" / "eval.jsonl"))
    assert sorted(episode.seed for episode in evaluated) == [0, 0, 1, 1]
    last = [e for e in traces if e.metadata["step"] == 3 and e.env_id not in (CHAOS, ENDLESS)]
    spent, step = gem_seconds(last, warm_tokenizer), steps[-1]["timing_s/step"]
    with capsys.disabled():
        print(f"\nGEM's code: {1000 * spent:.1f} ms of a step of {step:.2f} s ({100 * spent / step:.2f}%)")


@pytest.mark.full
@pytest.mark.parametrize("context", ["rebuild", "template"])
def test_contexts_with_a_row_per_turn(
    context: str, tmp_path: Path, base: Path, warm_tokenizer: Any, model: Any
) -> None:
    """With a base model, as above."""
    words = {
        "rebuild": ['+gem.wrappers="spy,concat_with_action"'],
        "template": [f"+gem.chat_template={marks.counting_template(base, tmp_path)}"],
    }
    run = harness.run_verl(
        tmp_path,
        base,
        "trainer.v1.trainer_mode=gem_sync",
        f"+gem.context={context}",
        *words[context],
        "trainer.val_before_train=False",
        "trainer.test_freq=3",
    ).check()
    episodes = evidence.played(run.spy, warm_tokenizer)
    evidence.assert_answers_stop(episodes, warm_tokenizer)
    updates, steps = updates_of(run.spy), metrics_of(run)
    assert len(updates) == len(steps) == 3  # one update per step for any number of rows
    for update, metrics in zip(updates, steps, strict=True):
        mine = assert_update_is_right(update, episodes, warm_tokenizer, model)
        assert len(mine) == 8
        rows = [row for row in update.rows if not row.is_pad]
        assert len(rows) == sum(len(episode.rewards) for episode in mine) > 8
        assert_metrics_are_right(metrics, mine)
    for env_id in (GUESS, MASTERMIND):
        score, whole = (
            steps[-1][name]
            for name in (f"val-core/{env_id}/reward/mean@1", f"val-aux/{env_id}/gem/return/mean@1")
        )
        assert score == pytest.approx(whole, abs=1e-6)


def assert_asynchronous_steps_are_right(run: harness.Run, rows: str, tokenizer: Any, model: Any) -> None:
    """Check the updates and metrics of three steps; only the first one trains on the newest policy."""
    episodes = evidence.played(run.spy, tokenizer)
    updates, steps = updates_of(run.spy), metrics_of(run)
    assert len(updates) == len(steps) == 3
    for index, (update, metrics) in enumerate(zip(updates, steps, strict=True)):
        mine = assert_update_is_right(update, episodes, tokenizer, model, split=rows, on_policy=index == 0)
        assert_metrics_are_right(metrics, mine)


@pytest.mark.full
@pytest.mark.parametrize("rows", ["auto", "turn"])
def test_a_mode_with_partial_rollouts(
    rows: str, tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any
) -> None:
    run = harness.run_verl(
        tmp_path,
        warm,
        "trainer.v1.trainer_mode=gem_colocate_async",
        harness.WAIT,
        "trainer.v1.colocate_async.num_warmup_batches=3",
        f"+gem.rows={rows}",
        "trainer.val_before_train=False",
        gem=[word for word in harness.GEM if "agent_loop_manager_class" not in word],
    ).check()
    assert_asynchronous_steps_are_right(run, rows, warm_tokenizer, model)


@pytest.mark.full
@pytest.mark.parametrize("rows", ["auto", "turn"])
def test_the_mode_with_separate_engines(
    rows: str, tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERL_LOGGING_LEVEL", "WARNING")  # verl 0.9.1 logs a line with an unknown argument
    run = harness.run_verl(
        tmp_path,
        warm,
        *harness.SEPARATE,
        f"+gem.rows={rows}",
        "trainer.val_before_train=False",
        gem=[word for word in harness.GEM if "agent_loop_manager_class" not in word],
    ).check()
    assert_asynchronous_steps_are_right(run, rows, warm_tokenizer, model)


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
    updates = updates_of(run.spy)
    assert len(updates) == 3
    for update in updates:
        assert_update_is_right(update, episodes, warm_tokenizer, model, kl_coef=0.5)
    assert run.output.count("train episodes: {'gem/filled': 0.0, 'gem/played/") == 2  # by the manager
    gaps = [abs(a - b) for row in updates[-1].rows for a, b in zip(row.old, row.reference or [], strict=True)]
    assert max(gaps) > 1e-3  # the penalty was not zero


@pytest.mark.full
def test_a_run_that_was_stopped_continues(
    tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any
) -> None:
    words = ["trainer.v1.trainer_mode=gem_sync", "trainer.val_before_train=False"]
    places = f"trainer.default_local_dir={tmp_path}/checkpoints"
    whole = harness.run_verl(tmp_path / "whole", warm, *words, places, "trainer.save_freq=2").check()
    (tmp_path / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("2")
    rest = harness.run_verl(tmp_path / "rest", warm, *words, places, "trainer.resume_mode=auto").check()
    (resumed,) = updates_of(rest.spy)
    last = updates_of(whole.spy)[-1]
    assert all((a == b).all() for a, b in zip(resumed.weights, last.weights, strict=True))
    mine = assert_update_is_right(resumed, evidence.played(rest.spy, warm_tokenizer), warm_tokenizer, model)
    assert len(mine) == 8
    assert [m["training/global_step"] for m in metrics_of(rest)] == [3]


@pytest.mark.full
def test_the_documented_overrides_of_verls_own_command(
    tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any
) -> None:
    run = harness.run_verl(
        tmp_path, warm, "trainer.total_training_steps=1", "trainer.save_freq=-1", gem=COMMANDS[0]
    ).check()
    (update,) = updates_of(run.spy)
    assert_update_is_right(update, evidence.played(run.spy, warm_tokenizer), warm_tokenizer, model)


@pytest.mark.full
def test_rebn_with_verls_own_tool_loop(tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any) -> None:
    """Train without GEM's environments, agent loop, or data: only ``algorithm.adv_estimator=rebn``."""

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
    run = harness.run_verl(
        tmp_path,
        warm,
        f"data.train_files={tmp_path}/tools.parquet",
        f"data.val_files={tmp_path}/tools.parquet",
        f"actor_rollout_ref.rollout.multi_turn.function_tool_path={MEASURE}",
        "actor_rollout_ref.rollout.multi_turn.format=always",
        "actor_rollout_ref.rollout.multi_turn.max_assistant_turns=3",
        f"reward.custom_reward_function.path={MEASURE}",
        "trainer.val_before_train=False",
        "trainer.total_training_steps=2",
        gem=["algorithm.adv_estimator=rebn", f"algorithm.gamma={GAMMA}"],
        modules="verl_cpu,verl_spy,verl_tools",
    ).check()
    requests = [json.loads(line) for line in (run.spy / "engine.jsonl").read_text().splitlines()]
    updates = updates_of(run.spy)
    assert len(updates) == 2
    for update in updates:
        played = [evidence.conversation(row.prompt + row.response, requests) for row in update.rows]
        for row, made in zip(update.rows, played, strict=True):
            text = warm_tokenizer.decode(row.response, skip_special_tokens=True)
            made.rewards[-1] = checksum(text)
        wanted = evidence.oracle([made.rewards for made in played], GAMMA)
        assert max(len(made.rewards) for made in played) == 3
        for row, made, advantages in zip(update.rows, played, wanted, strict=True):
            turns = made.turns[made.prompt_length :]
            turns += [-1] * (len(row.response) - len(turns))  # the row may end with a tool's answer
            expected = [advantages[turn] if turn >= 0 else 0.0 for turn in turns]
            assert row.advantages == pytest.approx(expected, abs=1e-5 * max(1.0, *map(abs, advantages)))
