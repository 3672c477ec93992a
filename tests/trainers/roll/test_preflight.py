"""`gem-core doctor --trainer roll` checks a YAML like ROLL's launcher, without starting anything."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import ray
from omegaconf import OmegaConf

from tests.docs.blocks import ROOT, commands
from tests.trainers.preflight import SILENT_SERVER, own_words, problem_of

EXAMPLES = ROOT / "integrations/roll/examples"
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "id": (
        {"custom_envs": {"Guess": {"env_type": "gem_core:game:GuesTheNumber-v0"}}},
        "Did you mean game:GuessTheNumber",
    ),
    "extra": (
        {"custom_envs": {"Guess": {"env_type": "gem_core:textarena:Wordle-v0"}}},
        "gem-core[textarena]",
    ),
    "argument": ({"custom_envs": {"Guess": {"env_config": {"max_numbr": 9}}}}, "max_numbr"),
    "option": (
        {"custom_envs": {"gem": {"max_env_retrys": 3}}},
        "unknown option 'custom_envs.gem.max_env_retrys'",
    ),
    "key": ({"gama": 0.9}, "unknown option 'gama', which ROLL would ignore. Did you mean gamma?"),
    "value": ({"gamma": 1.2}, "gamma=1.2: expected a number from 0 to 1"),
    "type": ({"max_steps": "many"}, "max_steps"),
    "pipeline": ({"pipeline_cls": "gem_roll.RebnPipeline"}, "cannot import gem_roll.RebnPipeline"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of the examples."""
    return Path(shutil.copytree(EXAMPLES, tmp_path / "examples"))


def test_the_page_names_an_accepted_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (words,) = commands("docs/trainers/roll.md", "gem-core doctor --trainer roll")
    assert words[:5] == ["gem-core", "doctor", "--trainer", "roll", "--"]
    assert problem_of("roll", [str(ROOT / word) for word in words[5:]], capsys) is None
    assert problem_of("roll", [str(folder / "step.yaml")], capsys) is None  # ROLL's own pipeline
    assert not ray.is_initialized()


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed, text = MISTAKES[name]
    merged = OmegaConf.merge(OmegaConf.load(folder / "rebn.yaml"), changed)
    OmegaConf.save(merged, folder / "mistake.yaml")
    problem = problem_of("roll", [str(folder / "mistake.yaml")], capsys)
    assert problem is not None
    assert text in problem


def test_a_mistake_with_rolls_own_pipeline_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Our env managers read the options and the tasks in any pipeline."""
    for section, text in (
        ({"gem": {"max_env_retrys": 3}}, "unknown option 'custom_envs.gem.max_env_retrys'"),
        ({"gem": {"tasks": "none.jsonl"}}, "none.jsonl"),
        ({"Guess": {"env_config": {"max_numbr": 9}}}, "max_numbr"),
    ):
        merged = OmegaConf.merge(OmegaConf.load(folder / "step.yaml"), {"custom_envs": section})
        OmegaConf.save(merged, folder / "mistake.yaml")
        assert text in str(problem_of("roll", [str(folder / "mistake.yaml")], capsys))


def test_a_referenced_key_is_accepted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "rebn.yaml"
    path.write_text(path.read_text().replace("gamma: 0.9", "gama: 0.9\ngamma: ${gama}"))
    assert problem_of("roll", [str(path)], capsys) is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["none.yaml"], "none.yaml does not exist"),
        (["a", "b"], "a b: expected the path of one YAML file"),
        (["a.yml"], "a.yml: expected the path of one YAML file"),
    ],
)
def test_the_argument_is_a_file(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert text in str(problem_of("roll", arguments, capsys))


def test_a_custom_environment_is_accepted(
    own_id: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, env_type = own_words("roll", own_id)
    for name, problem in ((env_type, None), (env_type.replace("Cold", "Gold"), "Gold")):
        changed = {"custom_envs": {"Guess": {key.rstrip(":"): name}}}
        OmegaConf.save(OmegaConf.merge(OmegaConf.load(folder / "rebn.yaml"), changed), folder / "own.yaml")
        assert str(problem or None) in str(problem_of("roll", [str(folder / "own.yaml")], capsys))


def test_a_server_must_answer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, env_type = own_words("roll", SILENT_SERVER)
    changed = {"custom_envs": {"Guess": {key.rstrip(":"): env_type}}}
    OmegaConf.save(OmegaConf.merge(OmegaConf.load(folder / "rebn.yaml"), changed), folder / "silent.yaml")
    assert "Connection refused" in str(problem_of("roll", [str(folder / "silent.yaml")], capsys))
