from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_envs.data import open_rows
from gem_envs.data._split import EVAL_SHARE, is_eval_item, split_by_content, split_by_index


@given(st.integers(0, 3000))
def test_by_number_each_item_is_on_one_side(size):
    split = split_by_index(size)
    assert sorted([*split.train, *split.eval]) == list(range(size))
    assert list(split.train) == [split.train[place] for place in range(len(split.train))]
    assert list(split.train[2:5]) == list(split.train)[2:5]
    assert bool(split.eval) == (size > 1)
    assert bool(split.train) == (size > 0)
    for part in split:
        assert [number for number in range(-1, size + 9) if number in part] == list(part)
        assert "1" not in part
    if size >= EVAL_SHARE:
        assert len(split.eval) == size // EVAL_SHARE


def test_by_number_billions_are_not_listed():
    split = split_by_index(2**31)
    assert len(split.train) + len(split.eval) == 2**31
    assert split.train[len(split.train) - 1] == 2**31 - 2
    assert split.eval[-1] == 2**31 - 1


@given(st.lists(st.text(max_size=3), min_size=1, max_size=200))
def test_by_content_the_same_text_is_on_one_side(texts):
    split = split_by_content([text] for text in texts)
    assert sorted([*split.train, *split.eval]) == list(range(len(texts)))
    plain = [" ".join(text.split()).casefold() for text in texts]
    assert not {plain[n] for n in split.train} & {plain[n] for n in split.eval}
    assert split.train
    assert bool(split.eval) == (len(set(plain)) > 1)
    for part in split:
        assert [number for number in range(-1, len(texts) + 1) if number in part] == list(part)


def test_by_content_the_share_is_kept_and_items_stay_where_they_are():
    texts = [f"What is {number} plus 1?" for number in range(8000)]
    split = split_by_content([text] for text in texts)
    assert len(split.eval) == pytest.approx(1000, abs=90)
    assert list(split.eval) == [n for n, text in enumerate(texts) if is_eval_item(text.casefold())]
    half = split_by_content([text] for text in texts[:4000])
    assert list(half.eval) == [n for n in split.eval if n < 4000]


def test_values_that_are_not_text_count_too():
    split = split_by_content((f"Find x. {n % 2}", {"bytes": b"%d" % n}) for n in range(400))
    assert 20 < len(split.eval) < 90
    again = split_by_content((f"find  x. {n % 2}", {"bytes": b"%d" % n}) for n in range(400))
    assert list(again.eval) == list(split.eval)


@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv", "parquet"])
def test_columns_of_files_are_scanned(tmp_path, suffix):
    import csv
    import json

    rows = [{"problem": f"question {n}", "answer": str(n), "note": "x" * 9} for n in range(2345)]
    path = tmp_path / f"rows.{suffix}"
    if suffix == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif suffix == "json":
        path.write_text(json.dumps(rows))
    elif suffix == "csv":
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pytest.importorskip("pyarrow").Table.from_pylist(rows), path, row_group_size=500)
    opened = open_rows(str(path))
    assert list(opened.scan(["answer", "absent", "problem"])) == [
        [row["answer"], None, row["problem"]] for row in rows
    ]
