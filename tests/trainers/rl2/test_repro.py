"""RL2's own config parser and our checks accept the output of `gem-core repro` for RL2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gem_rl2._options import check_config, choose_estimator, plays_gem, prepare, read_options
from gem_rl2._repro import INDEX, TREE, write
from gem_rl2._rows import rl2_row
from gem_rl2._upstream import find

from tests.repro.recipes import BOTH, PLAIN, recipe, started_by
from tests.trainers.rl2.configs import compose_config


def config_of(folder: Path, given: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the config of the imported version."""
    upstream = find()
    write(given, folder)
    words = started_by(folder / (INDEX if upstream.is_index else TREE), "trainer.save_freq=3")
    assert words[:4] == ["torchrun", f"--nproc_per_node={given.gpus}", "-m", "gem_rl2.train"]
    config = compose_config(*words[4:])
    monkeypatch.chdir(folder)
    prepare(config, upstream)
    check_config(config, upstream)
    assert plays_gem(config)
    assert config.trainer.save_freq == 3
    return config


@BOTH
def test_rl2_reads_what_the_recipe_says(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream = find()
    # The version on the package index rejects retries of an episode.
    made = recipe(given, **({"on_env_error": "mask"} if upstream.is_index else {}))
    config = config_of(tmp_path, made, monkeypatch)
    data = config.train_data if upstream.is_index else config.rollout.train
    assert (config.adv.estimator, config.adv.gamma, config.actor.kl.coef) == ("rebn", 0.9, 0)
    rows = [json.loads(line) for line in Path(data.path).read_text().splitlines()]
    assert rows == [rl2_row(task) for task in made.tasks()]
    assert (data.prompts_per_rollout, data.responses_per_prompt) == (8, 2)
    if upstream.is_index:
        assert (len(rows) // data.prompts_per_rollout, config.trainer.n_epochs) == (5, 1)
        assert (config.actor.lr, config.actor.scheduler, config.actor.warmup_ratio) == (2e-6, "constant", 0)
        assert config.rollout.max_turns == 12
    else:
        assert config.trainer.total_steps == 5
        assert (config.actor.optimizer.lr, config.actor.scheduler.name) == (2e-6, "constant")
    assert config.actor.update_per_rollout == made.minibatches
    params = upstream.sampling_params(config, "train")
    assert (params.max_new_tokens, params.temperature) == (320, made.temperature)
    assert config.actor.temperature == made.temperature
    assert (config.actor.max_length_per_device, config.actor.model_name) == (4096, "Qwen/Qwen3-1.7B")
    options = read_options(config)
    assert options.limits(max_tokens_per_turn=1) == made.limits(max_tokens_per_turn=1)
    for name in ("wrappers", "system_prompt", "traces"):
        assert getattr(options, name) == getattr(made, name)
    assert options.template_kwargs == made.template_kwargs
    found = dict(config.adv.get("rebn") or {})
    assert found == made.changed_estimator_options
    assert choose_estimator(config.adv).options == {k: v for k, v in found.items() if k != "scope"}


@pytest.mark.parametrize(
    "changed",
    [
        {"estimator": "grpo", "estimator_options": {"ddof": 1}},
        {"estimator": "rloo", "minibatches": 8},
        {"estimator": "reinforce", "context": "rebuild", "raw": True},
    ],
    ids=["grpo", "rloo", "rebuild"],
)
def test_rl2_takes_the_other_estimators_and_contexts(
    changed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recipe(PLAIN, **changed)
    config = config_of(tmp_path, made, monkeypatch)
    assert config.adv.estimator == f"gem_{made.estimator}"
    assert read_options(config).context == made.context
