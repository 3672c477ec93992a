from __future__ import annotations

import itertools
import json
import threading

import pytest

from gem_core.errors import ConfigError, DataError
from gem_envs.data import open_rows
from gem_envs.data._hub import choose_files

ROWS = [{"problem": f"{n} + 1 = ?", "answer": str(n + 1)} for n in range(250)]


def write(path, rows=ROWS):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        arrow = pytest.importorskip("pyarrow", reason="needs the extra 'data'")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.Table.from_pylist(rows), path, row_group_size=40)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".csv":
        lines = ['"' + '","'.join(v.replace('"', '""') for v in row.values()) + '"' for row in rows]
        path.write_text(",".join(rows[0]) + "\n" + "\n".join(lines) + "\n")
    else:
        path.write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    return path


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "ndjson", "json", "csv"])
def test_every_kind_of_file(tmp_path, suffix):
    rows = open_rows(str(write(tmp_path / f"data.{suffix}")))
    assert len(rows) == 250
    assert rows.columns == ("problem", "answer")
    assert [rows[i] for i in (249, 0, 40, 39, 120)] == [ROWS[i] for i in (249, 0, 40, 39, 120)]
    rows[0]["problem"] = "changed"
    assert rows[0] == ROWS[0]


@pytest.mark.parametrize(
    "text", ["\n{}\n{}\n", "\n\n  \n{}\n{}", "{}\n \t\n\n{}", "\r\n{}\r\n\r\n{}\r\n", "{}\n{}\n\n\n"]
)
def test_an_empty_line_is_no_row(tmp_path, text):
    path = tmp_path / "data.jsonl"
    path.write_bytes(text.format(*map(json.dumps, ROWS[:2])).encode())
    rows = open_rows(str(path))
    assert (len(rows), rows.columns) == (2, ("problem", "answer"))
    assert [rows[0], rows[1]] == ROWS[:2]


def test_a_process_opens_a_file_once_and_again_after_a_change(tmp_path):
    path = write(tmp_path / "data.jsonl")
    opened = []
    threads = [threading.Thread(target=lambda: opened.append(open_rows(str(path)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(rows) for rows in opened}) == 1
    path.write_text('{"a": 1}\n')
    assert len(open_rows(str(path))) == 1


def test_threads_read_one_parquet_file(tmp_path):
    rows = open_rows(str(write(tmp_path / "data.parquet")))
    wrong = []

    def read(start):
        wrong.extend(i for i in range(start, 250, 7) if rows[i] != ROWS[i])

    threads = [threading.Thread(target=read, args=(start,)) for start in range(7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_folders_have_splits(tmp_path):
    write(tmp_path / "data/train-00000-of-00002.jsonl", ROWS[:100])
    write(tmp_path / "data/train-00001-of-00002.jsonl", ROWS[100:])
    write(tmp_path / "data/test-00000-of-00001.jsonl", ROWS[:3])
    assert [len(open_rows(str(tmp_path), split)) for split in ("train", "test")] == [250, 3]
    assert open_rows(str(tmp_path), "train")[100] == ROWS[100]
    with pytest.raises(ConfigError, match=r"unknown split 'dev' of .*\. Available: test, train"):
        open_rows(str(tmp_path), "dev")
    with pytest.raises(ConfigError, match=r"several splits; set split= to one of test, train"):
        open_rows(str(tmp_path))


def test_rows_of_many_files_are_in_order(tmp_path):
    ends = [0, 3, 4, 6, 7, 9]
    for index, (start, end) in enumerate(itertools.pairwise(ends)):
        write(tmp_path / f"train-{index:05}-of-00005.jsonl", ROWS[start:end])
    rows = open_rows(str(tmp_path), "train")
    assert [rows[n] for n in range(len(rows))] == ROWS[:9]


@pytest.mark.parametrize(
    ("files", "split", "subset", "chosen"),
    [
        (["data/train-00000-of-00001.parquet"], None, None, [0]),
        (["data/math-00000-of-00001.parquet", "data/amc-00000-of-00001.parquet"], "amc", None, [1]),
        (["train.jsonl", "test.jsonl", "README.md"], "test", None, [1]),
        (["q/validation-00000-of-00001.parquet", "q/train-00000-of-00001.parquet"], "validation", None, [0]),
        (["dev/part.csv", "train/part.csv"], "validation", None, [0]),
        (["all/dev/part.csv", "all/train/part.csv"], "validation", None, [0]),
        (["main/train.jsonl", "socratic/train.jsonl"], "train", "socratic", [1]),
        (["data.csv"], None, None, [0]),
        (["aime24.jsonl", "amc.jsonl"], "aime24", None, [0]),
        (["train.parquet", "train.jsonl", "dataset_infos.json"], "train", None, [0]),
    ],
)  # fmt: skip
def test_files_are_chosen_by_their_names(files, split, subset, chosen):
    assert choose_files("d", files, split, subset) == [files[n] for n in chosen]


def test_a_missing_choice_is_an_error_that_names_it():
    with pytest.raises(ConfigError, match="subset= to one of main, socratic"):
        choose_files("d", ["main/train.jsonl", "socratic/train.jsonl"], "train", None)
    with pytest.raises(ConfigError, match=r"unknown subset 'x' of .*\. Available: main"):
        choose_files("d", ["main/train.jsonl"], "train", "x")
    with pytest.raises(DataError, match="no file of a supported format"):
        choose_files("d", ["README.md"], None, None)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.parquet", b"PAR1 this is not a parquet file PAR1"),
        ("a.parquet", b""),
        ("a.jsonl", b"{broken\n"),
        ("a.jsonl", b"[1]\n"),
        ("a.json", b'{"a": 1'),
        ("a.json", b"[1, 2]"),
        ("a.json", b"[" * 100_000),
        ("a.csv", b"a,b\n1\n"),
        ("a.csv", b"a,b\n1,2,3\n"),
        ("a.csv", b"\xff\xfe\xfa,b\n1,2\n"),
        ("a.jsonl", b""),
        ("a.csv", b"a,b\n"),
        ("a.json", b"[]"),
    ],
)
def test_a_corrupt_or_empty_file_is_an_error_that_names_it(tmp_path, name, content):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="needs the extra 'data'")
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=name) as error:
        open_rows(str(path))
    assert "\n" not in str(error.value)


def test_a_broken_row_is_an_error_when_it_is_read(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{broken\n{"a": 3}\n')
    rows = open_rows(str(path))
    assert rows[2] == {"a": 3}
    with pytest.raises(DataError, match="row 1 cannot be read"):
        rows[1]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("no/such/file.jsonl", "there is no file"),
        ("nothing", "there is no file"),
        ("a.txt", "has an unsupported suffix"),
    ],
)
def test_a_missing_resource_is_an_immediate_error(tmp_path, monkeypatch, source, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises((DataError, ConfigError), match=said):
        open_rows(source)
