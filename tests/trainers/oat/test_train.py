"""Runs Oat's own actor, learner, and collector with a tiny model and checks what the loss consumes."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch

from gem_core.rollout import read_traces
from gem_core.tasks import EVAL_SEEDS
from gem_lab.train._batches import policy_gradient
from tests.trainers import chaos, marks
from tests.trainers.evidence import (
    GAMMA,
    Played,
    Row,
    assert_metrics_are_right,
    assert_row_is_right,
    assert_update_is_right,
    cosine,
    env_ids,
    load_weights,
    name_in,
    played,
    tasks_of,
)
from tests.trainers.oat import harness, spied
from tests.trainers.oat.measure import gem_seconds
from tests.trainers.processes import Run

MARKED = {
    "estimator_options": '{"ddof":1}',
    "system_prompt": marks.SYSTEM,
    "template_kwargs": json.dumps(marks.TEMPLATE_KWARGS, separators=(",", ":")),
    "max_turns": str(marks.MAX_TURNS),
    "generate_max_length": str(marks.MAX_TOKENS),
}

ENDLESS = "test:Endless"

pytestmark = [
    pytest.mark.skipif(not os.environ.get("GEM_CORE_OAT"), reason="runs the trainer: `nox -s oat` does"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def model(warm: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(warm, attn_implementation="eager").float()


@pytest.fixture(scope="module")
def tokenizer(warm: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(warm)


def assert_updates_are_right(
    run: Run,
    tokenizer: Any,
    model: Any,
    rows: int,
    trainable: set[str] | None = None,
    ranks: int = 1,
    ddof: int = 0,
) -> list[list[Played]]:
    """Check each update of a run and what Oat logs of it; return the episodes collected for each.

    `trainable` contains the names of the episodes that did not fail; None for a run without failures.
    """
    spy = run.spy if ranks == 1 else run.folder.parent / "spy"
    episodes, found, updates = played(spy, tokenizer), [], spied.updates(spy)
    logged = [metrics for metrics in harness.metrics_of(run) if "gem/return" in metrics]
    assert 0 < len(updates) <= len(logged)
    for update, metrics in zip(updates, logged, strict=False):  # another record after the last evaluation
        assert sum(not row.is_pad for row in update.rows) == rows
        names = [name for name in update.collected if trainable is None or name in trainable]
        found.append(
            assert_update_is_right(
                update, episodes, tokenizer, model, split="turn", collected=names, ddof=ddof
            )
        )
        assert_rewards_are_right(metrics, rewards_of(update.rows, episodes, tokenizer), ranks)
    assert_weights_change(updates)
    return found


def rewards_of(rows: list[Row], episodes: dict[str, Played], tokenizer: Any) -> list[float]:
    """Return the reward of the turn of each row."""
    mine = [episodes[name_in(row.prompt, tokenizer)] for row in rows]
    return [e.rewards[e.turn_of(row.prompt, row.response)] for e, row in zip(mine, rows, strict=True)]


def assert_rewards_are_right(metrics: dict[str, float], rewards: list[float], ranks: int = 1) -> None:
    """Check Oat's own metrics of an update, with the rewards of its rows; Oat averages counts over ranks."""
    assert metrics["actor/avg_reward"] == pytest.approx(fmean(rewards), abs=1e-6)
    for name, reward in (("zero", 0), ("one", 1)):
        counted = metrics[f"train/all_{name}_rewards_count"]
        assert counted == pytest.approx(sum(r == reward for r in rewards) / ranks)
    assert all(math.isfinite(value) for name, value in metrics.items() if name.startswith("train/"))


def assert_weights_change(updates: list[spied.OatUpdate]) -> None:
    assert all(any(g is not None and g.any() for g in update.gradients) for update in updates)
    for before, after in itertools.pairwise(updates):
        assert not all(map(torch.equal, before.weights, after.weights))


