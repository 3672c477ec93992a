"""The command: TRL's own script with GEM's flags; the export; and the flags of a recipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trl
from gem_trl import _grpo
from gem_trl._dataset import write
from gem_trl._repro import write as write_recipe
from trl.scripts.grpo import GRPOScriptArguments

from gem_core.rollout import read_traces
from gem_core.tasks import EnvChoice, make_tasks
from tests.repro.recipes import FULL, PLAIN, recipe, started_by
from tests.trainers.trl import harness


def words(folder: Path, *more: str) -> list[str]:
    """Return the flags of a short run, with the settings of `harness.SMALL`."""
    settings = {
        **harness.SMALL,
        "max_steps": 1,
        "output_dir": folder / "out",
        "model_name_or_path": harness.MODEL,
    }
    listed = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    return [*listed, "--dtype", "float32", "--gem_max_tokens_per_turn", "24", *more]


def test_the_command_trains_and_evaluates(tmp_path: Path) -> None:
    more = [
        "--gem_env", f"{harness.GAME}=2", harness.OTHER, "--gem_num_tasks", "16",
        "--gem_eval_env", harness.GAME, "--gem_num_eval_tasks", "4", "--gem_gamma", "0.9",
        "--gem_estimator_options", '{"ddof": 1}',
        "--gem_traces", str(tmp_path / "traces"), "--eval_strategy", "steps", "--eval_steps", "1",
    ]  # fmt: skip
    original = trl.GRPOTrainer
    _grpo.main(words(tmp_path, *more))
    assert trl.GRPOTrainer is original
    assert {e.env_id for e in read_traces(tmp_path / "traces/eval.jsonl")} == {harness.GAME}
    assert len(list(read_traces(tmp_path / "traces/train.jsonl"))) == 8
    assert (tmp_path / "out/model.safetensors").exists()


def test_exported_tasks_and_a_config_file(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write(make_tasks([EnvChoice.parse(harness.GAME)], 8), data / "train.jsonl")
    config = tmp_path / "run.yaml"
    config.write_text(
        f"dataset_name: {data}\ngem_gamma: 0.9\ngem_estimator: grpo\ngem_estimator_options: {{ddof: 1}}\n"
        f"gem_traces: {tmp_path / 'traces'}\n"
    )
    _grpo.main([*words(tmp_path), "--config", str(config)])
    assert len(list(read_traces(tmp_path / "traces/train.jsonl"))) == 8


def score(completions: list[str], **_: Any) -> list[float]:
    """A user's reward function, which the command imports."""
    return [float(len(text)) for text in completions]


def test_a_game_beside_a_dataset_with_reward_functions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    rows = [json.dumps({"prompt": f"<|user|>What is {n}?<|end|><|assistant|>"}) for n in range(8)]
    (tmp_path / "data/train.jsonl").write_text("\n".join(rows))
    _grpo.main(
        words(
            tmp_path, "--dataset_name", str(tmp_path / "data"), "--reward_funcs", f"{__name__}.score",
            "--gem_env", harness.GAME, "--gem_traces", str(tmp_path / "traces"), "--shuffle_dataset", "false",
        )
    )  # fmt: skip
    assert len(list(read_traces(tmp_path / "traces/train.jsonl"))) == 4  # of the eight rows of the step
    logged = capsys.readouterr().out
    for source in ("data", harness.GAME):
        assert f"'gem/played/{source}': '4'" in logged


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--gem_env", harness.GAME, "--gem_gamma", "2"], "--gem_gamma=2.0: expected a number from 0 to 1"),
        (["--gem_env", harness.GAME, "--min_p", "0.1"], "min_p=0.1: has no effect on the sampler"),
        (
            ["--gem_env", harness.GAME, "--dataset_name", "x", "--gem_num_tasks", "9"],
            "--gem_num_tasks: beside a dataset, the weight of an environment",
        ),
        (["--gem_env", "game:Gues-v0"], "unknown environment 'game:Gues-v0'"),
        (["--gem_env", harness.GAME, "--gem_modules", "no_such_module"], "--gem_modules no_such_module: "),
    ],
)
def test_a_mistake_is_reported_in_one_line(
    more: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        _grpo.main(words(tmp_path, *more))
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("gem_trl: ")]
    assert message in line


@pytest.mark.parametrize("given", [PLAIN, {**FULL, "minibatches": 4}], ids=["plain", "full"])
def test_trls_parser_reads_the_recipe(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recipe(given)
    notes = write_recipe(made, tmp_path)
    command = started_by(tmp_path / "run.sh")
    assert command[:2] == ["accelerate", "launch"]
    flags = command[command.index("gem_trl.grpo") + 1 :]
    del flags[flags.index("--use_vllm") : flags.index("--use_vllm") + 2]  # would import vLLM
    parsers = (GRPOScriptArguments, trl.GRPOConfig, trl.ModelConfig, trl.DatasetMixtureConfig, _grpo.flags())
    monkeypatch.setenv("WORLD_SIZE", "1")
    _, args, model, _, gem = trl.TrlParser(parsers).parse_args_and_config(args=[*flags, "--bf16", "false"])
    gpus = made.gpus
    assert model.model_name_or_path == "Qwen/Qwen3-1.7B"
    assert gem.gem_env == list(made.env)
    assert (
        args.per_device_train_batch_size * args.gradient_accumulation_steps * gpus == made.episodes_per_update
    )
    assert args.per_device_train_batch_size * args.steps_per_generation * gpus == made.episodes_per_step
    assert args.max_steps == made.steps * made.minibatches
    assert (args.learning_rate, args.weight_decay, args.max_grad_norm, args.beta) == (2e-6, 0.0, 1.0, 0.0)
    assert (args.adam_beta1, args.adam_beta2, args.num_generations, args.seed) == (0.9, 0.999, 2, 7)
    assert (args.temperature, args.shuffle_dataset) == (made.temperature, False)
    assert (args.chat_template_kwargs or {}) == made.template_kwargs
    assert (gem.gem_estimator, gem.gem_gamma, gem.gem_max_turns) == ("rebn", 0.9, 12)
    assert json.loads(gem.gem_estimator_options) == made.changed_estimator_options
    assert (gem.gem_max_total_tokens, gem.gem_max_tokens_per_turn, gem.gem_num_tasks) == (
        4096,
        320,
        made.total_tasks,
    )
    assert (gem.gem_system_prompt, gem.gem_wrappers) == (made.system_prompt, made.wrappers)
    assert len(notes) == int(made.minibatches > 1)
