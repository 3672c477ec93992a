"""Files and environments in one dataset: every row of every file is there, as verl's own dataset reads it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gem_verl._rows import task_of
from gem_verl.dataset import GemDataset
from omegaconf import OmegaConf
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.trainer.ppo.utils import create_rl_dataset, create_rl_sampler
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.utils.tensordict_utils import get_tensordict

from gem_core._tasks import TRAIN_SEEDS
from gem_core.errors import ConfigError, UnknownEnv
from gem_core.tasks import EVAL_SEEDS
from gem_lab import main
from tests.trainers.verl.configs import verl_config
from tests.trainers.verl.mixes import WRITERS, question, write

GUESS, MASTERMIND = "game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy"
GEM = ("data.custom_cls.path=pkg://gem_verl.dataset", "data.custom_cls.name=GemDataset")


def dataset_of(files: list[str], *overrides: str, val: bool = False, tokenizer: Any = None) -> Any:
    """Build a dataset like verl's trainer."""
    data = verl_config(*GEM, *overrides).data
    data.train_files, data.val_files = files, [*files, GUESS] if val else [GUESS]
    if val:
        data.val_files, data.train_files = files, [GUESS]
    paths = data.val_files if val else data.train_files
    limit = data.val_max_samples if val else data.train_max_samples
    return create_rl_dataset(paths, data, tokenizer, None, not val, max_samples=limit)


def alone(path: str, *overrides: str, tokenizer: Any = None) -> Any:
    """Return verl's own dataset of a file."""
    data = verl_config(*overrides).data
    return create_rl_dataset([path], data, tokenizer, None, True, max_samples=data.train_max_samples)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_alone_is_verls_own_dataset(tmp_path: Path, writer: str) -> None:
    path = write(writer, [question(n) for n in range(5)], tmp_path)
    ours, own = dataset_of([path]), alone(path)
    assert isinstance(ours, RLHFDataset)
    for index in range(5):
        row, wanted = ours[index], own[index]
        assert row.pop("dummy_tensor").tolist() == wanted.pop("dummy_tensor").tolist() == [0]
        assert row == wanted


def test_every_row_of_every_file_is_kept_beside_a_game(tmp_path: Path) -> None:
    """The files differ in what wrote them, in columns, in nested columns, and in how they lack an agent."""
    rows = {
        "pandas": [question(n, agent_name=None) for n in range(4)],
        "datasets": [question(n, agent_name="single_turn_agent" if n else "") for n in range(4, 8)],
        "pyarrow": [question(n, difficulty=3.5) | {"extra_info": {"tools_kwargs": {"a": n}}} for n in (8, 9)],
        "json": [question(10) | {"reward_model": {"ground_truth": "20", "weight": 2}}],
    }
    assert (
        main(
            ["export", "--to", "verl", "--env", MASTERMIND, "--num", "3", "--out", f"{tmp_path}/game.parquet"]
        )
        == 0
    )
    files = [write(writer, of, tmp_path) for writer, of in rows.items()]
    mixed = dataset_of([files[0], GUESS, *files[1:], f"{tmp_path}/game.parquet"])
    batch = collate_fn([*mixed])
    table = get_tensordict({key: value for key, value in batch.items() if key != "dummy_tensor"})
    assert len(table) == len(mixed) == 2 * (4 + 4 + 2 + 1 + 3)
    sources = Counter(batch["data_source"])
    assert sources == {"openai/gsm8k": 11, MASTERMIND: 3, GUESS: 14}
    texts = [row["raw_prompt"][0]["content"] for row in mixed if row["data_source"] == "openai/gsm8k"]
    assert sorted(texts) == sorted(f"What is {n} + {n}?" for n in range(11))
    by_text = {row["raw_prompt"][0]["content"]: row for row in mixed}
    assert by_text["What is 8 + 8?"]["tools_kwargs"] == {"a": 8}
    assert by_text["What is 8 + 8?"]["difficulty"] == 3.5
    assert by_text["What is 3 + 3?"]["difficulty"] is None
    assert by_text["What is 10 + 10?"]["reward_model"] == {"ground_truth": "20", "weight": 2}
    assert by_text["What is 5 + 5?"]["agent_name"] == "single_turn_agent"
    for row in mixed:
        if row["data_source"] in (MASTERMIND, GUESS):
            assert (row["agent_name"], task_of(row)["env_id"]) == ("gem", row["data_source"])
            assert task_of(row)["seed"] in TRAIN_SEEDS


