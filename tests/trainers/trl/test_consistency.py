"""TRL takes the shared step of all trainers with the tokens, advantages, and gradient of gem_core."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from gem_trl._playing import Rollout
from gem_trl._rewards import episode_return
from trl import GRPOTrainer

from gem_lab.consistency import Played
from gem_lab.consistency._compare import ADVANTAGE_TOLERANCE
from tests.consistency import assemble
from tests.consistency.cases import CASES, REBN, Case, judge_cases, judge_stock
from tests.consistency.scenario import SAMPLES, Scenario
from tests.trainers.trl import harness, shared


def test_the_shared_step(tmp_path: Path, shared_step: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoModelForCausalLM

    shared.answer_from_script(monkeypatch, shared_step.script)
    trainer = shared.make_trainer(tmp_path, shared_step)
    trainer.train()
    (update,) = trainer.updates
    (rollout,) = trainer.rollouts
    episodes = assemble.from_rows(update.rows, shared.carried(rollout))
    model = AutoModelForCausalLM.from_pretrained(shared_step.model, attn_implementation="eager").float()
    gradient = assemble.gradient_difference(update, shared_step.core(), model)
    command = json.dumps({"GRPOConfig": shared.settings(), "GemConfig": asdict(shared.OPTIONS)})
    comparison = assemble.judge(shared_step, "trl", ["trl", "torch"], command, episodes, gradient)
    assert comparison.equal, comparison


def test_the_step_with_several_rows_per_episode(
    tmp_path: Path, shared_step: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    shared.answer_from_script(monkeypatch, shared_step.rows_script)
    options = shared.row_options(shared_step)
    trainer = shared.make_trainer(tmp_path, shared_step, options, **shared.ROWS)
    trainer.train()
    (update,) = trainer.updates
    (rollout,) = trainer.rollouts
    tokenizer = AutoTokenizer.from_pretrained(shared_step.model)
    episodes = assemble.from_row_means(update.rows, shared.carried(rollout), tokenizer)
    model = AutoModelForCausalLM.from_pretrained(shared_step.model, attn_implementation="eager").float()
    gradient = assemble.gradient_difference(update, shared_step.core("core-rows"), model, episode_means=True)
    command = json.dumps({"GRPOConfig": shared.settings(**shared.ROWS), "GemConfig": asdict(options)})
    comparison = assemble.judge(
        shared_step, "trl-rows", ["trl", "torch"], command, episodes, gradient, reference="core-rows"
    )
    assert comparison.equal, comparison


def test_other_options_on_the_same_episodes(tmp_path: Path, shared_step: Scenario) -> None:
    """Test other estimators and discounts; TRL has no KL in the reward."""
    trainer = shared.make_trainer(tmp_path, shared_step)

    def advantages(case: Case, episodes: list[Played]) -> list[list[float]]:
        options = {"ddof": case.ddof} if case.estimator == "rebn" else {}
        gem = replace(
            shared.OPTIONS, estimator=case.estimator, gamma=case.gamma, estimator_options=options
        ).checked()
        trainer.choice = gem.choose_estimator(played=True)
        return shared.replay(trainer, episodes)

    found = judge_cases(shared_step, "trl", CASES, advantages)
    assert max(found.values()) <= ADVANTAGE_TOLERANCE, found


STOCK: dict[str, dict[str, Any]] = {
    "grpo": {},
    "grpo, scale_rewards=batch": {"scale_rewards": "batch"},
    "grpo, scale_rewards=none": {"scale_rewards": "none"},
    "grpo, normalize_then_sum": {"multi_objective_aggregation": "normalize_then_sum"},
}


def test_trls_own_advantages_point_elsewhere(tmp_path: Path, shared_step: Scenario) -> None:
    ours = shared.make_trainer(tmp_path, shared_step)
    stock = GRPOTrainer(
        str(shared_step.model),
        args=harness.config(tmp_path, **shared.settings()),
        train_dataset=ours.train_dataset,
        reward_funcs=episode_return,
        rollout_func=Rollout(shared.OPTIONS),
    )

    def tokens(name: str, episodes: list[Played]) -> list[list[float]]:
        assert [p.seed for p in episodes[::SAMPLES]] == [p.seed for p in episodes[1::SAMPLES]]
        trainer = ours if name == "rebn" else stock
        for option, value in {"scale_rewards": "group", **STOCK.get(name, {})}.items():
            setattr(trainer, option, value)
        values = shared.replay(trainer, episodes)
        return [shared.tokens_of(turn_values, p) for turn_values, p in zip(values, episodes, strict=True)]

    found = judge_stock(shared_step, "trl", ["rebn", *STOCK], tokens)
    assert found.pop("rebn") == 0
    assert min(found.values()) > 0.05, found
    assert REBN.gamma == shared.OPTIONS.gamma
