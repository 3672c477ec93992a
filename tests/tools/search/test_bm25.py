from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_core.errors import ConfigError, DataError
from gem_envs._generated.multihop import MultiHopRows
from gem_envs.tools.search import _bm25, build_bm25, open_searcher
from gem_envs.tools.search._bm25 import Bm25Index, open_bm25
from gem_envs.tools.search._folders import build_once
from gem_envs.tools.search._words import words
from tests.tools.search.corpora import random_documents

pytest.importorskip("bm25s", reason="building an index needs the extra 'search'")


def scores_by_hand(documents, query, k1=1.5, b=0.75):
    """Compute BM25 as defined by Lucene, directly from the formula."""
    bags = [Counter(d["text"].split()) for d in documents]
    mean = sum(sum(bag.values()) for bag in bags) / len(bags)
    scores = []
    for bag in bags:
        total = 0.0
        for word in words(query):
            having = sum(word in other for other in bags)
            idf = math.log(1 + (len(bags) - having + 0.5) / (having + 0.5))
            count = bag[word]
            total += idf * count / (count + k1 * (1 - b + b * sum(bag.values()) / mean))
        scores.append(total)
    return scores


def best_by_hand(documents, query, k):
    scores = scores_by_hand(documents, query)
    order = sorted((index for index in range(len(scores)) if scores[index] > 0), key=lambda n: -scores[n])
    return [scores[number] for number in order[:k]]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    documents = random_documents(100)
    return documents, build_bm25(documents, tmp_path_factory.mktemp("small") / "index")


@given(st.lists(st.integers(0, 420), min_size=1, max_size=8), st.integers(1, 20))
def test_scores_match_the_formula(small, numbers, k):
    documents, index = small
    query = " ".join(f"w{number}" for number in numbers)
    found = index.find(query, k)
    assert [hit.score for hit in found] == pytest.approx(best_by_hand(documents, query, k), rel=1e-5)
    scores = scores_by_hand(documents, query)
    for hit in found:
        assert hit.score == pytest.approx(scores[int(hit.document["id"][1:])], rel=1e-5)


@given(st.lists(st.integers(0, 400), min_size=2, max_size=6), st.integers(1, 30))
def test_skipping_common_words_changes_no_result(small, numbers, k):
    _, index = small
    query = " ".join(f"w{number}" for number in numbers)
    with pytest.MonkeyPatch.context() as patch:
        plain = index.best(query, k)
        patch.setattr(_bm25, "_COMMON", 1)
        pruned = index.best(query, k)
    assert [score for _, score in pruned] == pytest.approx([score for _, score in plain], rel=1e-5)
    sure = [number for number, score in plain if score > plain[-1][1] * 1.00001]  # below, rounding may decide
    assert {number for number, _ in pruned} >= set(sure)


def test_equal_scores_come_in_the_order_of_the_corpus(tmp_path):
    documents = [{"id": str(n), "title": "", "text": "the same words"} for n in range(50)]
    index = build_bm25(documents, tmp_path / "index")
    assert [hit.document["id"] for hit in index.find("same", 5)] == ["0", "1", "2", "3", "4"]


def test_nothing_is_found_for_no_words_or_unknown_ones(small):
    _, index = small
    for query in ("", "?!", "unheard", "\ud800", "w\x00"):
        assert index.find(query, 3) == []
    assert index.find("w1", 0) == []


def test_a_search_leaves_nothing_for_the_next(small):
    _, index = small
    before = index.best("w3 w50", 10)
    index.best("w1 w2 w9", 100)
    assert index.best("w3 w50", 10) == before


def test_letters_of_every_kind_are_words(tmp_path):
    texts = ["Straße nach Köln", "寿司 と 酒", "naïve café", "plain"]
    documents = [{"id": str(n), "title": "", "text": text} for n, text in enumerate(texts)]
    index = build_bm25(documents, tmp_path / "index")
    for query, expected in (("STRASSE", "0"), ("酒", "1"), ("CAFÉ", "2")):
        assert [hit.document["id"] for hit in index.find(query, 3)] == [expected]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("北京", ["0"]),
        ("Ko\u0308ln", ["1"]),
        ("수도", ["2"]),
        ("首都", ["0", "3"]),
        ("ไทย", ["4"]),
        ("हिन्दी", ["5"]),
        ("istanbul", ["6"]),
        ("東", ["3"]),
        ("न", []),
    ],
)
def test_texts_of_other_scripts_are_found(query, expected, scripts):
    assert sorted(hit.document["id"] for hit in scripts.search(query, k=3)) == expected


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    texts = [
        "北京是中国的首都。", "Köln liegt am Rhein.", "서울은 대한민국의 수도이다.", "東京は日本の首都です。",
        "กรุงเทพเป็นเมืองหลวงของประเทศไทย", "हिन्दी भारत की एक भाषा है।", "İstanbul Türkiye'dedir.",
    ]  # fmt: skip
    documents = [{"id": str(n), "title": "", "text": text} for n, text in enumerate(texts)]
    return build_bm25(documents, tmp_path_factory.mktemp("scripts") / "index")


