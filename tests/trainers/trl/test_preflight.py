"""`gem-core doctor --trainer trl` checks the flags of TRL's script without a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gem_lab import main
from tests.trainers.preflight import SILENT_SERVER, check_mistakes, own_words, problem_of

ACCEPTED = [
    "--model_name_or_path",
    "org/no-such-model",
    "--use_cpu",
    "true",
    "--bf16",
    "false",
    "--num_generations",
    "4",
    "--per_device_train_batch_size",
    "4",
    "--gem_env",
    "game:GuessTheNumber-v0-easy",
    "--gem_num_tasks",
    "8",
    "--gem_gamma",
    "0.9",
]
EVAL = ("--eval_strategy", "steps", "--eval_steps", "1")
MISTAKES = {
    ("--gem_env", "game:GuesTheNumber-v0"): "GuessTheNumber",
    ("--gem_env", "rg:leg_counting"): "pip install 'gem-core[rg]'",
    ("--gem_gama", "0.9"): "--gem_gama",
    ("--gem_gamma", "1.2"): "gamma=1.2: expected a number from 0 to 1",
    ("--gem_estimator", "rebm"): "rebn",
    ("--gem_context", "rebuild", "--loss_type", "bnpo"): "use dapo, cispo, grpo, or dr_grpo",
    ("--scale_rewards", "batch"): "use the options of the estimator",
    ("--num_generations", "3"): "3",  # TRL's own check
    ("--gem_max_turn", "8"): "--gem_max_turn",  # an abbreviation may be another flag in another version
    ("--gem_e", "game:Mastermind-v0"): "--gem_e",
    ("--learning_rat", "1e-6"): "--learning_rat",
    ("--gem_eval_env", "game:Mastermind-v0"): "TRL evaluates nothing without --eval_strategy steps or epoch",
    ("--gem_num_eval_tasks", "3"): "TRL evaluates nothing",
    ("--gem_estimator_options", '{"ddof": 2}'): "ddof=2: expected 0 or 1",
    ("--gem_num_task=8",): "--gem_num_task",
    ("--gem_num_tasks", "0"): "--gem_num_tasks=0: expected a whole number of at least 1",
    ("--gem_num_eval_tasks", "-3", *EVAL): "--gem_num_eval_tasks=-3: expected a whole number",
    ("--dataset_config", "main"): "--dataset_config=main: belongs to a dataset, but --gem_env alone",
    ("--dataset_streaming", "true"): "--dataset_streaming=True: belongs to a dataset",
    ("--num_gen", "2"): "--num_gen",
}


def test_mistakes_are_named_before_a_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_mistakes("trl", [*ACCEPTED, "--output_dir", str(tmp_path)], MISTAKES, capsys)


def plan(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines of the plan that the doctor prints."""
    capsys.readouterr()
    assert main(["doctor", "--trainer", "trl", "--", *words]) == 0
    out = capsys.readouterr().out
    lines = [line.split(maxsplit=1) for line in out.splitlines() if line.strip()]
    return [line[1] for line in lines if line[0] == "plan"]


def test_the_plan_says_what_plays_and_rewards_each_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    words = [
        *ACCEPTED,
        "--output_dir",
        str(tmp_path),
        "--gem_max_turns",
        "12",
        "--gem_max_tokens_per_turn",
        "320",
    ]
    assert plan([*words, "--top_p", "0.9"], capsys) == [
        "train: 8 rows of game:GuessTheNumber-v0-easy, played by gem_trl, rewarded by the environment",
        "estimator: rebn(gamma=0.9), statistics of all turns collected for a step",
        "tokens: an episode has 12 turns of at most 320 sampled tokens, 3,840 in all, but it is cut at "
        "max_completion_length=512 tokens, observations included",
        "note: top_p=0.9: responses come from another distribution than the policy's, which the loss uses",
    ]
    data = tmp_path / "data"
    data.mkdir()
    rows = [json.dumps({"prompt": f"What is {n}?", "solution": str(n)}) for n in range(40)]
    for split in ("train", "test"):
        (data / f"{split}.jsonl").write_text("\n".join(rows))
    own = [word for word in words if word not in ("--gem_num_tasks", "8")]
    own += ["--dataset_name", str(data), "--reward_funcs", "think_format_reward", "--eval_strategy", "steps"]
    own[own.index("--gem_env") + 1] = "game:GuessTheNumber-v0-easy=0.25"
    assert plan([*own, "--eval_steps", "1", "--gem_eval_env", "game:GuessTheNumber-v0-easy=0.1"], capsys) == [
        "train: 40 rows of data, played by gem_trl in one turn, rewarded by think_format_reward",
        "train: 10 rows of game:GuessTheNumber-v0-easy, played by gem_trl, rewarded by the environment",
        "eval: 40 rows of data, played by gem_trl in one turn, rewarded by think_format_reward",
        "eval: 4 rows of game:GuessTheNumber-v0-easy, played by gem_trl, rewarded by the environment",
        "estimator: rebn(gamma=0.9), statistics of all turns collected for a step",
        "tokens: an episode has 12 turns of at most 320 sampled tokens, 3,840 in all, but it is cut at "
        "max_completion_length=512 tokens, observations included",
        "tokens: an answer to a prompt of your own has at most max_completion_length=512 tokens",
    ]
    (tmp_path / "mixture.yaml").write_text(f"datasets:\n  - path: {data}\ntest_split_size: 0.25\n")
    number = own.index("--dataset_name")
    mixture = [*own[:number], *own[number + 2 :], "--config", str(tmp_path / "mixture.yaml")]
    assert [line.split(",")[0] for line in plan(mixture, capsys)][:4] == [
        "train: 30 rows of data",
        "train: 8 rows of game:GuessTheNumber-v0-easy",
        "eval: 10 rows of data",
        "eval: 2 rows of game:GuessTheNumber-v0-easy",
    ]
    for split in ("train", "test"):
        problem = problem_of("trl", [*own, f"--dataset_{split}_split", "dev"], capsys)
        assert f"--dataset_{split}_split=dev: the dataset has no such split, only train, test" in str(problem)
    problem = problem_of("trl", [*own, "--dataset_test_split", "train"], capsys)
    assert "--dataset_test_split=train: training has this split as well" in str(problem)
    number = own.index("--gem_env")
    alone = plan([*own[:number], *own[number + 2 :], "--gem_estimator", "grpo"], capsys)
    assert "train: 40 rows of train_dataset, played by TRL, rewarded by think_format_reward" in alone
    assert not any("tokens:" in line for line in alone)
    assert "note: max_turns, max_tokens_per_turn: no effect, because TRL plays all rows" in "\n".join(alone)
    problem = problem_of("trl", [*own, "--gem_num_tasks", "8"], capsys)
    assert "--gem_num_tasks: beside a dataset, the weight of an environment" in str(problem)
    problem = problem_of("trl", [*ACCEPTED[:-6], "--output_dir", str(tmp_path)], capsys)
    assert "there are no tasks: name environments with --gem_env, or a --dataset_name" in str(problem)


def test_a_custom_environment_is_accepted(own_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert problem_of("trl", [*ACCEPTED, "--output_dir", "out", *own_words("trl", own_id)], capsys) is None
    wrong = own_words("trl", own_id.replace("Cold", "Gold"))
    assert "Gold" in str(problem_of("trl", [*ACCEPTED, "--output_dir", "out", *wrong], capsys))


def test_a_server_must_answer(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*ACCEPTED, "--output_dir", "out", *own_words("trl", SILENT_SERVER)]
    assert "Connection refused" in str(problem_of("trl", words, capsys))