@pytest.mark.parametrize(
    ("envs", "tasks"),
    [
        ([f"{GUESS}=0.2"], 10),
        ([GUESS], 50),
        ([f"{GUESS}=2"], 100),
        ([f"{GUESS}=0.1", f"{MASTERMIND}=0.3"], 20),
        ([f"{GUESS}=0.0001"], 1),
        ([f"{GUESS}=0.001", f"{MASTERMIND}=0.001"], 2),
        ([f"{GUESS}=0.1", f"{MASTERMIND}=0.1", f"{GUESS}=0.2"], 20),
        ([], 0),
    ],
)
def test_weights_are_relative_to_the_rows_of_files(tmp_path: Path, envs: list[str], tasks: int) -> None:
    path = write("pandas", [question(n) for n in range(50)], tmp_path)
    mixed = dataset_of([path, *envs])
    assert (len(mixed), len(mixed.tasks)) == (50 + tasks, tasks)
    wanted: Counter[str] = Counter()
    for env in mixed.envs:
        wanted[env.label] += max(round(50 * env.weight), 1)
    assert Counter(row["data_source"] for row in mixed) == {"openai/gsm8k": 50, **wanted}
    assert len({(task["env_id"], task["seed"]) for task in mixed.tasks}) == tasks


def test_games_are_spread_among_the_rows_which_keep_their_order(tmp_path: Path) -> None:
    path = write("pandas", [question(n) for n in range(30)], tmp_path)
    mixed = dataset_of([path, f"{GUESS}=0.5"])
    questions = [row["index"] for row in mixed if row["data_source"] != GUESS]
    assert questions == [*range(30)]
    for start in range(0, 45, 15):
        assert Counter(mixed[n]["data_source"] for n in range(start, start + 15))[GUESS] == 5
    half = dataset_of([path, GUESS])
    assert [half[n]["data_source"] == GUESS for n in range(6)] == [False, True] * 3


def test_validation_has_all_rows_and_the_same_tasks(tmp_path: Path) -> None:
    path = write("datasets", [question(n) for n in range(20)], tmp_path)
    val = dataset_of([path, GUESS], val=True)
    assert len(val) == 20 + 256
    assert [task["seed"] for task in val.tasks] == [*EVAL_SEEDS[:256]]
    few = dataset_of([path, GUESS], "data.val_max_samples=4", val=True)
    assert Counter(row["data_source"] for row in few) == {"openai/gsm8k": 4, GUESS: 4}


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_limit_keeps_the_rows_that_verl_keeps(tmp_path: Path, shuffle: bool) -> None:
    words = ("data.train_max_samples=7", f"data.shuffle={shuffle}", "data.seed=3")
    path = write("pyarrow", [question(n) for n in range(20)], tmp_path)
    parts = [write("pyarrow", [question(n) for n in numbers], tmp_path, f"part{numbers[0]}")
             for numbers in (range(8), range(8, 20))]  # fmt: skip
    wanted = {row["index"] for row in alone(path, *words)}
    assert len(wanted) == 7
    for files in ([path], parts, [*parts, f"{GUESS}=1"]):
        mixed = dataset_of(files, *words)
        assert {row["index"] for row in mixed if row["data_source"] != GUESS} == wanted
        assert len(mixed.tasks) == (7 if len(files) > 2 else 0)


def test_options_of_verls_dataset_apply_to_files(tmp_path: Path, tokenizer: Any) -> None:
    """The long prompt is left out, and prompts are read from another column."""
    rows = [question(n) for n in range(4)]
    rows[2]["prompt"] = [{"role": "user", "content": "word " * 300}]
    for row in rows:
        row["messages"] = row.pop("prompt")
    words = ("data.prompt_key=messages", "data.filter_overlong_prompts=True", "data.max_prompt_length=64")
    paths = [write(writer, rows, tmp_path) for writer in ("pandas", "pyarrow")]
    own = [row["raw_prompt"] for row in alone(paths[0], *words, tokenizer=tokenizer)]
    assert len(own) == 3
    for files in (paths[:1], paths):
        mixed = dataset_of([*files, f"{GUESS}=1"], *words, tokenizer=tokenizer)
        assert [row["raw_prompt"] for row in mixed if row["data_source"] != GUESS] == own * len(files)
    with pytest.raises(ConfigError, match=r"pandas.parquet: no row is left; .*max_prompt_length=2"):
        dataset_of([paths[0], GUESS], *words[:2], "data.max_prompt_length=2", tokenizer=tokenizer)


def test_images_of_a_file_stay_out_of_the_batch_of_another(tmp_path: Path) -> None:
    with_images = write("pyarrow", [question(n, images=[]) for n in range(2)], tmp_path)
    without = write("pandas", [question(n) for n in range(2)], tmp_path)
    batch = collate_fn([*dataset_of([with_images, without, GUESS])])
    assert "images" not in batch
    assert {len(values) for values in batch.values()} == {8}


