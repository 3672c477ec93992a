"""OpenRLHF's own dataset class reads exported rows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gem_openrlhf._labels import task_of, write
from openrlhf.datasets import PromptDataset
from openrlhf.datasets.utils import blending_datasets

from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice, make_tasks
from gem_lab import main
from tests.trainers.conftest import GAMES
from tests.trainers.items import KINDS, check_epochs, check_eval_tasks, source_of
from tests.trainers.openrlhf.args import AGENT, parse


def test_exported_rows_are_read_by_openrlhfs_own_dataset(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    sources = [f"{GAMES[0]}=2", "game:GuessTheNumber-v0(max_number=50)"]
    words = [word for source in sources for word in ("--env", source)]
    assert main(["export", "--to", "openrlhf", *words, "--num", "20", "--out", str(path)]) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["rows.jsonl"]
    args = parse("--data.prompt_dataset", str(path), *AGENT)
    strategy = SimpleNamespace(args=args, print=print, is_rank_0=lambda: True)
    rows = PromptDataset(blending_datasets(str(path), strategy=strategy), None, strategy)
    wanted = list(make_tasks([EnvChoice.parse(source) for source in sources], 20))
    assert [task_of(rows[index][2]) for index in range(20)] == wanted
    assert {rows[index][0] for index in range(20)} == {GAMES[0], "game:GuessTheNumber-v0(max_number=50)"}
    assert len({rows[index][1] for index in range(20)}) == 20  # evaluation finds a row by its input
    _, prompts, labels, images = rows.collate_fn([rows[0], rows[1]])
    assert (len(prompts), images) == (2, [None, None])
    assert task_of(labels[0])["seed"] != task_of(labels[1])["seed"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_plays_every_item_once(tmp_path: Path, kind: str) -> None:
    source = source_of(kind, tmp_path)

    def read(*words: str) -> list[Any]:
        path = tmp_path / "tasks.jsonl"
        assert main(["export", "--to", "openrlhf", "--env", source.label, "--out", str(path), *words]) == 0
        args = parse("--data.prompt_dataset" if "eval" not in words else "--eval.dataset", str(path), *AGENT)
        strategy = SimpleNamespace(args=args, print=print, is_rank_0=lambda: True)
        rows = PromptDataset(blending_datasets(str(path), strategy=strategy), None, strategy)
        return [task_of(rows[index][2]) for index in range(len(rows))]

    check_epochs(source, read())
    check_eval_tasks(source, read("--split", "eval"))


def test_rows_of_evaluation_items_are_not_trained_on(tmp_path: Path) -> None:
    source, path = source_of("service", tmp_path), tmp_path / "val.jsonl"
    write(make_tasks([source], 4, split="eval"), path)
    words = (*AGENT, "--data.prompt_dataset", str(path))
    with pytest.raises(
        ConfigError, match=r"val.jsonl, line 1: item \d+ of service:Shop-v0 is for evaluation only"
    ):
        parse(*words)
    write(make_tasks([source], 4), tmp_path / "train.jsonl")
    assert parse(*words[:-1], str(tmp_path / "train.jsonl"), "--eval.dataset", str(path))
