"""ROLL's own config classes and our checks accept the YAMLs of the documentation and the examples."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from gem_roll._kinds import has_several_rows, managers_of
from gem_roll._options import check_config
from gem_roll._updates import needs_old_logprobs
from omegaconf import OmegaConf

from gem_core.errors import ConfigError
from tests.docs.blocks import ROOT, blocks
from tests.trainers.example import EXAMPLE, load_example
from tests.trainers.roll import harness
from tests.trainers.roll.configs import read_config

EXAMPLES = ROOT / "integrations/roll/examples"
PAGE = (ROOT / "docs/trainers/roll.md").read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of the examples."""
    return Path(shutil.copytree(EXAMPLES, tmp_path / "examples"))


def yamls() -> list[Any]:
    return [
        OmegaConf.create(block.code)
        for block in blocks("docs/trainers/roll.md")
        if block.code.startswith(("pipeline_cls", "adv_"))
    ]


def test_the_example_for_one_gpu_is_a_config(folder: Path) -> None:
    config = read_config(folder / "rebn.yaml")
    options = check_config(config)
    assert options.template_kwargs == {"enable_thinking": False}


def test_the_documented_lines_match_the_examples(folder: Path) -> None:
    ours, rolls = yamls()
    for lines, name in ((ours, "rebn.yaml"), (rolls, "step.yaml")):
        example = OmegaConf.merge(OmegaConf.load(folder / "rebn.yaml"), OmegaConf.load(folder / name))
        assert OmegaConf.merge(example, lines) == example


def test_the_documented_polling_matches_the_workers(folder: Path) -> None:
    (block,) = [b for b in blocks("docs/trainers/roll.md") if b.code.startswith("train_env_manager")]
    merged = OmegaConf.merge(OmegaConf.load(folder / "rebn.yaml"), OmegaConf.create(block.code))
    OmegaConf.save(merged, folder / "rebn.yaml")
    config = read_config(folder / "rebn.yaml")
    for section in (config.train_env_manager, config.val_env_manager):
        assert section.system_envs["RAY_get_check_signal_interval_milliseconds"] == "100"


def test_the_example_for_rolls_own_pipeline_is_a_config(folder: Path) -> None:
    config = read_config(folder / "step.yaml")
    assert config.adv_estimator == "step_reinforce"
    assert (config.reward_normalization.norm_mean_type, config.step_reward_gamma) == ("batch", 0.9)
    with pytest.raises(ConfigError, match="write adv_estimator: agentic_reinforce"):
        check_config(config)  # the YAML is not for our pipeline


def test_the_example_is_an_environment_and_a_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = Path(shutil.copytree(EXAMPLES, tmp_path / "integrations" / "roll" / "examples"))
    examples = Path(shutil.copytree(EXAMPLE.parent, tmp_path / "integrations" / "examples"))
    module = load_example(monkeypatch, capsys, examples / "own_env.py")
    (tmp_path / "ROLL" / "examples").mkdir(parents=True)
    monkeypatch.setenv("ROLL_HOME", str(tmp_path / "ROLL"))
    command = module.train("roll")
    assert "--config_path ../../integrations/roll/examples --config_name own_env" in command
    options = check_config(read_config(configs / "own_env.yaml"))
    assert options.modules == ("own_env",)


def test_rolls_own_yaml_of_gem_needs_three_changed_lines(tmp_path: Path) -> None:
    """ROLL's own env manager and environment, with ReBN."""
    folder = tmp_path / "examples"
    shutil.copytree(Path(harness.HOME) / "examples" / "config", folder / "config")
    path = folder / "run" / "gem_game_guess_the_number.yaml"
    path.parent.mkdir()
    original = Path(harness.HOME) / "examples/qwen3_agentic_gem" / path.name
    text = original.read_text(encoding="utf-8")
    for line, changed in (
        ("exp_name:", "pipeline_cls: gem_roll.ReBNAgenticPipeline\nexp_name:"),
        ('adv_estimator: "step_reinforce"', "adv_estimator: agentic_reinforce"),
        ("method: mean_std", "method: identity"),  # ReBN normalizes by itself
    ):
        assert text.count(f"{line} ") + text.count(f"{line}\n") == 1
        text = text.replace(line, changed)
    path.write_text(text, encoding="utf-8")
    config = read_config(path)
    options = check_config(config)
    assert options.estimator == "rebn"
    (manager,) = managers_of(config).values()
    assert (manager.__name__, has_several_rows(manager)) == ("StepConcatEnvManager", True)
    assert needs_old_logprobs(config)
