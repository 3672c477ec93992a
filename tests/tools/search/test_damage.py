"""Indexes with damaged files, and cache folders that cannot be used."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from gem_core.errors import ConfigError, DataError
from gem_envs.tools.search import build_bm25
from gem_envs.tools.search._bm25 import Bm25Index, open_bm25
from gem_envs.tools.search._folders import cache_folder
from tests.tools.search.corpora import random_documents

pytest.importorskip("bm25s", reason="building an index needs the extra 'search'")

DAMAGE = {
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "missing": Path.unlink,
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "junk": lambda path: path.write_bytes(b"\xff" * path.stat().st_size),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}
FILES = (
    "columns.npy", "document_starts.npy", "documents.jsonl", "files.json", "index.json", "indices.npy",
    "starts.npy", "tops.npy", "weights.npy", "word_ends.npy", "words.npy",
)  # fmt: skip
QUERY = "What do you know of the oldest city?"


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """Return the folder of the index of a small corpus in the cache."""
    monkeypatch.setenv("GEM_CORE_CACHE", str(tmp_path / "cache"))
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("The oldest city lies on a river.\n\nBread is made of flour.\n" * 3)
    open_bm25(corpus).close()
    (folder,) = (tmp_path / "cache/search").glob("bm25-*")
    return corpus, folder


def test_the_list_of_files_is_complete(cached):
    assert tuple(sorted(os.listdir(cached[1]))) == FILES


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_index_in_the_cache_is_built_again(cached, damage):
    corpus, folder = cached
    with open_bm25(corpus) as index:
        expected = index.search(QUERY)
    assert expected
    for name in FILES:
        DAMAGE[damage](folder / name)
        with open_bm25(corpus) as index:
            if (damage, name) == ("junk", "documents.jsonl"):  # of the right size, and read in a search
                with pytest.raises(DataError, match=r"documents\.jsonl is damaged"):
                    index.search(QUERY)
                (folder / name).unlink()
                continue
            assert index.search(QUERY) == expected, name


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_index_elsewhere_is_named_and_kept(tmp_path, damage):
    for name in FILES:
        if (damage, name) == ("longer", "files.json"):  # JSON may end in any number of line breaks
            continue
        folder = tmp_path / name
        with build_bm25(random_documents(9), folder):
            pass
        DAMAGE[damage](folder / name)
        kept = sorted(os.listdir(folder))
        if (damage, name) != ("junk", "documents.jsonl"):
            with pytest.raises(DataError, match=rf"{name} (is damaged|contains no bm25 index)"):
                Bm25Index(folder)
        assert sorted(os.listdir(folder)) == kept


def test_a_cache_that_is_a_file_is_named_with_the_variable(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("GEM_CORE_CACHE", str(tmp_path / "file"))
    with pytest.raises(OSError, match=rf"GEM_CORE_CACHE.*{tmp_path}/file"):
        open_bm25("multihop")


def test_a_user_without_a_home_folder_is_told_the_variable(tmp_path, monkeypatch):
    for name in ("HOME", "XDG_CACHE_HOME", "GEM_CORE_CACHE"):
        monkeypatch.delenv(name, raising=False)

    def unknown(user: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {user}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(ConfigError, match="set the environment variable GEM_CORE_CACHE"):
        cache_folder("bm25", {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("bm25", {}).parent == tmp_path / "gem-core/search"