def test_three_steps_on_a_mix(
    tmp_path: Path,
    warm: Path,
    tokenizer: Any,
    model: Any,
    own_ids: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Train with Oat's fused head, one row at a time, with an evaluation before and after.

    One of the environments fails in every way, and one ends at the limit of tokens only; the others are new
    ones, a class in a file and an installed package.
    """
    envs = [f"{chaos.CHAOS}=2", *own_ids, f"{ENDLESS}(told=24)"]
    run = harness.run_oat(
        tmp_path,
        warm,
        no_use_fused_lm_head=None,
        train_batch_size_per_device="1",
        eval_steps="100",
        max_eval="4",
        env_id=" ".join(envs),
        max_turns="8",
        eval_env_id=" ".join(harness.MIX),
        on_env_error="retry",
        max_env_retries="1",
        step_timeout=chaos.STEP_TIMEOUT,
        traces=str(tmp_path / "traces"),
    ).check()
    traces = list(read_traces(tmp_path / "traces" / "train.jsonl"))
    assert {episode.env_id for episode in traces} == env_ids(*envs)
    assert not any(episode.seed in EVAL_SEEDS for episode in traces)
    assert {(episode.env_id, episode.seed) for episode in traces} <= tasks_of(envs, 48, 42)
    assert {episode.stop_reason for episode in traces if episode.env_id == ENDLESS} == {"token_budget"}
    assert max(len(episode.rows()[0]) for episode in traces if episode.trainable) <= 512
    trainable = set(chaos.names_of(traces))
    collected = assert_updates_are_right(run, tokenizer, model, rows=16, trainable=trainable)
    assert len(collected) == 3
    turns = [sum(len(episode.rewards) for episode in episodes) for episodes in collected]
    assert max(turns) > 16  # some were dropped but still count
    before, *steps, after = harness.metrics_of(run)
    assert len(steps) == 3
    for number, (episodes, metrics) in enumerate(zip(collected, steps, strict=True), start=1):
        assert_metrics_are_right(metrics, episodes)
        chaos.assert_rates_are_right(metrics, [e for e in traces if e.metadata["step"] == number])
        assert metrics["actor/collected_turns"] == metrics["rebn/turns"]
    chaos.assert_every_failure_is_counted(traces, run.spy)
    prompts = sorted(episode.rows()[0].token_ids for episode in traces if episode.trainable)
    assert prompts == sorted(episode.token_ids for episodes in collected for episode in episodes)
    evaluated = list(read_traces(tmp_path / "traces" / "eval.jsonl"))
    assert sorted(episode.seed for episode in evaluated) == [0, 0, 0, 0, 1, 1, 1, 1]
    for metrics, mine in ((before, evaluated[:4]), (after, evaluated[4:])):
        for env_id in harness.MIX:
            returns = [episode.total_reward for episode in mine if episode.env_id == env_id]
            assert metrics[f"eval/{env_id}/gem/return"] == pytest.approx(sum(returns) / 2, abs=1e-6)
    last = [chaos.calm(episode) for episode in traces if episode.metadata["step"] == 3 and episode.trainable]
    parts = ("actor/total_time", "train/learn_batch_time", "misc/weight_sync_elapse")
    spent, step = gem_seconds(last, tokenizer), sum(steps[-1][name] for name in parts)
    with capsys.disabled():
        print(f"\nGEM's code: {1000 * spent:.1f} ms of a step of {step:.2f} s ({100 * spent / step:.2f}%)")


@pytest.fixture(scope="module", params=["rebuild", pytest.param("template", marks=pytest.mark.full)])
def by_turns(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, warm: Path
) -> tuple[Run, dict[str, str]]:
    """Run three steps with contexts that need a row for each turn, and a checkpoint after each; and flags."""
    folder, context = tmp_path_factory.mktemp("turns"), request.param
    model = marks.marked_model(warm, folder)
    flags = {
        "rebuild": {"wrappers": "spy,concat_with_action"},
        "template": {"chat_template": marks.counting_template(model, folder)},
    }[context] | {**MARKED, "context": context}
    run = harness.run_oat(folder, model, **flags, traces=str(folder), save_steps="1", save_ckpt="")
    return run.check(), flags


def test_contexts_with_a_row_per_turn(
    by_turns: tuple[Run, dict[str, str]], tokenizer: Any, model: Any
) -> None:
    run, _ = by_turns
    steps = assert_updates_are_right(run, tokenizer, model, rows=16, ddof=1)
    assert len(steps) == 3
    played = [episode for episodes in steps for episode in episodes]
    assert all(episode.count_rows("auto") == len(episode.rewards) for episode in played)
    marks.assert_options_reach_the_engine(run.spy, tokenizer)


def test_a_resumed_run_continues(
    tmp_path: Path, by_turns: tuple[Run, dict[str, str]], tokenizer: Any, model: Any
) -> None:
    """Resume after the second step: the engine has the weights of the checkpoint, and plays the next task."""
    rebuilt, flags = by_turns
    (folder,) = (rebuilt.folder / "out").glob("*/checkpoints")
    run = harness.run_oat(
        tmp_path,
        rebuilt.folder / "marked",
        **flags,
        traces=str(tmp_path),
        resume_dir=str(folder),
        resume_tag="step_00002",
        save_steps="100",
        save_ckpt="",
    ).check()
    before, (resumed,) = spied.updates(rebuilt.spy), spied.updates(run.spy)
    assert all(map(torch.equal, before[2].weights, resumed.weights))
    assert len(assert_updates_are_right(run, tokenizer, model, rows=16, ddof=1)) == 1
    earlier = [e for e in read_traces(rebuilt.folder / "train.jsonl") if e.metadata["step"] <= 2]
    later = list(read_traces(tmp_path / "train.jsonl"))
    assert {episode.metadata["step"] for episode in later} == {3}
    tasks = sorted(episode.metadata["group"] for episode in [*earlier, *later])
    assert tasks == list(range(len(tasks)))  # each once, and none skipped
    logged = next(metrics for metrics in harness.metrics_of(run) if "gem/return" in metrics)
    assert (logged["misc/query_step"], logged["misc/prompt_consumed"]) == (48, 48)
    assert logged["misc/global_step"] == 3


def test_a_critic_of_turns(tmp_path: Path, warm: Path, tokenizer: Any, model: Any) -> None:
    """Train with Oat's turn-level PPO: advantages are GAE over turns of what the critic said, in the loss."""
    lam = 0.8
    run = harness.run_oat(
        tmp_path,
        warm,
        critic_type="ppo",
        estimator="gae",
        lam=str(lam),
        train_batch_size_per_device="1",
        critic_learning_rate="1e-3",
        max_train="32",
    ).check()
    episodes = played(run.spy, tokenizer)
    updates, steps = spied.updates(run.spy), spied.critic_steps(run.spy)
    logged = harness.metrics_of(run)[1:3]
    assert len(updates) == len(steps) == len(logged) == 2
    for number, (update, step, metrics) in enumerate(zip(updates, steps, logged, strict=True), start=1):
        assert len(update.rows) == 16
        mine = {name: episodes[name] for name in update.collected}
        assert len(step.values) == len({tuple(r["prompt"]) for e in mine.values() for r in e.requests})
        assert len({round(value, 6) for value in step.values.values()}) > 4  # the value depends on the state
        wanted = {name: gae_of(episode, step.values, lam) for name, episode in mine.items()}
        kept: dict[str, list[float]] = {name: [0.0] * len(credit) for name, credit in wanted.items()}
        for row in update.rows:
            name = name_in(row.prompt, tokenizer)
            turn = mine[name].turn_of(row.prompt, row.response)
            assert_row_is_right(row, mine[name], wanted[name])
            assert not kept[name][turn]
            kept[name][turn] = wanted[name][turn] / len(row.response)  # Oat takes the mean of each row
        load_weights(model, update.weights)
        turns = [episode.episode(kept[name]) for name, episode in mine.items()]
        assert cosine(update.gradients, list(policy_gradient(model, turns).values())) >= 0.99
        targets = {
            tuple(request["prompt"]): credit + step.values[tuple(request["prompt"])]
            for name, episode in mine.items()
            for request, credit in zip(episode.requests, wanted[name], strict=True)
        }
        states = [tuple(row.prompt) for row in update.rows]
        assert cosine(step.gradients, critic_gradient(warm, step, states, targets)) >= 0.999
        assert_metrics_are_right(metrics, list(mine.values()))
        rewards = [reward for episode in mine.values() for reward in episode.rewards]
        assert metrics["actor/avg_reward"] == pytest.approx(fmean(rewards), abs=1e-6)  # of all turns
        metrics["actor/avg_reward"] = fmean(kept_rewards := rewards_of(update.rows, episodes, tokenizer))
        assert_rewards_are_right(metrics, kept_rewards)
        assert metrics["train/critic_loss"] > 0
        assert metrics["misc/query_step"] == metrics["misc/prompt_consumed"] == 16 * number
    assert_weights_change(updates)
    changed = zip(steps[0].weights, steps[1].weights, strict=True)
    assert any(not torch.equal(before, after) for before, after in changed)


def gae_of(episode: Played, values: dict[tuple[int, ...], float], lam: float) -> list[float]:
    """Return the generalized advantage estimates of the turns of an episode."""
    turn_values = [values[tuple(request["prompt"])] for request in episode.requests]
    ahead, found = 0.0, []
    for reward, value, following in zip(
        episode.rewards[::-1], turn_values[::-1], [0.0, *turn_values[:0:-1]], strict=True
    ):
        ahead = reward + GAMMA * following - value + GAMMA * lam * ahead
        found.insert(0, ahead)
    return found


def critic_gradient(
    folder: Path,
    step: spied.CriticStep,
    states: list[tuple[int, ...]],
    targets: dict[tuple[int, ...], float],
) -> list[torch.Tensor]:
    """Return the gradient of half the mean squared error of the values at the last tokens of the states."""
    from oat.model import Critic

    critic = Critic(str(folder), bf16=False)
    load_weights(critic, step.weights)
    parameters = list(critic.parameters())
    losses = []
    for state in states:
        ids = torch.tensor([state])
        value = critic(input_ids=ids, attention_mask=torch.ones_like(ids))[0, -1]
        assert value.item() == pytest.approx(step.values[state], abs=1e-5)
        losses.append(0.5 * (value - targets[state]) ** 2)
    return list(torch.autograd.grad(sum(losses) / len(losses), parameters, materialize_grads=True))


def test_two_ranks(tmp_path: Path, warm: Path, tokenizer: Any, model: Any) -> None:
    """Train with two processes, each with its own actor and learner, as on two machines."""
    port, steps = str(harness.free_port()), "2"
    groups = {"num_groups": "2", "master_addr": "127.0.0.1", "master_port": port, "rollout_batch_size": "32"}
    shared = {**groups, "train_batch_size": "32", "max_train": str(32 * int(steps))}
    with ThreadPoolExecutor(2) as both:
        runs = [
            both.submit(
                harness.run_oat,
                tmp_path / name,
                warm,
                spy=tmp_path / "spy",
                forked=False,
                group_rank=name,
                **shared,
            )
            for name in ("0", "1")
        ]
    first, _ = [run.result().check() for run in runs]
    spy = tmp_path / "spy"
    assert len({path.stem.split("-")[1] for path in spy.glob("update-*.pt")}) == 2
    collected = assert_updates_are_right(first, tokenizer, model, rows=32, ranks=2)
    assert len(collected) == int(steps)
    logged = [metrics for metrics in harness.metrics_of(first) if "gem/return" in metrics]
    for episodes, metrics in zip(collected, logged[: int(steps)], strict=True):
        assert_metrics_are_right(metrics, episodes)


def test_equal_returns_change_nothing(tmp_path: Path, warm: Path) -> None:
    run = harness.run_oat(
        tmp_path, warm, env_id="test:Equal", modules="oat_cpu oat_log oat_spy oat_envs", max_train="16"
    ).check()
    (update,) = spied.updates(run.spy)
    assert not any(advantage for row in update.rows for advantage in row.advantages)
    assert not any(g.any() for g in update.gradients if g is not None)
    metrics = harness.metrics_of(run)[1]
    assert metrics["train/pg_loss"] == 0
    assert metrics["rebn/return_std"] == 0
    assert all(
        map(math.isfinite, (v for k, v in metrics.items() if k.startswith(("train/", "gem/", "rebn/"))))
    )


def test_an_environment_that_always_fails_is_reported_in_one_line(tmp_path: Path, warm: Path) -> None:
    modules = "oat_cpu oat_log oat_spy oat_envs"
    run = harness.run_oat(tmp_path, warm, env_id="test:Broken", modules=modules, wrappers=None)
    assert run.code == 2
    (line,) = [line for line in run.output.splitlines() if "gem_oat: " in line]  # after Oat's progress bar
    assert re.search(
        r"episodes of this step: no episode is trainable: .* the first is test:Broken with seed \d+: "
        r"step\(\) failed: ValueError: the board fell off the table \(.*oat_envs\.py:\d+\)$",
        line,
    )


@pytest.mark.full
def test_real_processes(
    tmp_path: Path, warm: Path, tokenizer: Any, model: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Train with real Launchpad, Plasma, and vLLM, Oat's own broadcast of weights, and ZeRO-2."""
    run = harness.run_oat(tmp_path, warm, stubs=False, zero_stage="2", eval_steps="100", max_eval="4").check()
    collected = assert_updates_are_right(run, tokenizer, model, rows=16)
    assert len(collected) == 3
    _, *steps, after = harness.metrics_of(run)
    for episodes, metrics in zip(collected, steps, strict=True):
        assert_metrics_are_right(metrics, episodes)
    assert {f"eval/{env_id}/gem/success" for env_id in harness.MIX} <= after.keys()
    shown = ("gem/return", "rebn/turns", "train/sampler_learner_prob_diff_max", "actor/total_time",
             "train/learn_batch_time", "misc/weight_sync_elapse")  # fmt: skip
    with capsys.disabled():
        for number, metrics in enumerate(steps, 1):
            print(f"\nstep {number}: " + ", ".join(f"{name} {metrics[name]:.3g}" for name in shown), end="")
