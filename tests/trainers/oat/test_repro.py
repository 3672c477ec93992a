"""Oat's own parser and our checks accept the output of `gem-core repro` for Oat."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import tyro
from gem_oat._args import Args
from gem_oat._checks import prepare
from gem_oat._repro import write
from gem_oat._tasks import task_prompts

from gem_core.advantages import gae
from gem_core.errors import ConfigError
from gem_lab.repro._recipe import ADAM_BETAS
from tests.repro.recipes import BOTH, PLAIN, recipe, started_by


def args_of(folder: Path, given: Any, monkeypatch: pytest.MonkeyPatch) -> Args:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: given.gpus)
    write(given, folder)
    words = started_by(folder / "run.sh", "--logging-steps", "7")
    assert words[:3] == ["python", "-m", "gem_oat.train"]
    args = prepare(tyro.cli(Args, args=words[3:]))
    assert args.logging_steps == 7
    return args


@BOTH
def test_oat_reads_what_the_recipe_says(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recipe(given)
    args = args_of(tmp_path, made, monkeypatch)
    assert (args.estimator, args.gamma, args.beta, args.tis_c) == ("rebn", 0.9, 0, None)
    assert (args.env_id, args.seed, args.group_size) == (list(made.env), 7, 2)
    assert [json.loads(task) for _, task, _ in task_prompts(args.sources, 40, args.seed)] == list(
        made.tasks()
    )
    assert (args.rollout_batch_size, args.max_train) == (48, 5 * 48)
    assert (args.train_batch_size, args.num_ppo_epochs) == (48 // made.minibatches, 1)
    assert (args.max_model_len, args.generate_max_length, args.temperature) == (4096, 320, made.temperature)
    assert (args.learning_rate, args.lr_scheduler, args.lr_warmup_ratio) == (2e-6, "constant", 0)
    assert (args.adam_beta_1, args.adam_beta_2) == ADAM_BETAS
    assert (args.pretrain, args.learners) == ("Qwen/Qwen3-1.7B", made.gpus)
    options = args.rollout_options()
    assert options.limits(max_tokens_per_turn=1) == made.limits(max_tokens_per_turn=1)
    for name in ("max_tokens_per_turn", "wrappers", "system_prompt", "traces"):
        assert getattr(options, name) == getattr(made, name)
    assert options.template_kwargs == made.template_kwargs
    choice = args.choose_estimator()
    scope = {"scope": "trained"} if choice.scope == "trained" else {}
    assert choice.options | scope == made.changed_estimator_options


@pytest.mark.parametrize(
    "changed",
    [
        {"estimator": "grpo", "turns_per_step": None, "max_turns": 1},
        {"estimator": "rloo", "max_turns": None},
        {"estimator": "reinforce", "context": "rebuild", "raw": True},
    ],
    ids=["grpo", "rloo", "rebuild"],
)
def test_oat_takes_the_other_estimators_and_contexts(
    changed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recipe(PLAIN, **changed)
    args = args_of(tmp_path, made, monkeypatch)
    assert args.critic_type == "drgrpo"
    assert (args.estimator, args.context, args.raw) == (made.estimator, made.context, made.raw)
    assert args.rollout_batch_size == (made.turns_per_step or made.episodes_per_step)


def test_statistics_of_episodes_are_unsupported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot run this recipe: weight: Oat's learner does not know"):
        write(recipe(PLAIN, estimator_options={"weight": "episode"}), tmp_path)


@pytest.mark.parametrize(
    ("changed", "rate", "lam"),
    [
        ({}, 2e-6, inspect.signature(gae).parameters["lam"].default),
        ({"critic_learning_rate": 1e-5, "estimator_options": {"lam": 0.8}}, 1e-5, 0.8),
    ],
    ids=["defaults", "options"],
)
def test_gae_sets_up_a_critic(
    changed: dict[str, Any], rate: float, lam: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = args_of(tmp_path, recipe(PLAIN, estimator="gae", **changed), monkeypatch)
    assert (args.estimator, args.critic_type, args.critic_learning_rate) == ("gae", "ppo", rate)
    assert args.choose_estimator().options == {"lam": lam}
