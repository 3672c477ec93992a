"""verl takes the shared step of all trainers with the tokens, advantages, and gradient of gem_core."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from verl import DataProto
from verl.trainer.ppo.ray_trainer import compute_advantage

from gem_lab.consistency import Played
from gem_lab.consistency._compare import ADVANTAGE_TOLERANCE
from tests.consistency import assemble
from tests.consistency.cases import CASES, REBN, WITH_KL, Case, judge_cases, judge_stock, token_rewards
from tests.consistency.scenario import (
    GAMMA,
    MAX_TURNS,
    SEED,
    SOURCES,
    TASKS,
    TOKENS,
    TOKENS_PER_TURN,
    scenario,
)
from tests.trainers.verl import harness, spied
from tests.trainers.verl.configs import verl_config


@pytest.mark.skipif(not os.environ.get("GEM_CORE_VERL"), reason="runs the trainer: `nox -s verl` does")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("several", [False, pytest.param(True, marks=pytest.mark.full)])
def test_the_shared_step(several: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With several rows per episode, the loss is a mean over rows."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    shared = scenario()
    monkeypatch.setenv("GEM_SCRIPT", str(shared.rows_script if several else shared.script))
    sources = ",".join(f"'{source}'" for source in SOURCES)
    words = [
        "trainer.v1.trainer_mode=gem_sync",
        f"algorithm.gamma={GAMMA}",
        f"data.train_files=[{sources}]",
        f"+data.seed={SEED}",
        f"data.train_batch_size={TASKS}",
        f"data.train_max_samples={TASKS}",
        f"data.max_response_length={TOKENS}",
        f"actor_rollout_ref.rollout.max_model_len={TOKENS}",
        "actor_rollout_ref.actor.ppo_mini_batch_size=8",
        "trainer.val_before_train=False",
        "trainer.total_training_steps=1",
        f"+gem.max_turns={MAX_TURNS}",
        f"+gem.max_tokens_per_turn={TOKENS_PER_TURN}",
        "+gem.wrappers=named",
    ]
    if several:
        words += ["+gem.context=template", f"+gem.chat_template={shared.rows_template}"]
        words += ["actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean"]
    run = harness.run_verl(tmp_path, shared.model, *words).check()
    (update,) = spied.updates(run.spy)
    carried, name, reference = assemble.carried_episodes(run.spy), "verl", "core"
    if several:
        tokenizer = AutoTokenizer.from_pretrained(shared.model)
        episodes = assemble.from_row_means(update.rows, carried, tokenizer)
        name, reference = "verl-rows", "core-rows"
    else:
        episodes = assemble.from_rows(update.rows, carried)
    model = AutoModelForCausalLM.from_pretrained(shared.model, attn_implementation="eager").float()
    gradient = assemble.gradient_difference(update, shared.core(reference), model, episode_means=several)
    comparison = assemble.judge(
        shared, name, ["verl", "torch"], " ".join(words), episodes, gradient, reference=reference
    )
    assert comparison.equal, comparison


def through_verl(episodes: list[Played], case: Case, name: str, *words: str) -> torch.Tensor:
    """Return advantages from verl's dispatch of estimators, with padding and a row that fills the batch.

    The rows of a task form a group.
    """
    algorithm = verl_config(
        f"algorithm.adv_estimator={name}", f"algorithm.gamma={case.gamma}", *words
    ).algorithm
    width = max(len(played.token_ids) for played in episodes)
    mask, rewards = torch.zeros(len(episodes) + 1, width), torch.zeros(len(episodes) + 1, width)
    for row, played in enumerate(episodes):
        size = len(played.token_ids)
        mask[row, :size] = (torch.tensor(played.turn_ids) >= 0).float()
        rewards[row, :size] = torch.tensor(token_rewards(played, case))
    data = DataProto.from_dict(
        tensors={"token_level_rewards": rewards, "response_mask": mask},
        non_tensors={"uid": np.array([*(str(played.seed) for played in episodes), "pad"], dtype=object)},
    )
    data = compute_advantage(data, adv_estimator=name, gamma=case.gamma, config=algorithm)
    result: torch.Tensor = data.batch["advantages"]
    assert not result[mask == 0].any()
    return result


def test_other_options_on_the_same_episodes() -> None:
    def advantages(case: Case, episodes: list[Played]) -> list[list[float]]:
        name = "rebn" if case.estimator == "rebn" else "gem_reinforce"
        words = [f"+algorithm.rebn.ddof={case.ddof}"] if name == "rebn" else []
        result = through_verl(episodes, case, name, *words)
        for row, played in enumerate(episodes):
            played.read_advantages(result[row, : len(played.turn_ids)].tolist())
            assert played.spread == 0
        return [played.advantages for played in episodes]

    result = judge_cases(scenario(), "verl", [*CASES, *WITH_KL], advantages)
    assert max(result.values()) <= ADVANTAGE_TOLERANCE, result


def test_verls_own_estimators_point_elsewhere() -> None:
    def tokens(name: str, episodes: list[Played]) -> list[list[float]]:
        result = through_verl(episodes, REBN, name)
        return [result[row, : len(played.turn_ids)].tolist() for row, played in enumerate(episodes)]

    stock = ["grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline"]
    result = judge_stock(scenario(), "verl", ["rebn", *stock], tokens)
    assert result.pop("rebn") == 0
    assert min(result.values()) > 0.05, result
