"""Special tokens that a text spells, such as ``<|im_end|>`` on a web page.

A tokenizer turns such a text into the token itself, which would end the turn of the environment and could
open one of the system. Texts of an environment hold what others wrote: pages, files, results of tools,
messages of other players. In a prompt, they are therefore text, whatever they spell:

- `Spellings.mark` puts a mark into each spelling. The encoder of a context removes it again and encodes the
  text without special tokens, so the text is the same.
- `Spellings.separate` and `separate_known` put a word joiner (U+2060, which is invisible) into each spelling,
  for a prompt that somebody else encodes as one text.

Which tokens a text must not spell:

1. tokens that the tokenizer marks as special;
2. other added tokens that the chat template writes, such as ``<tool_response>`` and ``<think>``;
3. other added tokens in the form ``<|name|>``.

Further added tokens, such as runs of spaces and HTML tags, are ordinary text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar, cast

MARK = "\ufdd0"
"""A noncharacter, which Unicode reserves for internal use; texts of an environment cannot hold it."""
NONCHARACTER = re.compile("[\ufdd0\ufdd1]")
REPLACEMENT = "\ufffd"
JOINER = "\u2060"

_BAR = "[|\uff5c]"
_NAME = "[^\\s<>|\uff5c]"
_CONTROL = re.compile(f"<{_BAR}[^<>]+{_BAR}>")
_KNOWN = re.compile(
    f"<(?={_BAR}{_NAME}[^<>|\uff5c\n]{{0,62}}{_BAR}?>|(?!/){_NAME}{{1,62}}{_BAR}>"  # most families
    r"|/?s>|(?:bos|eos|pad|unk|sep)>|(?:start|end)_of_\w+>|/?(?:system|user|assistant)>|SPECIAL_\d+>"
    r"|[\w-]+:(?:eos|bos)>|<SYS>>|</SYS>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|ARGS|CALL_ID"
    r"|THINK|IMG|MODEL_SETTINGS|gMASK)\]|e~\[)"
    r"|\](?=~(?:!b\[|b\]))"
)
"""First character of a control token of a family of models, for a prompt whose tokenizer is unknown."""

_THOUGHT = {"<think>", "</think>"}
"""What decoded answers have around their thoughts, whatever the tokens of the model are."""

Nested = TypeVar("Nested")


class Spellings:
    """The texts of the tokens of a model that a text of the environment must not turn into tokens.

    Args:
        special: Texts of special tokens.
        markup: Texts of other tokens of the chat template.
        turns: Texts of the tokens that begin and end turns, which the model's own answers must not spell
            either; None for all special tokens.
        normalize: Function that a tokenizer applies to a text before it looks for tokens; None for none.
    """

    def __init__(
        self,
        special: Collection[str],
        markup: Collection[str] = (),
        normalize: Callable[[str], str] | None = None,
        turns: Collection[str] | None = None,
    ) -> None:
        self.texts = frozenset(filter(None, (*special, *markup)))
        self._normalize = normalize
        self._turns = _Words({text for text in (special if turns is None else turns) if text})
        self._all = _Words(self.texts)
        self.pattern = self._all.pattern

    def count(self, text: str) -> int:
        """Return the number of tokens that a text spells."""
        return self._all.count(text)

    def mark(self, text: str) -> str:
        """Return a text with a mark in each spelling, for the encoder of a context.

        A text that could complete a token together with its neighbors gets a mark at that end. Noncharacters
        and special tokens of one character, which nothing else can spell, become U+FFFD.
        """
        text = self.mark_inside(text)
        if self._normalize is not None and self._all.search(self._normalize(text)):
            return _around(text, MARK + MARK, MARK)
        return self._all.guard_ends(text)

    def mark_inside(self, text: str) -> str:
        """Do the same as `mark` for whole tokens only, for texts that a template quotes, such as schemas."""
        if not text.isascii():
            text = NONCHARACTER.sub(REPLACEMENT, text)
        return self._all.insert(text, MARK)

    def separate(self, text: str, *, from_model: bool = False) -> str:
        """Return a text with a word joiner in each spelling, for a prompt that is encoded as one text.

        Args:
            text: The text.
            from_model: Whether the model itself wrote the text, which may then hold its own markup, such as
                thoughts and calls.
        """
        return (self._turns if from_model else self._all).insert(text, JOINER)


class _Words:
    """Several words to look for in texts, most of which hold none."""

    def __init__(self, words: Collection[str]) -> None:
        longest_first = sorted(words, key=lambda word: (-len(word), word))
        self.pattern = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        singles = [word for word in longest_first if len(word) == 1]
        self._singles = re.compile("|".join(map(re.escape, singles))) if singles else None
        longer = [word for word in longest_first if len(word) > 1]
        # Words can overlap, so each place where one starts counts.
        self._starts = re.compile(
            f"(?=(?:{'|'.join(map(re.escape, longer))}))." if longer else "(?!)", re.DOTALL
        )
        self._openings = sorted({word[:2] for word in words})
        self._firsts, self._lasts = {word[0] for word in longer}, {word[-1] for word in longer}
        self._heads = {word[:end] for word in longer for end in range(1, len(word))}
        self._tails = {word[start:] for word in longer for start in range(1, len(word))}
        self._most = max(map(len, words), default=0)
        self._joined = "\0".join(longer)

    def search(self, text: str) -> bool:
        """Return whether a text holds a word."""
        return any(opening in text for opening in self._openings) and self.pattern.search(text) is not None

    def count(self, text: str) -> int:
        """Return the number of words in a text."""
        return len(self.pattern.findall(text)) if self.search(text) else 0

    def insert(self, text: str, mark: str) -> str:
        """Return a text with `mark` after the first character of each word."""
        if not self.search(text):
            return text
        if self._singles is not None:
            text = self._singles.sub(REPLACEMENT, text)
        return self._starts.sub(lambda match: match[0] + mark, text)

    def guard_ends(self, text: str) -> str:
        """Return a text with a mark at each end that could be part of a word together with a neighbor."""
        inner = text.strip()
        if not inner:
            return text
        whole = len(inner) < self._most and inner in self._joined
        start = whole or any(
            inner[: place + 1] in self._tails
            for last in self._lasts
            for place in _places(inner[: self._most], last)
        )
        end = whole or any(
            inner[place:] in self._heads
            for first in self._firsts
            for place in _last_places(inner, first, self._most)
        )
        return _around(text, MARK if start else "", MARK if end else "") if start or end else text


def _places(text: str, character: str) -> list[int]:
    return [place for place, other in enumerate(text) if other == character] if character in text else []


def _last_places(text: str, character: str, most: int) -> list[int]:
    offset = max(0, len(text) - most)
    return [offset + place for place in _places(text[offset:], character)]


def _around(text: str, before: str, after: str) -> str:
    """Return a text with marks around its part without surrounding whitespace, which templates strip."""
    inner = text.strip()
    start = text.find(inner)
    return text[:start] + before + inner + after + text[start + len(inner) :]


def spellings_of(
    tokenizer: Any,
    written: Iterable[str] = (),
    placeholders: Iterable[str] = (),
    turns: str | None = None,
) -> Spellings:
    """Return the spellings of a tokenizer.

    Args:
        tokenizer: A transformers tokenizer, or any object with ``all_special_ids`` and ``decode``.
        written: Texts that the chat template writes, or its source.
        placeholders: Further texts of tokens, such as those of images.
        turns: A conversation of plain messages that the chat template rendered; None if there is none.
    """
    written = [*written]
    added = getattr(tokenizer, "added_tokens_decoder", {})
    special = {
        tokenizer.decode([token_id], skip_special_tokens=False) for token_id in tokenizer.all_special_ids
    }
    special |= {str(token) for token in added.values() if getattr(token, "special", False)}
    markup = {*placeholders}
    for text in map(str, added.values()):
        if text.strip() and (_CONTROL.fullmatch(text) or any(text in template for template in written)):
            markup.add(text)
    normalized = {str(token) for token in added.values() if getattr(token, "normalized", False)}
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    if normalizer is None or normalized.isdisjoint(special | markup):
        normalize = None
    else:
        normalize = normalizer.normalize_str
    ends = {tokenizer.eos_token, tokenizer.bos_token} - {None}
    chosen = None if turns is None else ends | {text for text in special | markup if text in turns} - _THOUGHT
    return Spellings(special, markup - special, normalize, chosen)


def separate_known(text: str) -> str:
    """Return a text with a word joiner in each control token of a known family of models.

    Markup in which a model answers, such as ``<tool_call>`` and ``<think>``, stays.
    """
    return _KNOWN.sub(lambda match: match[0] + JOINER, text)


def count_known(text: str) -> int:
    """Return the number of control tokens of known families of models in a text."""
    return len(_KNOWN.findall(text))


def map_texts(change: Callable[[str], str], value: Nested) -> Nested:
    """Return a value with all texts changed, also those in lists and dicts, and the keys of dicts."""
    return cast("Nested", _mapped(change, value))


def _mapped(change: Callable[[str], str], value: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {_mapped(change, key): _mapped(change, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(change, item) for item in value]
    return value
