"""OpenRLHF's parser and GEM's checks accept the output of `gem-core repro` for OpenRLHF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gem_openrlhf._labels import openrlhf_row
from gem_openrlhf._options import GemOptions
from gem_openrlhf._repro import write
from openrlhf.trainer.ray.vllm_engine import _load_agent_executor

from gem_lab.repro._recipe import ADAM_BETAS
from tests.repro.recipes import FULL, PLAIN, recipe, started_by
from tests.trainers.openrlhf.args import parse


def args_of(folder: Path, given: Any) -> Any:
    write(given, folder)
    words = started_by(folder / "run.sh", "--logger.logging_steps", "7")
    assert words[:3] == ["python", "-m", "gem_openrlhf.train_ppo_ray"]
    args = parse(*words[3:])
    assert args.logger.logging_steps == 7
    return args


@pytest.mark.parametrize("given", [PLAIN, FULL], ids=["plain", "full"])
def test_openrlhf_reads_what_the_recipe_says(given: dict[str, Any], tmp_path: Path) -> None:
    made = recipe(given)
    args = args_of(tmp_path, made)
    advantage, rollout, train = args.algo.advantage, args.rollout, args.train
    assert (advantage.estimator, advantage.gamma, args.algo.kl.init_coef) == ("rebn", 0.9, 0)
    rows = [json.loads(line) for line in Path(args.data.prompt_dataset).read_text().splitlines()]
    assert rows == [openrlhf_row(task) for task in made.tasks()]
    assert len(rows) == 40
    assert (args.data.input_key, args.data.label_key) == ("input", "label")
    assert (rollout.batch_size, rollout.n_samples_per_prompt) == (8, 2)
    assert (train.batch_size, train.num_episodes, train.max_epochs) == (16 // made.minibatches, 1, 1)
    assert (train.batch_size // made.gpus) % train.micro_batch_size == 0
    assert (args.data.max_len, rollout.max_new_tokens, rollout.temperature) == (4096, 320, made.temperature)
    assert (args.actor.adam.lr, args.actor.lr_scheduler, train.seed) == (2e-6, "constant", 7)
    assert tuple(args.actor.adam.betas) == ADAM_BETAS
    assert (args.actor.model_name_or_path, args.actor.num_gpus_per_node) == ("Qwen/Qwen3-1.7B", made.gpus)
    options = GemOptions.load(vars(args.gem))
    assert options.limits(max_tokens_per_turn=1) == made.limits(max_tokens_per_turn=1)
    for name in ("wrappers", "traces", "system_prompt"):
        assert getattr(options, name) == getattr(made, name)
    assert options.template_kwargs == made.template_kwargs
    assert options.estimator_options == made.changed_estimator_options
    assert _load_agent_executor(train.agent_func_path)


def test_openrlhf_takes_a_rebuilt_context(tmp_path: Path) -> None:
    made = recipe(PLAIN, context="rebuild", raw=True, max_turns=None)
    options = GemOptions.load(vars(args_of(tmp_path, made).gem))
    assert (options.context, options.raw, options.has_several_rows) == ("rebuild", True, True)


@pytest.mark.parametrize("estimator", ["reinforce", "grpo", "rloo"])
def test_openrlhf_takes_the_other_estimators(estimator: str, tmp_path: Path) -> None:
    args = args_of(tmp_path, recipe(PLAIN, estimator=estimator, max_turns=None))
    assert args.algo.advantage.estimator == f"gem_{estimator}"
