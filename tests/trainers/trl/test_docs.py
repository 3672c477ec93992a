"""The script and the commands of the documentation, with a tiny model."""

from __future__ import annotations

import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from gem_trl._config import GemConfig
from gem_trl._grpo import flags
from trl import GRPOConfig, GRPOTrainer, ModelConfig, TrlParser
from trl.scripts.grpo import GRPOScriptArguments

from tests.docs.blocks import ROOT, blocks, command_lines
from tests.trainers.example import load_example
from tests.trainers.trl import harness

PAGE = "docs/trainers/trl.md"
MODEL = "Qwen/Qwen3-1.7B"
SMALL = {**harness.SMALL, "max_steps": 1, "use_vllm": False, "num_generations": 2}


def changed_script(added: str) -> tuple[str, int]:
    """Return the documented script that adds a line, with its changes, and the number of added lines."""
    (diff,) = [block.code for block in blocks(PAGE) if f"\n+{added}" in block.code]
    lines = diff.splitlines()
    code = "\n".join(line[1:] for line in lines if not line.startswith("-"))
    return code, sum(line.startswith("+") for line in lines)


def small(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let scripts train one step, whatever their settings say."""
    init = GRPOConfig.__init__

    def changed(self: Any, *args: Any, **settings: Any) -> None:
        init(self, *args, **{**settings, **SMALL, "output_dir": str(folder)})

    monkeypatch.setattr(GRPOConfig, "__init__", changed)


def test_ten_added_lines_make_a_script_with_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, added = changed_script("from gem_trl import GemConfig, GemGRPOTrainer, tasks")
    assert added == 10
    small(monkeypatch, tmp_path)
    code = script.replace(MODEL, harness.MODEL).replace("10_000", "8")
    names: dict[str, Any] = {}
    exec(compile(code, PAGE, "exec"), names)
    (entry,) = [entry for entry in names["trainer"].state.log_history if "rebn/turns" in entry]
    assert entry["rebn/turns"] == 8 * entry["gem/turns"]  # of TRL's eight rows, two for each task


def test_the_documented_environment_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = [block.code for block in blocks(PAGE) if "gem_trl.environment(" in block.code]
    seen: dict[str, Any] = {}
    monkeypatch.setattr(GRPOTrainer, "__init__", lambda self, **arguments: seen.update(arguments))
    monkeypatch.setattr(GRPOTrainer, "train", lambda self: None)
    small(monkeypatch, tmp_path)
    exec(compile(code, PAGE, "exec"), {})
    assert seen["environment_factory"]().reset(**seen["train_dataset"][0])


def parsed(words: list[str]) -> tuple[Any, Any, Any]:
    """Return the settings of TRL, of the model, and of GEM in a command."""
    start = words.index("gem_trl.grpo") + 1
    assert words[start - 4 : start] == ["accelerate", "launch", "-m", "gem_trl.grpo"]
    parser = TrlParser((GRPOScriptArguments, GRPOConfig, ModelConfig, flags()))
    made = parser.parse_args_and_config(args=[*words[start:], "--use_cpu", "true", "--bf16", "false"])
    return made[1], made[2], made[3]


def test_the_documented_command_is_parsed() -> None:
    (words,) = command_lines(PAGE, "accelerate", "launch")
    training, model, given = parsed(words)
    assert (training.max_completion_length, model.model_name_or_path) == (4096, MODEL)
    assert given.gem_env == ["game:GuessTheNumber-v0=2", "game:Mastermind-v0"]
    assert GemConfig.read({"template_kwargs": given.gem_template_kwargs}).template_kwargs


def test_the_page_names_every_option() -> None:
    page = (ROOT / PAGE).read_text()
    for item in fields(flags()):
        name = item.name.removeprefix("gem_")
        assert f"`{name}`" in page or f"`--{item.name}`" in page


def test_the_example_is_an_environment_and_a_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load_example(monkeypatch, capsys)
    training, _, given = parsed(shlex.split(module.train("trl")))
    assert training.max_steps == 200
    assert given.gem_env == [module.ID]
    assert GemConfig.read({"modules": given.gem_modules}).modules == ("own_env",)
