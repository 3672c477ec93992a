"""Dense retrieval with the embeddings of a sentence-transformers model.

The document vectors are computed once, kept on disk, and memory-mapped. A search compares the query's vector
with all of them, which is fast enough for up to a few million documents.
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
from gem_envs.tools.search._corpus import Document, fingerprint, read_corpus
from gem_envs.tools.search._documents import Documents, write_documents
from gem_envs.tools.search._folders import cache_folder, open_cached, read_facts, reading, write_facts
from gem_envs.tools.search._searcher import Hit, Searcher

VERSION = 1
MODEL = "intfloat/e5-base-v2"
_BATCH = 256
_ROWS = 100_000
"""Number of vectors that a search compares at a time, which limits memory use to 400 MB."""


class DenseIndex(Searcher):
    """Document vectors on disk, and the model that encodes queries.

    Args:
        folder: Folder created by `open_dense`.
        encoder: A loaded sentence-transformers model.
        query_prompt: Prefix of every query.
        options: Keyword arguments of `Searcher`. The model takes one query at a time, so a `concurrency`
            above 1 only helps with a `cache`.

    Raises:
        DataError: The folder contains no index, or a damaged one.
        OSError: A file cannot be read; the error names it.
    """

    def __init__(self, folder: str | Path, encoder: Any, query_prompt: str = "", **options: Any) -> None:
        super().__init__(**{"concurrency": 1, **options})
        read_facts(Path(folder), "dense", VERSION)
        with reading(Path(folder)):
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
        return [Hit(self.documents[index], -score) for score, index in sorted(best)[:k]]


def open_dense(
    corpus: str | Path,
    *,
    model: str = MODEL,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    device: str | None = None,
    **options: Any,
) -> DenseIndex:
    """Open the dense index of a corpus; it is built on first use and kept in the cache folder.

    Args:
        corpus: See `gem_envs.tools.search._corpus`.
        model: Name on the Hugging Face Hub, or a folder.
        query_prompt: Prefix of every query. None uses the prefix of E5 models, and no prefix for others.
        document_prompt: Prefix of every document. None has the same meaning as for `query_prompt`.
        device: Torch device of the model. None lets sentence-transformers choose.
        options: Keyword arguments of `Searcher`.

    Raises:
        ConfigError: The corpus does not exist, or the user has no cache folder.
        DataError: The corpus cannot be read, or is empty.
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

    return open_cached(folder, fill, lambda built: DenseIndex(built, encoder, ask, **options))


def _load(model: str, device: str | None) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ModuleNotFoundError as error:
        raise MissingDependency(
            "dense search needs the package 'sentence-transformers': pip install 'gem-core[dense]'"
        ) from error
    try:
        return SentenceTransformer(str(model), device=device)
    except Exception as error:  # errors of the hub, of torch, or of a damaged folder
        reason = error_line(error, 300)
        raise ModelError(f"cannot load the model {str(model)!r} ({reason})") from error


def _fill(documents: Iterator[Document], folder: Path, encoder: Any, prompt: str) -> None:
    """Write documents and vectors, one batch at a time."""
    written = write_documents(documents, folder)
    raw, size, width = folder / "vectors.raw", 0, 0
    with open(raw, "wb") as file:
        while batch := list(itertools.islice(written, _BATCH)):
            texts = [f"{prompt}{d['title']} {d['text']}".strip() for d in batch]
            vectors = _encode(encoder, texts)
            file.write(vectors.tobytes())
            size, width = size + len(vectors), vectors.shape[1]
    if not size:
        raise DataError("the corpus contains no documents; check its path and columns")
    np.save(folder / "vectors.npy", np.memmap(raw, np.float16, "r", shape=(size, width)))
    raw.unlink()


def _encode(encoder: Any, texts: list[str]) -> npt.NDArray[np.float16]:
    """Return unit vectors in half precision, which suffices for ranking."""
    vectors = encoder.encode(texts, normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True)
    return np.asarray(vectors, np.float16)
