"""ROLL's own config classes and our checks accept the output of `gem-core repro` for ROLL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gem_roll._env import read_env_type
from gem_roll._options import check_config
from gem_roll._repro import write
from gem_roll._tasks import table_of

from gem_core.tasks import EnvChoice, make_tasks
from gem_lab.repro._recipe import ADAM_BETAS
from tests.repro.recipes import BOTH, OTHERS, PLAIN, recipe, started_by
from tests.trainers.roll.configs import read_config


def config_of(folder: Path, given: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the config as read by ROLL's launcher."""
    write(given, folder)
    home = folder / "ROLL"
    (home / "examples").mkdir(parents=True)
    words = started_by(folder / "run.sh", ROLL_HOME=str(home))
    assert words[:3] == ["python", "examples/start_agentic_pipeline.py", "--config_path"]
    assert (home / "examples" / words[3]).resolve() == folder.resolve()
    monkeypatch.setenv("GEM_REPRO", str(folder))
    return read_config(folder / f"{words[5]}.yaml")


@BOTH
def test_roll_reads_what_the_recipe_says(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recipe(given)
    config = config_of(tmp_path, made, monkeypatch)
    options = check_config(config)
    assert (config.gamma, options.estimator, config.init_kl_coef) == (0.9, "rebn", 0)
    assert options.estimator_options == made.changed_estimator_options
    section = config.train_env_manager
    assert (section.num_env_groups, section.group_size, config.rollout_batch_size) == (8, 2, 16)
    assert (config.max_steps, config.sequence_length, config.seed) == (5, 4096, 7)
    training = config.actor_train.training_args
    per_update = training.per_device_train_batch_size * training.gradient_accumulation_steps * made.gpus
    assert per_update == made.episodes_per_update
    assert (training.learning_rate, training.lr_scheduler_type) == (2e-6, "constant")
    assert (training.adam_beta1, training.adam_beta2) == ADAM_BETAS
    generating = config.actor_infer.generating_args
    assert (generating.max_new_tokens, generating.temperature) == (320, made.temperature)
    assert (config.pretrain, len(config.actor_train.device_mapping)) == ("Qwen/Qwen3-1.7B", made.gpus)
    # ROLL has its own name for the maximum number of turns.
    assert options.limits(max_turns=made.max_turns, max_tokens_per_turn=1) == made.limits(
        max_tokens_per_turn=1
    )
    assert options.template_kwargs == made.template_kwargs
    assert options.traces == (str(tmp_path / made.traces) if made.traces else None)
    for tag, source, groups in zip(
        section.tags, made.sources, [8] if len(made.sources) == 1 else [6, 2], strict=True
    ):
        given_env = config.custom_envs[tag]
        assert (given_env.max_steps, given_env.max_tokens_per_step) == (12, 320)
        assert given_env.agent_system_template == made.system_prompt
        arguments = dict(given_env.env_config)
        assert arguments.pop("wrappers", "") == made.wrappers
        assert EnvChoice(read_env_type(given_env.env_type, tag), arguments).label == source.label
        table = table_of(config, section, tag, source, "train", options.tasks)
        first = section.tags.index(tag) * 6
        played = [table(first + group, step) for step in range(5) for group in range(groups)]
        assert played == list(make_tasks([source], 5 * groups, seed=made.seed))
        if len(made.sources) == 1:
            assert played == list(made.tasks())


@OTHERS
def test_roll_takes_the_other_estimators_and_contexts(
    changed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recipe(PLAIN, **changed)
    options = check_config(config_of(tmp_path, made, monkeypatch))
    assert (options.estimator, options.context) == (f"gem_{made.estimator}", made.context)