def test_threads_share_an_index(small):
    _, index = small
    expected = {query: index.best(query, 5) for query in (f"w{n} w{n + 7}" for n in range(40))}
    wrong = []

    def ask():
        wrong.extend(query for query, best in expected.items() if index.best(query, 5) != best)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_multi_hop_questions_are_answered_by_the_bundled_corpus(tmp_path, monkeypatch):
    monkeypatch.setenv("GEM_CORE_CACHE", str(tmp_path))
    with open_searcher("bm25", corpus="multihop") as searcher:
        for row in (MultiHopRows(2, "train", 100, 0)[index] for index in range(100)):
            for title in row["titles"]:  # the page of each entity on the path to the answer
                page = searcher.search(f"What do you know of {title}?", k=1)[0].document
                assert page["title"] == title
            assert row["answer"] in page["text"]
    (folder,) = (tmp_path / "search").glob("bm25-*")
    inode = folder.stat().st_ino
    open_bm25("multihop").close()
    assert folder.stat().st_ino == inode  # opened, not rebuilt
    open_bm25("multihop:1").close()
    assert len(list((tmp_path / "search").glob("bm25-*"))) == 2


def test_an_index_is_read_without_bm25s(small, monkeypatch):
    _, index = small
    monkeypatch.setitem(__import__("sys").modules, "bm25s", None)
    assert Bm25Index(index.folder).best("w1", 3) == index.best("w1", 3)


@pytest.mark.parametrize(("k1", "b"), [(-1, 0.5), (1.5, 2), (float("nan"), 0.5)])
def test_impossible_parameters_are_rejected(tmp_path, k1, b):
    with pytest.raises(ConfigError, match=r"expected k1 >= 0 and b in \[0, 1\]"):
        build_bm25(random_documents(3), tmp_path / "index", k1=k1, b=b)
    assert not (tmp_path / "index").exists()


def test_a_corpus_without_words_is_rejected(tmp_path):
    with pytest.raises(DataError, match="no words"):
        build_bm25([{"id": "0", "title": "", "text": "..."}], tmp_path / "index")


def test_a_folder_without_an_index_is_rejected(tmp_path):
    with pytest.raises(DataError, match="contains no bm25 index of version"):
        Bm25Index(tmp_path)


# -- building once ----------------------------------------------------------------------------


def slow_build(folder: Path) -> None:
    with open(folder.parent / "built", "a") as file:
        file.write("x")
    time.sleep(0.3)
    (folder / "part").write_text("whole")


def builder(folder: str) -> None:
    build_once(Path(folder), slow_build)
    assert (Path(folder) / "part").read_text() == "whole"


def test_concurrent_processes_build_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=builder, args=(str(tmp_path / "index"),)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert (tmp_path / "built").read_text() == "x"


def hanging_build(folder: Path) -> None:
    (folder / "part").write_text("half")
    (folder.parent / "started").touch()
    time.sleep(600)


def hanging_builder(folder: str) -> None:
    build_once(Path(folder), hanging_build)


def test_an_index_that_a_killed_builder_left_is_rebuilt(tmp_path):
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=hanging_builder, args=(str(tmp_path / "index"),))
    process.start()
    while not (tmp_path / "started").exists():
        assert process.is_alive()
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)
    assert not (tmp_path / "index").exists()
    builder(str(tmp_path / "index"))
    assert not list(tmp_path.glob(".*.building"))


def test_a_build_that_fails_leaves_no_folder(tmp_path):
    def fails(folder: Path) -> None:
        (folder / "part").write_text("half")
        raise DataError("bad corpus")

    with pytest.raises(DataError):
        build_once(tmp_path / "index", fails)
    assert not (tmp_path / "index").exists()
    builder(str(tmp_path / "index"))
