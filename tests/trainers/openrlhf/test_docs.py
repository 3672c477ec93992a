"""OpenRLHF's parser and GEM's checks accept the commands of the documentation and of the example."""

from __future__ import annotations

import shlex
from pathlib import Path

import gem_openrlhf.agent
import pytest
import yaml
from gem_openrlhf._options import VARIABLE, GemOptions, check_args
from openrlhf.trainer.ray.vllm_engine import _load_agent_executor

from tests.docs.blocks import blocks
from tests.trainers.example import EXAMPLE, load_example
from tests.trainers.openrlhf import correction, harness
from tests.trainers.openrlhf.args import parse
from tests.trainers.openrlhf.conftest import GUESS
from tests.trainers.openrlhf.data import write_rows
from tests.trainers.preflight import write_questions

OURS = ["python3", "-m", "gem_openrlhf.train_ppo_ray"]
THEIRS = ["python3", "-m", "openrlhf.cli.train_ppo_ray"]

USER = shlex.split(
    "--actor.model_name_or_path org/model --reward.model_name_or_path org/reward "
    "--train.batch_size 128 --rollout.batch_size 1024 --rollout.n_samples_per_prompt 2 "
    "--data.prompt_dataset org/prompts --data.input_key messages --data.apply_chat_template "
    "--algo.kl.init_coef 0.01 --algo.advantage.is_correction_level token --train.colocate_all"
)
"""Flags of a user who has trained with a reward model, instead of the page's ``"$@"``."""
GPU_ONLY = {"train.colocate_all", "data.apply_chat_template"}
"""Flags of `USER` that a run without a GPU omits."""


def lines() -> list[list[str]]:
    """Return the words of the page's command lines."""
    agent = gem_openrlhf.agent.__file__
    result = []
    for block in blocks("docs/trainers/openrlhf.md"):
        if block.language == "bash":
            code = block.code.replace("$(gem-core path openrlhf-agent)", agent)
            result += [shlex.split(code.replace("\\\n", " "))]
    return result


def commands() -> list[list[str]]:
    """Return the flags of the command lines that train with GEM's command."""
    documented = [words[len(OURS) :] for words in lines() if words[: len(OURS)] == OURS]
    whole = [[part for word in words for part in (USER if word == "$@" else [word])] for words in documented]
    return [with_installed_correction(words) for words in whole]


def with_installed_correction(words: list[str]) -> list[str]:
    """Return flags with the page's correction replaced by its equivalent in the installed version."""
    newest = harness.words(correction.flags("icepop", correction.LEVEL))
    start = words.index(newest[0])
    assert words[start : start + len(newest)] == newest
    return [*words[:start], *harness.words(correction.flags("icepop")), *words[start + len(newest) :]]


def flags_of(words: list[str]) -> dict[str, str | None]:
    """Return flags by name; the last of repeated flags counts, as in argparse."""
    flags: dict[str, str | None] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name = word.removeprefix("--")
            flags[name] = None
        else:
            flags[name] = word if flags[name] is None else f"{flags[name]} {word}"
    return flags


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder with the files that the page writes."""
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "train.jsonl", [GUESS], 2)
    write_rows(tmp_path / "eval.jsonl", [GUESS], 2, split="eval")
    write_questions(tmp_path)
    (tmp_path / "reward.py").write_text("def reward_func(queries, prompts, labels): ...\n")
    return tmp_path


@pytest.mark.parametrize("words", commands(), ids=["words", "own-run", "one-gpu", "eight-gpus"])
def test_a_documented_command_is_accepted(words: list[str], here: Path) -> None:
    args = parse(*words)
    assert args.algo.advantage.estimator == ("group_norm" if "group_norm" in words else "rebn")
    assert args.data.label_key == ("answer" if "group_norm" in words else "label")
    assert _load_agent_executor(args.train.agent_func_path)


def test_the_words_are_few() -> None:
    words = commands()[0]
    assert len(words) - words.index("rebn") + 1 == 2 * 3


def test_the_hook_and_its_options_are_right(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (words,) = [words for words in lines() if words[:3] == ["ray", "job", "submit"]]
    (file,) = [block for block in blocks("docs/trainers/openrlhf.md") if block.language == "yaml"]
    runtime_env = yaml.safe_load(file.code)
    assert runtime_env["worker_process_setup_hook"] == "gem_openrlhf.hooks.setup"
    monkeypatch.setenv(VARIABLE, runtime_env["env_vars"][VARIABLE])
    start = words.index(THEIRS[0])
    assert words[start : start + 3] == THEIRS
    args = parse(*words[start + 3 :])
    options = GemOptions.from_environment()
    check_args(args, options)
    assert (options.estimator, options.max_turns) == ("rebn", 8)


def test_the_agent_file_of_the_page_is_accepted(tmp_path: Path) -> None:
    (block,) = [block for block in blocks("docs/trainers/openrlhf.md") if block.language == "python"]
    file = tmp_path / "agent.py"
    file.write_text(block.code)
    assert _load_agent_executor(str(file)).options.max_turns == 8


def test_the_example_is_an_environment_and_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = load_example(monkeypatch, capsys)
    monkeypatch.chdir(tmp_path)
    place, *words = shlex.split(module.train("openrlhf"))
    assert place == f"PYTHONPATH={EXAMPLE.parent}"
    assert words[: len(OURS)] == OURS
    args = parse(*words[len(OURS) :])
    assert len(Path(args.data.prompt_dataset).read_text().splitlines()) == 10_000
    with pytest.raises(AttributeError):
        module.AgentExecuter  # noqa: B018
    monkeypatch.setattr(
        "gem_core.register", lambda *args: None
    )  # a worker imports the file for the first time
    assert _load_agent_executor(args.train.agent_func_path)
