from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_core.errors import ConfigError, DataError
from gem_envs._generated.multihop import world
from gem_envs.tools.search import read_corpus
from gem_envs.tools.search._corpus import fingerprint, passages


def test_json_lines_in_every_common_form(tmp_path):
    file = tmp_path / "corpus.jsonl"
    rows = [
        {"id": 7, "title": "One", "text": "first"},
        {"_id": "b", "text": "second"},
        {"docid": "c", "contents": '"Three"\nthird'},
        {"contents": "fourth"},
    ]
    file.write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    assert list(read_corpus(file)) == [
        {"id": "7", "title": "One", "text": "first"},
        {"id": "b", "title": "", "text": "second"},
        {"id": "c", "title": "Three", "text": "third"},
        {"id": "3", "title": "", "text": "fourth"},
    ]


def test_a_folder_is_all_its_files(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.csv").write_text("id,title,text\n1,T,from csv\n")
    (tmp_path / "sub" / "b.md").write_text("one\n\ntwo\n")
    (tmp_path / ".hidden.txt").write_text("not this")
    (tmp_path / "image.png").write_bytes(b"\x89")
    assert [(d["id"], d["title"], d["text"]) for d in read_corpus(tmp_path)] == [
        ("1", "T", "from csv"),
        ("sub/b.md#0", "b", "one\n\ntwo"),
    ]


def test_the_bundled_corpus_matches_the_questions():
    assert list(read_corpus("multihop")) == world(0).documents()
    assert list(read_corpus("multihop:5")) == world(5).documents()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "2: not JSON"),
        ("[1]", "2: expected a JSON object"),
        ('{"a": 1}', "2: no text in text or contents"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, said):
    file = tmp_path / "corpus.jsonl"
    file.write_text(f'{{"text": "fine"}}\n{line}\n')
    with pytest.raises(DataError, match=said):
        list(read_corpus(file))


def test_a_corpus_that_does_not_exist_is_rejected(tmp_path):
    for corpus, said in (
        (tmp_path / "none", "does not exist"),
        (tmp_path, r"no \.parquet"),
        ("multihop:x", "expected a seed"),
    ):
        with pytest.raises(ConfigError, match=said):
            read_corpus(corpus)
    (tmp_path / "a.bin").touch()
    with pytest.raises(ConfigError, match="expected a file that ends in"):
        read_corpus(tmp_path / "a.bin")


def test_a_change_changes_the_fingerprint(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("one")
    before = fingerprint(tmp_path)
    assert fingerprint(tmp_path) == before
    file.write_text("more")
    changed = fingerprint(tmp_path)
    os.utime(file, ns=(1, 1))
    assert (
        len({before, changed, fingerprint(tmp_path), fingerprint("multihop"), fingerprint("multihop:1")}) == 5
    )


@given(st.text(), st.integers(1, 20))
def test_passages_hold_all_words_and_no_more_than_they_may(text, most):
    cut = list(passages(text, most))
    assert " ".join(cut).split() == text.split()
    assert all(0 < len(passage.split()) <= most for passage in cut)
