from __future__ import annotations

import json

import pytest

from gem_core.errors import DataError, ModelError
from gem_envs.tools.search import open_searcher
from gem_envs.tools.search._dense import open_dense
from tests.support import needs

pytestmark = needs("sentence_transformers", "dense")

WORDS = ["cat", "dog", "lamp", "red", "blue", "house", "garden", "[UNK]"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Folder of a model that embeds a text as the mean of its words' vectors, with one axis per word."""
    import numpy as np
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    weights = np.eye(len(WORDS), dtype=np.float32)
    folder = tmp_path_factory.mktemp("model") / "tiny"
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights)]).save(str(folder))
    return str(folder)


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.setenv("GEM_CORE_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "corpus.jsonl"
    texts = ["cat dog", "lamp red", "lamp blue", "house garden"]
    file.write_text("".join(json.dumps({"id": str(n), "text": text}) + "\n" for n, text in enumerate(texts)))
    return file


def test_the_nearest_documents_come_first(model, corpus):
    with open_searcher("dense", corpus=str(corpus), model=model) as searcher:
        assert [hit.document["id"] for hit in searcher.search("red lamp", k=2)] == ["1", "2"]
        found = searcher.search("red lamp", k=9)
        assert [hit.score for hit in found[:2]] == pytest.approx([1.0, 0.5], abs=1e-3)
        assert len(found) == 4
        assert searcher.search(" ", k=3) == []
        assert len(searcher) == 4


def test_an_index_is_built_once_for_a_model_and_a_prompt(model, corpus, tmp_path):
    def folders():
        return sorted(tmp_path.glob("cache/search/dense-*"))

    open_dense(corpus, model=model).close()
    (first,) = folders()
    inode = first.stat().st_ino
    open_dense(corpus, model=model, query_prompt="cat ").close()
    assert folders() == [first]
    assert first.stat().st_ino == inode
    open_dense(corpus, model=model, document_prompt="cat ").close()
    assert len(folders()) == 2


def test_a_prompt_is_prepended_to_a_query(model, corpus):
    with open_dense(corpus, model=model, query_prompt="house garden ") as searcher:
        assert searcher.search("lamp", k=1)[0].document["id"] == "3"


def test_files_that_cannot_be_opened_are_reported_in_one_line(model, corpus):
    with pytest.raises(ModelError, match=r"cannot load the model '/no/such/model'"):
        open_dense(corpus, model="/no/such/model")
    corpus.write_text("")
    with pytest.raises(DataError, match="no documents"):
        open_dense(corpus, model=model)
