"""Rows made on the fly and rows in parquet name the same tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gem_verl._options import check_data
from gem_verl._rows import task_of, verl_row
from verl.trainer.ppo.utils import create_rl_dataset

from gem_core._tasks import TRAIN_SEEDS, count_items
from gem_core.errors import ConfigError, GemError, UnknownEnv
from gem_core.tasks import EVAL_SEEDS, make_tasks
from gem_core.trainers._tasks import TRAIN_TASKS
from gem_lab import main
from tests.trainers.items import KINDS, check_epochs, check_eval_tasks, source_of
from tests.trainers.verl.configs import verl_config

GUESS, MASTERMIND = "game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy"
GEM = ("data.custom_cls.path=pkg://gem_verl.dataset", "data.custom_cls.name=GemDataset")


def datasets(train: str, val: str, *overrides: str) -> tuple[Any, Any]:
    """Build both datasets like verl's trainer."""
    data = verl_config(*GEM, f"data.train_files={train}", f"data.val_files={val}", *overrides).data
    return (
        create_rl_dataset(data.train_files, data, None, None, True, max_samples=data.train_max_samples),
        create_rl_dataset(data.val_files, data, None, None, False, max_samples=data.val_max_samples),
    )


def test_train_and_validation_never_share_a_seed() -> None:
    files = f"['{GUESS}','{MASTERMIND}=3']"
    train, val = datasets(files, files, "data.train_max_samples=200", "data.val_max_samples=10")
    assert len(train) == 200
    assert {task_of(train[n])["seed"] in TRAIN_SEEDS for n in range(200)} == {True}
    assert [task_of(val[n])["seed"] for n in range(10)] == list(EVAL_SEEDS[:5]) * 2
    assert [val[n]["data_source"] for n in (0, 5)] == [GUESS, MASTERMIND]
    masterminds = sum(train[n]["data_source"] == MASTERMIND for n in range(200))
    assert 120 < masterminds < 180
    again, _ = datasets(files, files, "data.train_max_samples=200")
    assert again[7]["extra_info"] == train[7]["extra_info"]
    other, _ = datasets(files, files, "data.seed=5")
    assert other[7]["extra_info"]["seed"] != train[7]["extra_info"]["seed"]


def test_arguments_of_an_environment_travel() -> None:
    source = "game:GuessTheNumber-v0(max_number=50)"
    train, _ = datasets(f"['{source}']", f"['{GUESS}']")
    assert task_of(train[0])["env_kwargs"] == {"max_number": 50}
    assert train[0]["agent_name"] == "gem"


def test_wrong_lists_fail_when_read() -> None:
    with pytest.raises(UnknownEnv, match="GuessTheNumber"):
        datasets("['game:GuesTheNumber-v0']", f"['{GUESS}']")
    with pytest.raises(ConfigError, match="max_numbr"):
        datasets("['game:GuessTheNumber-v0(max_numbr=5)']", f"['{GUESS}']")
    with pytest.raises(ConfigError, match="write them as lists"):
        datasets(GUESS, GUESS)


def test_exported_rows_are_read_by_verls_own_dataset(tmp_path: Path, tokenizer: Any) -> None:
    path = tmp_path / "rows.parquet"
    sources = ["--env", f"{GUESS}=2", "--env", "game:GuessTheNumber-v0(max_number=50)"]
    assert main(["export", "--to", "verl", *sources, "--num", "20", "--out", str(path)]) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["rows.parquet"]
    data = verl_config(f"data.train_files={path}", "data.filter_overlong_prompts=True").data
    rows = create_rl_dataset(data.train_files, data, tokenizer, None)
    assert len(rows) == 20
    train, _ = datasets(f"['{GUESS}=2','game:GuessTheNumber-v0(max_number=50)']", f"['{GUESS}']")
    for index in range(20):
        assert task_of(rows[index]) == task_of(train[index])
        assert rows[index]["agent_name"] == "gem"


def test_a_row_of_something_else_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"extra_info of a dataset row: env_id is missing"):
        task_of({"extra_info": {"index": 3}})


