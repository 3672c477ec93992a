"""Runs ROLL's own pipeline with a tiny model and checks what the loss consumes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from gem_core.rollout import read_traces
from gem_core.tasks import EVAL_SEEDS, EnvChoice
from tests.trainers import chaos, evidence, marks
from tests.trainers.evidence import assert_update_is_right
from tests.trainers.roll import harness
from tests.trainers.roll.spied import updates as updates_of
from tests.trainers.spies.gem_trouble import chaos_counts

pytestmark = [
    pytest.mark.skipif(not os.environ.get("GEM_CORE_ROLL"), reason="runs the pipeline: `nox -s roll` does"),
    pytest.mark.timeout(1200),
]
CHAOS, ENDLESS = "test:Chaos-v0", "test:Endless"
BY_TURN = {
    "env_manager_cls": "gem_roll.GemStepEnvManager",
    "env_config": {"wrappers": "spy, concat_with_action"},
}
ROWS_OF_TURNS: dict[str, Any] = {"gem": {"context": "rebuild"}, "Guess": BY_TURN, "Mastermind": BY_TURN}


def assert_metrics_are_right(
    metrics: dict[str, float], episodes: list[evidence.Played], failed: int = 0
) -> None:
    """Check the common metrics of a step; `failed` more episodes have no row."""
    own = ("rollout/score/mean", "critic/score/mean")
    evidence.assert_metrics_are_right(metrics, episodes, *own, failed=failed)


def test_three_steps_with_episode_rows_and_environments_that_fail(
    tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any, own_ids: list[str]
) -> None:
    """The other environments are new ones, a class in a file and an installed package, and an endless one."""
    first, second = map(EnvChoice.parse, own_ids)
    failing = {
        "env_type": f"gem_core:{CHAOS}", "env_manager_cls": "gem_roll.GemTrajEnvManager", "max_steps": 8,
        "max_tokens_per_step": None, "agent_system_template": None, "agent_template": "{observation}",
        "env_config": {"wrappers": "spy", "p": 0.1, "hang": 6},
    }  # fmt: skip
    long = {**failing, "env_type": f"gem_core:{ENDLESS}", "env_config": {"wrappers": "spy", "told": 32}}
    failures = {"step_timeout": 2, "on_env_error": "retry", "max_env_retries": 1}
    changed = {
        "eval_steps": 2,
        "rollout_batch_size": 12,
        "batch_adjust_mode": "delete",
        "actor_train": {"training_args": {"gradient_accumulation_steps": 4}},
        "train_env_manager": {
            "max_env_num_per_worker": 12,
            "num_env_groups": 6,
            "tags": ["Guess", "Mastermind", "Chaos", "Endless"],
            "num_groups_partition": [1, 1, 2, 2],
        },
        "custom_envs": {
            "gem": {"traces": str(tmp_path / "traces"), **failures},
            "Guess": {"env_type": f"gem_core:{first.env_id}", "env_config": first.env_kwargs},
            "Mastermind": {"env_type": f"gem_core:{second.env_id}", "env_config": second.env_kwargs},
            "Chaos": failing,
            "Endless": long,
        },
    }
    run = harness.run_roll(tmp_path, warm, changed).check()
    episodes = evidence.played(run.spy, warm_tokenizer)
    updates, steps = updates_of(run.spy), harness.metrics_of(run)
    traces = list(read_traces(tmp_path / "traces" / "train.jsonl"))
    step_episodes = {step: [e for e in traces if e.metadata["step"] == step] for step in range(3)}
    assert len(updates) == len(steps) == 3
    trained = []
    for update, metrics, collected in zip(updates, steps, step_episodes.values(), strict=True):
        failed = sum(not episode.trainable for episode in collected)
        assert (len(update.rows), len(collected)) == (16, 12)  # padded with masked copies
        assert sum(row.is_pad for row in update.rows) == metrics["system/batch_add_count"] == 4 + failed
        mine = assert_update_is_right(update, episodes, warm_tokenizer, model)
        assert len(mine) == 12 - failed
        assert_metrics_are_right(metrics, mine, failed)
        again = sum(episode.env_retries > 0 for episode in collected)
        assert metrics["gem/retry_rate"] == pytest.approx(again / 12)
        trained += mine
    counts = chaos_counts(run.spy)
    fatal = sum(count for (call, _), count in counts.items() if call != "close")
    assert fatal == sum(e.env_retries + (not e.trainable) for e in traces) > 0, counts
    assert {e.env_id for e in traces if e.error or e.env_retries} == {CHAOS}
    assert any(len(episode.rewards) > 1 for episode in trained)
    played = sorted(episode.token_ids for episode in trained)
    assert played == sorted(e.rows()[0].token_ids for e in traces if e.trainable)
    for made in step_episodes.values():
        groups = {(e.env_id, e.seed): e.metadata["index"] for e in made}
        assert len(groups) == 6  # two samples each
        assert {env_id for env_id, _ in groups} == {first.env_id, second.env_id, CHAOS, ENDLESS}
    assert sorted(e.metadata["index"] for e in traces if e.env_id == first.env_id) == sorted([*range(3)] * 2)
    assert {(e.env_id, e.seed) for e in traces if e.env_id == CHAOS} == evidence.tasks_of([CHAOS], 6, 42)
    ends = {(len(e.turns), e.stop_reason) for e in traces if e.env_id == ENDLESS}
    assert ends == {(2, "token_budget")}  # no third turn is within sequence_length
    assert not any(e.seed in EVAL_SEEDS for e in traces)
    evaluated = list(read_traces(tmp_path / "traces" / "eval.jsonl"))
    assert sorted(e.seed for e in evaluated) == sorted([0, 0, 1, 1] * 2)  # before steps 0 and 2
    last_evaluated = [e for e in evaluated if e.metadata["step"] == 2]
    returned = sum(e.total_reward for e in last_evaluated) / len(last_evaluated)
    assert steps[2]["val/gem/return"] == pytest.approx(returned, abs=1e-6)
    assert steps[2]["val/score/mean"] == pytest.approx(returned, abs=1e-6)


@pytest.mark.parametrize("context", ["rebuild", pytest.param("template", marks=pytest.mark.full)])
def test_two_steps_with_turn_rows(
    context: str, tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any
) -> None:
    base = marks.marked_model(warm, tmp_path)
    wrappers = {"rebuild": BY_TURN["env_config"], "template": {"wrappers": "spy"}}
    limited = {
        **BY_TURN,
        "env_config": wrappers[context],
        "max_steps": marks.MAX_TURNS,
        "max_tokens_per_step": marks.MAX_TOKENS,
        "agent_system_template": marks.SYSTEM,
    }
    options: dict[str, Any] = {
        "context": context,
        "template_kwargs": marks.TEMPLATE_KWARGS,
        "traces": str(tmp_path / "traces"),
    }
    if context == "template":
        options |= {"chat_template": marks.counting_template(base, tmp_path), "estimator": "rloo"}
    else:
        options["estimator_options"] = {"ddof": 1}
    changed = {
        "max_steps": 2,
        "actor_train": {"training_args": {"gradient_accumulation_steps": 20}},
        "custom_envs": {"gem": options, "Guess": limited, "Mastermind": limited},
    }
    run = harness.run_roll(tmp_path, base, changed).check()
    marks.assert_options_reach_the_engine(run.spy, warm_tokenizer)
    episodes = evidence.played(run.spy, warm_tokenizer)
    updates, steps = updates_of(run.spy), harness.metrics_of(run)
    assert len(updates) == len(steps) == 2
    groups = chaos.names_of([*read_traces(tmp_path / "traces" / "train.jsonl")])
    wanted: dict[str, Any] = {"groups": groups} if context == "template" else {"ddof": 1}
    for update, metrics in zip(updates, steps, strict=True):
        assert len(update.rows) == 80  # one row per turn, padded with masked copies
        assert 0 < sum(row.is_pad for row in update.rows) == metrics["system/batch_add_count"]
        mine = assert_update_is_right(update, episodes, warm_tokenizer, model, gap=1e-5, **wanted)
        assert len(mine) == 8
        trained = [row for row in update.rows if not row.is_pad]
        assert len(trained) == sum(len(episode.rewards) for episode in mine)
        assert_metrics_are_right(metrics, mine)


def test_each_update_of_turn_rows_compares_with_the_policy_that_sampled(tmp_path: Path, warm: Path) -> None:
    run = harness.run_roll(tmp_path, warm, {"max_steps": 1, "custom_envs": ROWS_OF_TURNS}).check()
    assert len(list(run.spy.glob("update-*.pt"))) > 1
    moved = []
    for path in sorted(run.spy.glob("loss-*.pt")):
        saved = torch.load(path, weights_only=False)
        on = saved["response_mask"][:, 1:].bool() & (saved["infer_logprobs"] != 0)
        sampled, compared, now = (saved[name][on].exp() for name in ("infer_logprobs", "compared", "old"))
        assert torch.allclose(compared, sampled, atol=1e-3)
        moved.append(bool((now - compared).abs().max() > 1e-3) if on.any() else False)
    assert not moved[0]
    assert any(moved)
