"""Documents to search, from files or from an included corpus.

| corpus | documents |
|---|---|
| ``multihop``, ``multihop:SEED`` | the encyclopedia behind the questions of ``qa:MultiHop-v0-search`` |
| a ``.jsonl`` file | one per line: an object with `text` or `contents`, and optionally `id` and `title` |
| a ``.parquet``, ``.csv``, or ``.json`` file | one per row, with the same columns |
| a ``.txt`` or ``.md`` file | one per passage of at most `PASSAGE_WORDS` words |
| a folder | the documents of all such files in it, ordered by file name |
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

from gem_core._util.entry_points import load_attribute
from gem_core._util.foreign_json import read_json
from gem_core.errors import ConfigError, DataError
from gem_envs.data._file_rows import SUFFIXES, FileRows

PASSAGE_WORDS = 200
_BUNDLED = {"multihop": "gem_envs._generated.multihop:world"}
_LINES, _TEXT = (".jsonl", ".ndjson"), (".txt", ".md")
_IDS, _TEXTS = ("id", "_id", "docid"), ("text", "contents", "content")


class Document(TypedDict):
    """One document or passage."""

    id: str
    title: str
    text: str


def read_corpus(corpus: str | Path) -> Iterator[Document]:
    """Iterate over the documents of a corpus.

    Raises:
        ConfigError: The corpus or file does not exist.
        DataError: A file cannot be read; the message names the file and the line.
    """
    if name := _bundled(corpus):
        return iter(_bundled_documents(name))
    return _read_files(_files(Path(corpus)), Path(corpus))


def fingerprint(corpus: str | Path) -> str:
    """Return a text that changes whenever the corpus changes.

    It consists of the names, sizes, and times of files, or of a hash of the documents.

    Raises:
        ConfigError: The corpus or file does not exist.
    """
    if name := _bundled(corpus):
        content = json.dumps(_bundled_documents(name)).encode()
        return f"{name} {hashlib.sha256(content).hexdigest()}"
    stats = [(str(file.resolve()), file.stat()) for file in _files(Path(corpus))]
    return json.dumps([[path, stat.st_size, stat.st_mtime_ns] for path, stat in stats])


def as_document(row: Mapping[str, Any], index: int) -> Document | None:
    """Convert a row to a `Document`; return None if it has no text. `index` is the default id."""
    text = next((row[key] for key in _TEXTS if isinstance(row.get(key), str)), None)
    if text is None:
        return None
    title = row.get("title")
    if not isinstance(title, str):
        title = ""
        if "contents" in row and text.startswith('"') and "\n" in text:  # the format of Search-R1
            title, _, text = text.partition("\n")
            title = title.strip('"')
    id = next((row[key] for key in _IDS if isinstance(row.get(key), (str, int))), index)
    return {"id": str(id), "title": title, "text": text}


def _bundled(corpus: str | Path) -> str | None:
    """Return the seed of an included corpus; a file or folder of that name takes precedence."""
    name, _, seed = str(corpus).partition(":")
    if name not in _BUNDLED or Path(corpus).exists():
        return None
    if seed and not seed.isdecimal():
        raise ConfigError(f"corpus {corpus!r}: expected a seed after the colon, such as '{name}:0'")
    return f"{name}:{int(seed or 0)}"


def _bundled_documents(name: str) -> list[Document]:
    kind, _, seed = name.partition(":")
    documents: list[Document] = load_attribute(kind, _BUNDLED[kind])(int(seed)).documents()
    return documents


def _files(path: Path) -> list[Path]:
    """Return the files of a corpus, without hidden ones."""
    if path.is_file():
        if path.suffix not in (*SUFFIXES, *_TEXT):
            raise ConfigError(f"corpus {path}: expected a file that ends in {', '.join((*SUFFIXES, *_TEXT))}")
        return [path]
    if not path.is_dir():
        raise ConfigError(
            f"corpus {str(path)!r} does not exist: expected a file, a folder, or {', '.join(_BUNDLED)}"
        )
    files = sorted(
        file
        for file in path.rglob("*")
        if file.suffix in (*SUFFIXES, *_TEXT)
        and file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
    )
    if not files:
        raise ConfigError(f"corpus {path}: no {', '.join((*SUFFIXES, *_TEXT))} file in this folder")
    return files


def _read_files(files: list[Path], root: Path) -> Iterator[Document]:
    index = 0
    for file in files:
        rows = _text_rows(file, root) if file.suffix in _TEXT else _rows(file)
        for place, row in enumerate(rows, start=1):
            document = as_document(row, index)
            if document is None:
                keys = ", ".join(map(str, row)) or "nothing"
                raise DataError(f"{file}:{place}: no text in {' or '.join(_TEXTS)}; the row has {keys}")
            yield document
            index += 1


def _rows(file: Path) -> Iterator[Mapping[str, Any]]:
    if file.suffix not in _LINES:
        rows = FileRows(str(file), [file], file.suffix)
        yield from (rows[index] for index in range(len(rows)))
        return
    with open(file, "rb") as lines:
        for place, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = read_json(line)
            except ValueError as error:
                raise DataError(f"{file}:{place}: not JSON ({error})") from None
            if not isinstance(row, dict):
                raise DataError(f"{file}:{place}: expected a JSON object")
            yield row


def _text_rows(file: Path, root: Path) -> Iterator[Mapping[str, Any]]:
    name = file.relative_to(root).as_posix() if root.is_dir() else file.name
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 text ({error})") from None
    for index, passage in enumerate(passages(text)):
        yield {"id": f"{name}#{index}", "title": file.stem, "text": passage}


def passages(text: str, words: int = PASSAGE_WORDS) -> Iterator[str]:
    """Combine paragraphs into passages of at most `words` words; longer paragraphs are split."""
    kept: list[str] = []
    size = 0
    for paragraph in re.split(r"\n\s*\n", text):
        tokens = paragraph.split()
        for start in range(0, len(tokens), words):
            piece = tokens[start : start + words]
            if kept and size + len(piece) > words:
                yield "\n\n".join(kept)
                kept, size = [], 0
            kept.append(" ".join(piece))
            size += len(piece)
    if kept:
        yield "\n\n".join(kept)