def test_rows_are_checked_once_and_rows_of_other_loops_never() -> None:
    def row(agent: str, env_id: str) -> dict[str, Any]:
        return {"agent_name": agent, "extra_info": {"env_id": env_id, "env_kwargs": "{}", "seed": 1}}

    config = verl_config()
    check_data(config, [row("gem", GUESS), row("tool_agent", "game:Nothing-v0")])
    check_data(config, [{"extra_info": {}}])
    with pytest.raises(ConfigError, match=r"extra_info of a dataset row: env_id is missing"):
        check_data(
            verl_config("actor_rollout_ref.rollout.agent.default_agent_loop=gem"), [{"extra_info": {}}]
        )
    with pytest.raises(UnknownEnv, match="GuessTheNumber"):
        check_data(config, [row("gem", GUESS), row("gem", "game:GuesTheNumber-v0")])
    with pytest.raises(GemError, match="concat"):
        check_data(verl_config("+gem.wrappers=concta"), [row("gem", GUESS)])


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_plays_every_item_once(tmp_path: Path, kind: str) -> None:
    """Check two epochs, shuffled by verl's sampler."""
    from verl.trainer.ppo.utils import create_rl_sampler

    source = source_of(kind, tmp_path)
    files = [source.label]
    data = verl_config(*GEM, "data.shuffle=True").data
    data.train_files, data.val_files = files, list(files)
    train = create_rl_dataset(data.train_files, data, None, None, True, max_samples=data.train_max_samples)
    val = create_rl_dataset(data.val_files, data, None, None, False, max_samples=data.val_max_samples)
    sampler = create_rl_sampler(data, train)
    check_epochs(source, [task_of(train[number]) for _ in range(2) for number in sampler])
    check_eval_tasks(source, [task_of(val[index]) for index in range(len(val))])


@pytest.mark.parametrize("kind", KINDS)
def test_exported_epochs_are_read_by_verl(tmp_path: Path, tokenizer: Any, kind: str) -> None:
    source, path = source_of(kind, tmp_path), tmp_path / "train.parquet"
    assert main(["export", "--to", "verl", "--env", source.label, "--out", str(path)]) == 0
    data = verl_config(f"data.train_files={path}").data
    rows = create_rl_dataset(data.train_files, data, tokenizer, None)
    check_epochs(source, [task_of(rows[index]) for index in range(len(rows))])


def test_a_mix_is_as_long_as_its_slowest_source_or_longer(tmp_path: Path) -> None:
    source = source_of("file", tmp_path)
    assert len(datasets(f"['{GUESS}']", f"['{MASTERMIND}']")[0]) == TRAIN_TASKS
    mixed, _ = datasets(f"['{GUESS}','math:Arithmetic-v0(size=9000)']", f"['{MASTERMIND}']")
    assert len(mixed) == 18_000
    pure, _ = datasets("['math:Arithmetic-v0(size=30)','math:Arithmetic-v0-easy(size=50)=1']", f"['{GUESS}']")
    assert len(pure) == 100
    assert count_items(source, "train") < 50


def test_a_benchmark_is_not_trained_on_unless_requested(tmp_path: Path) -> None:
    path = source_of("file", tmp_path).env_kwargs["dataset_name"]
    bench = f"\"eval:AIME24(dataset_name='{path}', symbolic=False)\""
    with pytest.raises(ConfigError, match=r"use .*eval_only=False"):
        datasets(f"[{bench}]", f"['{GUESS}']")
    named = bench.replace("symbolic", "eval_only=False, symbolic")
    train, val = datasets(f"[{named}]", f"[{bench}]")
    assert len(train) == len(val) == 50


def test_rows_of_evaluation_items_are_not_trained_on(tmp_path: Path) -> None:
    source = source_of("service", tmp_path)
    rows = [verl_row(task) for task in make_tasks([source], 4, split="eval")]
    check_data(verl_config(), rows)
    with pytest.raises(ConfigError, match="is for evaluation only"):
        check_data(verl_config(), rows, for_training=True)