def test_a_run_continues_where_its_checkpoint_was(tmp_path: Path) -> None:
    path = write("pandas", [question(n) for n in range(12)], tmp_path)

    def loader(mixed: Any) -> Any:
        sampler = create_rl_sampler(verl_config("data.shuffle=True", "data.seed=1").data, mixed)
        return StatefulDataLoader(mixed, batch_size=4, sampler=sampler, collate_fn=collate_fn, drop_last=True)

    def seen(batch: Any) -> Any:
        return [*zip(batch["data_source"], batch["index"], strict=True)]

    first = loader(dataset_of([path, f"{GUESS}=1"]))
    batches = iter(first)
    seen(next(batches))
    state = first.state_dict()
    rest = [seen(batch) for batch in batches]
    assert len(rest) == 5
    again = loader(dataset_of([path, f"{GUESS}=1"]))
    again.load_state_dict(state)
    assert [seen(batch) for batch in again] == rest
    everything = [pair for batch in loader(dataset_of([path, f"{GUESS}=1"])) for pair in seen(batch)]
    assert len(set(everything)) == 24


def test_a_file_may_be_listed_twice(tmp_path: Path) -> None:
    path = write("pandas", [question(n) for n in range(3)], tmp_path)
    assert Counter(row["index"] for row in dataset_of([path, path])) == {0: 2, 1: 2, 2: 2}


@pytest.mark.parametrize(
    ("entry", "error", "message"),
    [
        ("none.parquet", FileNotFoundError, "none.parquet"),
        ("{}/here.parquet=0.5", ConfigError, r"here.parquet=0.5': a file has no weight"),
        ("{}/here.csv", ConfigError, r"here.csv': verl reads files that end with .parquet, .json, .jsonl"),
        ("{}", ConfigError, "verl reads files that end with"),
        ("{}/empty.parquet", ConfigError, r"empty.parquet: verl's dataset cannot read it, or"),
        ("{}/empty.jsonl", ConfigError, r"empty.jsonl: verl's dataset cannot read it, or"),
        ("{}/here.json", ConfigError, r"here.json: verl's dataset cannot read it, or.*JSON"),
        ("{}/*.json", ConfigError, r"\*.json: verl's dataset cannot read it, or"),
        (
            "openai/gsm8k",
            UnknownEnv,
            "openai/gsm8k.* Files, one in each entry of the list, end with .parquet",
        ),
        ("gsm8k/train.parqet", UnknownEnv, "gsm8k/train.parqet"),
        ("game:GuesTheNumber-v0", UnknownEnv, "GuessTheNumber"),
    ],
)
def test_an_entry_that_is_neither_a_file_nor_an_environment_is_named(
    tmp_path: Path, entry: str, error: type[Exception], message: str
) -> None:
    write("pandas", [question(1)], tmp_path, "here")
    (tmp_path / "here.csv").write_text("a,b\n")
    (tmp_path / "here.json").write_text('{"prompt": \n')
    (tmp_path / "empty.jsonl").touch()
    write("pyarrow", [], tmp_path, "empty")
    with pytest.raises(error, match=message):
        dataset_of([f"{tmp_path}/here.parquet", entry.format(tmp_path), GUESS])


@pytest.mark.parametrize(
    "files", [None, [], [["a.parquet"]], ["a.parquet", None], ["a.parquet", 7], {"a": 1}]
)
def test_what_is_no_list_of_files_and_environments_is_named(files: Any) -> None:
    with pytest.raises(ConfigError, match=r"train_files or data.val_files is .*: expected a list of files"):
        GemDataset(OmegaConf.create({"files": files}).files, None, verl_config().data)


def test_an_environment_that_gets_no_task_is_named() -> None:
    with pytest.raises(
        ConfigError, match=rf"{MASTERMIND}: none of the 8 tasks plays it; raise its weight or"
    ):
        dataset_of([GUESS, f"{MASTERMIND}=0.001"], "data.train_max_samples=8")


def test_a_file_without_prompts_is_named(tmp_path: Path) -> None:
    path = write("pandas", [{"question": "2 + 2?"}], tmp_path)
    with pytest.raises(
        ConfigError, match=r"pandas.parquet: there is no column data.prompt_key=prompt; .*question"
    ):
        dataset_of([path, GUESS])


def test_rows_of_a_source_are_plain_values(tmp_path: Path) -> None:
    """A worker in another process gets no view of a table."""
    path = write("pandas", [question(n) for n in range(3)], tmp_path)
    row = GemDataset([path, GUESS], None, verl_config().data)[0]
    assert isinstance(row["reward_model"], dict)
    assert not any(isinstance(value, np.ndarray) for value in row.values())
