"""Features of verl that change how a batch is played or split: its loss still gets the right inputs."""

from __future__ import annotations

import json
import math
import os
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from gem_core.rollout import read_traces
from gem_lab import main
from tests.repro.recipes import GUESS, MASTERMIND, started_by
from tests.trainers import chaos, evidence
from tests.trainers.verl import harness
from tests.trainers.verl.spied import assert_gae_is_right, assert_metrics_are_right, metrics_of, updates

pytestmark = [
    pytest.mark.skipif(not os.environ.get("GEM_CORE_VERL"), reason="runs the trainer: `nox -s verl` does"),
    pytest.mark.full,
    pytest.mark.timeout(1200),
]

TOKENS = 600
"""Maximum size of a dynamic micro-batch."""
DYNAMIC = [
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
    f"actor_rollout_ref.actor.ppo_max_token_len_per_gpu={TOKENS}",
    "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True",
    f"actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu={TOKENS}",
]
REUSED = [
    "actor_rollout_ref.actor.ppo_epochs=2",
    "actor_rollout_ref.actor.optim.lr=1e-6",  # weights that hardly change keep PPO's ratio at 1
    "data.train_batch_size=1",
    "actor_rollout_ref.actor.ppo_mini_batch_size=1",
    "actor_rollout_ref.rollout.n=8",
    "actor_rollout_ref.actor.use_kl_loss=True",
    "actor_rollout_ref.ref.strategy=fsdp2",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.ref.fsdp_config.dtype=float32",
    "actor_rollout_ref.ref.fsdp_config.model_dtype=float32",
    "algorithm.rollout_correction.rollout_is=token",
]
TWO_STEPS = [
    "trainer.v1.trainer_mode=gem_sync",
    "trainer.val_before_train=False",
    "trainer.total_training_steps=2",
]
FEATURES = {
    "agent-workers": ["actor_rollout_ref.rollout.agent.num_workers=3", "algorithm.adv_estimator=gem_rloo"],
    "dynamic-micro-batches": DYNAMIC,
    "remove-padding": ["actor_rollout_ref.model.use_remove_padding=True"],
    "two-ranks": ["trainer.n_gpus_per_node=2", "+ray_kwargs.ray_init.num_gpus=2"],
    "two epochs, eight samples, KL loss, correction": REUSED,
    "merged LoRA": ["actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.model.lora.merge=True"],
}


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_of_verl(feature: str, tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any) -> None:
    words = (*TWO_STEPS, *FEATURES[feature], f"+gem.traces={tmp_path}/traces")
    run = harness.run_verl(tmp_path, warm, *words).check()
    options: dict[str, Any] = {}
    if feature == "agent-workers":
        assert len(set(re.findall(r"GemAgentLoopWorker pid=(\d+)", run.output))) > 1
        options["groups"] = chaos.names_of([*read_traces(tmp_path / "traces" / "train.jsonl")])
    episodes = evidence.played(run.spy, warm_tokenizer)
    steps = metrics_of(run)
    epochs = 2 if FEATURES[feature] is REUSED else 1
    assert len(steps) == 2
    assert len(updates(run.spy)) == 2 * epochs
    check = assert_rows_are_right if feature == "merged LoRA" else evidence.assert_update_is_right
    for index, update in enumerate(updates(run.spy)):
        mine = check(update, episodes, warm_tokenizer, model, **options)
        assert len(mine) == 8
        assert_metrics_are_right(steps[index // epochs], mine)
    if feature == "dynamic-micro-batches":
        sizes = [sum(len(row.prompt + row.response) for row in update.rows) for update in updates(run.spy)]
        assert len(list(run.spy.glob("loss-*.pt"))) == sum(math.ceil(size / TOKENS) for size in sizes)
    if FEATURES[feature] is REUSED:
        assert {"actor/kl_loss", "rollout_corr/rollout_is_mean"} <= steps[-1].keys()
    if feature == "two-ranks":
        assert len({path.stem.split("-")[1] for path in run.spy.glob("update-*.pt")}) == 2


GAE = ["algorithm.adv_estimator=gem_gae", "algorithm.lam=0.8", "critic.enable=True"]
CRITIC = [
    "critic.strategy=fsdp2",
    "critic.fsdp.strategy=fsdp2",
    "critic.fsdp.dtype=float32",
    "critic.fsdp.use_torch_compile=False",
    "critic.model.use_remove_padding=False",
    "critic.model.enable_gradient_checkpointing=False",
    "+critic.model.override_config.attn_implementation=eager",
    "++critic.fsdp.mixed_precision.param_dtype=fp32",
    "critic.ppo_micro_batch_size_per_gpu=4",
]


@pytest.mark.parametrize("source", ["options", "recipe"])
def test_gae_over_turns_with_verls_critic(
    source: str, tmp_path: Path, warm: Path, warm_tokenizer: Any
) -> None:
    models = [f"critic.model.path={warm}", f"critic.model.tokenizer_path={warm}"]
    gem = [*harness.GEM, *GAE, *models] if source == "options" else recipe_words(tmp_path, warm)
    run = harness.run_verl(tmp_path, warm, *TWO_STEPS, *CRITIC, gem=gem).check()
    episodes = evidence.played(run.spy, warm_tokenizer)
    computed = [json.loads(line) for line in (run.spy / "critic.jsonl").read_text().splitlines()]
    trained, logged = updates(run.spy), metrics_of(run)
    assert len(computed) == len(trained) == len(logged) == 2
    for saved, update, metrics in zip(computed, trained, logged, strict=True):
        assert_gae_is_right(saved, evidence.GAMMA, 0.8)
        assert any(any(row) for row in saved["values"])
        mine = [episodes[evidence.name_in(row.prompt, warm_tokenizer)] for row in update.rows]
        assert_metrics_are_right(metrics, mine)
        for row, episode in zip(update.rows, mine, strict=True):
            assert row.prompt + row.response == episode.token_ids
            stored = [list(advantages) for advantages in saved["advantages"]]
            assert any(row.advantages == pytest.approx(other, abs=1e-6) for other in stored)
        assert math.isfinite(metrics["critic/vf_loss"])


def recipe_words(folder: Path, model: Path) -> list[str]:
    """Return the overrides that `gem-core repro` writes for a recipe with turn-level GAE."""
    options = {
        "env": [GUESS, MASTERMIND],
        "model": str(model),
        "estimator": "gae",
        "estimator_options": {"lam": 0.8},
        "gamma": evidence.GAMMA,
        "steps": 2,
        "episodes_per_step": 8,
        "group_size": 2,
        "max_tokens_per_turn": 24,
        "max_total_tokens": 448,
    }
    (folder / "recipe.json").write_text(json.dumps(options))
    assert main(["repro", str(folder / "recipe.json"), "--to", "verl", "--out", str(folder / "repro")]) == 0
    return started_by(folder / "repro" / "verl" / "run.sh")[3:]


@pytest.mark.parametrize(("rows", "metric"), [("auto", "reward"), ("turn", "gem/return")])
def test_group_filters_with_statistics_of_the_trained_turns(
    rows: str, metric: str, tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any
) -> None:
    run = harness.run_verl(
        tmp_path,
        warm,
        "trainer.v1.trainer_mode=gem_sync",
        "algorithm.filter_groups.enable=True",
        f"algorithm.filter_groups.metric={metric}",
        "+algorithm.rebn.scope=trained",
        f"+gem.rows={rows}",
        f"+gem.traces={tmp_path}/traces",
        "data.train_max_samples=256",
        "trainer.val_before_train=False",
        "trainer.total_training_steps=2",
    ).check()
    episodes = evidence.played(run.spy, warm_tokenizer)
    groups: dict[tuple[str, int | None], list[evidence.Played]] = defaultdict(list)
    for trace in read_traces(tmp_path / "traces" / "train.jsonl"):
        name = evidence.NAME.search(str(trace.turns[0].observation))
        assert name
        groups[trace.env_id, trace.seed].append(episodes[name[1]])
    returns = {task: [sum(played.rewards) for played in group] for task, group in groups.items()}
    equal = {task for task, (first, second) in returns.items() if first == pytest.approx(second, abs=1e-6)}
    trained: list[evidence.Played] = []
    steps = metrics_of(run)
    for update, metrics in zip(updates(run.spy), steps, strict=True):
        # The oracle's mean and standard deviation are those of the rows that remain.
        mine = evidence.assert_update_is_right(update, episodes, warm_tokenizer, model, split=rows)
        assert len(mine) == 8
        assert_metrics_are_right(metrics, mine)
        trained += mine
    kept = {task for task, group in groups.items() if any(played in trained for played in group)}
    assert all(played in trained for task in kept for played in groups[task])
    assert len(kept) == len(steps) * 4
    assert equal
    assert not equal & kept
    evicted, surplus = (
        sum(metrics.get(f"training/filter_groups/{name}", 0) for metrics in steps)
        for name in ("evicted_samples", "discarded_surplus_samples")
    )
    assert (evicted, surplus) == (len(equal), len(groups) - len(equal) - len(kept))


def assert_rows_are_right(
    update: evidence.Update, episodes: dict[str, evidence.Played], tokenizer: Any, model: Any
) -> list[evidence.Played]:
    """Check the rows and advantages of an update of adapters, which `model` lacks; return its episodes.

    verl sends the merged weights to the engine in bfloat16, so its log-probs differ from the actor's.
    """
    mine = [episodes[evidence.name_in(row.prompt, tokenizer)] for row in update.rows]
    wanted = evidence.oracle([episode.rewards for episode in mine], evidence.GAMMA)
    for row, episode, advantages in zip(update.rows, mine, wanted, strict=True):
        evidence.assert_row_is_right(row, episode, advantages, gap=None)
    trained = [gradient for gradient in update.gradients if gradient is not None]
    assert any(bool(gradient.any()) for gradient in trained) == any(
        any(row.advantages) for row in update.rows
    )
    assert sum(gradient.numel() for gradient in trained) < sum(p.numel() for p in model.parameters())
    return mine
