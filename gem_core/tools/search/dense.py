"""Dense retrieval: documents near a query in the space of a sentence-transformers model.

The vectors of the documents are computed once, kept on disk and mapped into memory; a search compares the
query's with all of them, which is right for up to some millions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gem_core._util.messages import error_line
from gem_core.errors import DataError, MissingDependency, ModelError
from gem_core.tools.search.corpus import Document, fingerprint, read_corpus
from gem_core.tools.search.documents import Documents, write_documents
from gem_core.tools.search.folders import build_once, cache_folder, read_facts, write_facts
from gem_core.tools.search.searcher import Hit, Searcher

VERSION = 1
MODEL = "intfloat/e5-base-v2"
_BATCH = 256
_ROWS = 100_000
"""Vectors that a search compares at a time: 400 MB of them at most are in use."""


class DenseIndex(Searcher):
    """Vectors of documents on disk, and the model for the query.

    Args:
        folder: That `open_dense` filled.
        encoder: A loaded model of sentence-transformers.
        query_prompt: Put in front of a query.
        options: As for `Searcher`. The model takes one query at a time, so a `concurrency` above 1 only helps
            with a `cache`.

    Raises:
        DataError: There is no index in the folder.
    """

    def __init__(self, folder: str | Path, encoder: Any, query_prompt: str = "", **options: Any) -> None:
        super().__init__(**{"concurrency": 1, **options})
        read_facts(Path(folder), "dense", VERSION)
        self.documents = Documents(Path(folder))
        self._vectors = np.asarray(np.load(Path(folder) / "vectors.npy", mmap_mode="r"))
        self._encoder, self._prompt = encoder, query_prompt

    def __len__(self) -> int:
        return len(self.documents)

    def find(self, query: str, k: int) -> list[Hit]:
        if k < 1 or not query.strip():
            return []
        vector = _encode(self._encoder, [self._prompt + query])[0].astype(np.float32)
        best: list[tuple[float, int]] = []
        for start in range(0, len(self._vectors), _ROWS):
            scores = self._vectors[start : start + _ROWS].astype(np.float32) @ vector
            nearest = np.argpartition(-scores, min(k, len(scores)) - 1)[:k]
            best += [(-float(scores[n]), start + int(n)) for n in nearest]
        return [Hit(self.documents[number], -score) for score, number in sorted(best)[:k]]


def open_dense(
    corpus: str | Path,
    *,
    model: str = MODEL,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    device: str | None = None,
    **options: Any,
) -> DenseIndex:
    """The dense index of a corpus; built on first use and kept in the cache folder.

    Args:
        corpus: See `gem_core.tools.search.corpus`.
        model: Name of the Hugging Face hub, or a folder.
        query_prompt: Put in front of a query; None is what E5 models were trained with, else nothing.
        document_prompt: The same for a document.
        device: Where the model runs; None chooses.
        options: As for `Searcher`.

    Raises:
        ConfigError: There is no such corpus.
        DataError: It cannot be read, or is empty.
        MissingDependency: ``sentence-transformers`` is missing.
        ModelError: The model cannot be loaded.
    """
    e5 = Path(model).name.startswith(("e5-", "multilingual-e5-"))
    ask = ("query: " if e5 else "") if query_prompt is None else query_prompt
    tell = ("passage: " if e5 else "") if document_prompt is None else document_prompt
    encoder = _load(model, device)
    facts = {"kind": "dense", "version": VERSION, "model": str(model), "prompt": tell}
    facts["corpus"] = fingerprint(corpus)
    folder = cache_folder("dense", facts)

    def fill(unfinished: Path) -> None:
        _fill(read_corpus(corpus), unfinished, encoder, tell)
        write_facts(unfinished, facts)

    return DenseIndex(build_once(folder, fill), encoder, ask, **options)


def _load(model: str, device: str | None) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ModuleNotFoundError as error:
        raise MissingDependency(
            "dense search needs the package 'sentence-transformers': pip install 'gem-core[dense]'"
        ) from error
    try:
        return SentenceTransformer(str(model), device=device)
    except Exception as error:  # whatever the hub, torch or a damaged folder come up with
        reason = error_line(error, 300)
        raise ModelError(f"the model {str(model)!r} cannot be loaded ({reason})") from error


def _fill(documents: Iterator[Document], folder: Path, encoder: Any, prompt: str) -> None:
    """Write documents and vectors; a batch is in memory at a time."""
    written = write_documents(documents, folder)
    raw, size, width = folder / "vectors.raw", 0, 0
    with open(raw, "wb") as file:
        while batch := list(itertools.islice(written, _BATCH)):
            texts = [f"{prompt}{d['title']} {d['text']}".strip() for d in batch]
            vectors = _encode(encoder, texts)
            file.write(vectors.tobytes())
            size, width = size + len(vectors), vectors.shape[1]
    if not size:
        raise DataError("the corpus holds no documents")
    np.save(folder / "vectors.npy", np.memmap(raw, np.float16, "r", shape=(size, width)))
    raw.unlink()


def _encode(encoder: Any, texts: list[str]) -> npt.NDArray[np.float16]:
    """Vectors of length 1; half the precision is enough for an order."""
    found = encoder.encode(texts, normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True)
    return np.asarray(found, np.float16)
