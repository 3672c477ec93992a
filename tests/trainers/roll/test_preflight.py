"""`gem-core doctor --trainer roll` checks a YAML like ROLL's launcher, without starting anything."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import ray
from omegaconf import OmegaConf

from gem_core.tasks import EnvChoice, make_tasks
from tests.docs.blocks import ROOT, commands
from tests.trainers.preflight import SILENT_SERVER, TRUNCATED, own_words, plan_of, problem_of

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
    "inner key": (
        {"actor_train": {"training_args": {"learning_rat": 1e-5}}},
        "unknown option 'actor_train.training_args.learning_rat', which ROLL would ignore. Did you mean "
        "learning_rate?",
    ),
    "key of a tag": (
        {"custom_envs": {"Guess": {"max_step": 3}}},
        "unknown option 'custom_envs.Guess.max_step', which ROLL would ignore. Did you mean max_steps?",
    ),
    "deeper key": (
        {"train_env_manager": {"llm_proxy": {"proxy_typ": "policy"}}},
        "unknown option 'train_env_manager.llm_proxy.proxy_typ'",
    ),
    "value": ({"gamma": 1.2}, "gamma=1.2: expected a number from 0 to 1"),
    "type": ({"max_steps": "many"}, "max_steps"),
    "ROLL's own check": (
        {"train_env_manager": {"num_env_groups": 3}},
        "AssertionError, raised by: assert done_groups == env_manager_config.num_env_groups",
    ),
    "ROLL's own failure": ({"train_env_manager": {"group_size": 0}}, "by zero, raised by: "),
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


def test_the_plan_says_what_a_run_would_do(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    guess, other = "game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy"
    tasks = folder / "tasks.jsonl"
    rows = list(make_tasks([EnvChoice(guess), EnvChoice(other)], 30))
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tag = {
        "env_manager_cls": "gem_roll.GemTrajEnvManager", "max_steps": 4, "max_tokens_per_step": 100,
        "agent_system_template": None, "agent_template": "{observation}", "env_config": {},
    }  # fmt: skip
    changed: dict[str, Any] = {
        "eval_steps": 5,
        "sequence_length": 1000,
        "rollout_batch_size": 16,
        "note_of_mine": "x",
        "actor_infer": {"generating_args": {"top_p": 0.9, "max_new_tokens": 200}},
        "train_env_manager": {
            "num_env_groups": 8, "group_size": 2, "tags": ["Guess", "Other"], "num_groups_partition": [5, 3],
        },
        "val_env_manager": {
            "num_env_groups": 4, "group_size": 1, "tags": ["Guess"], "num_groups_partition": [4],
        },
        "val_batch_size": 4,
        "custom_envs": {
            "gem": {"tasks": str(tasks)},
            "Guess": {**tag, "env_type": f"gem_core:{guess}"},
            "Other": {**tag, "env_type": f"gem_core:{other}", "mine": 1},
        },
    }  # fmt: skip
    path = folder / "plan.yaml"
    OmegaConf.save(OmegaConf.merge(OmegaConf.load(folder / "rebn.yaml"), changed), path)
    counts = Counter(row["env_id"] for row in rows)
    played = "played by gem_roll.GemTrajEnvManager, rewarded by the environment"
    assert plan_of("roll", [str(path)], capsys) == [
        f"train: {counts[guess]} rows of {guess} (tag Guess, 5 of 8 groups of 2), {played}",
        f"train: {counts[other]} rows of {other} (tag Other, 3 of 8 groups of 2), {played}",
        f"eval: 4 rows of {guess} (tag Guess, 4 of 4 groups of 1), {played}",
        "estimator: rebn(gamma=0.9), statistics of all turns collected for a step",
        "tokens: an episode has 4 turns of at most 100 sampled tokens, 400 in all; sequence_length=1,000 "
        "leaves 600 for prompt and observations",
        f"note: actor_infer.generating_args.top_p=0.9: {TRUNCATED}",
        "note: note_of_mine: nothing reads this option",
        "note: custom_envs.Other.mine: nothing reads this option",
    ]
    more = folder / "more.jsonl"
    unplayed = make_tasks([EnvChoice("game:Wordle-v0")], 1)
    more.write_text(tasks.read_text() + "".join(json.dumps(row) + "\n" for row in unplayed))
    OmegaConf.save(
        OmegaConf.merge(OmegaConf.load(path), {"custom_envs": {"gem": {"tasks": str(more)}}}), path
    )
    problem = str(problem_of("roll", [str(path)], capsys))
    assert "more.jsonl, line 31: no tag has the environment game:Wordle-v0" in problem
    assert problem_of("roll", [str(folder / "step.yaml")], capsys) is None
    lines = plan_of("roll", [str(folder / "step.yaml")], capsys)
    assert "estimator: ROLL's step_reinforce, gamma=1.0 per token" in lines
