r"""Reading answers out of a model's text: every parser of the package.

Each takes any string, never raises on its content, and needs time linear in its length, because
the text comes from a model that may be broken or hostile. The functions return None where there is
nothing to read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

# An escaped brace does not count, nor does one behind "\\" count as escaped. "\\boxed{" with a
# doubled backslash is a box all the same: models write it where text was escaped once too often.
_BRACES = re.compile(r"(?P<box>\\boxed\{)|(?P<escape>(?:\\\\)+(?!boxed\{)|\\[{}])|(?P<open>\{)|(?P<close>\})")
_BOXES = 100
_PLACEHOLDERS = frozenset(("", "answer", "final answer", "your answer", "number", "...", "\u2026"))
_PLACEHOLDER = 30
"""Characters of a box that may be a placeholder."""
_DIGITS = 18
_DIRECTIONS = frozenset(("up", "down", "left", "right"))
_INTEGER = re.compile(rf"[+-]?[0-9]{{1,{_DIGITS}}}")
_WRAPPER = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:rm|bf|it|sf|tt)|mbox)\s*\{")
_BLANK = re.compile(r"(?<!\\)\\(?:[ ,;:!]|q?quad(?![A-Za-z]))|~")
_DECORATIONS = 4
"""Wrappers within wrappers that are taken off."""
_DECORATED = 10_000
"""Characters of a text that decoration is looked for in."""


def boxes(text: str) -> Iterator[str]:
    r"""Contents of the complete ``\boxed{...}``, as they stand, from the last to the first.

    Braces inside may nest; ``\{`` and ``\}`` are plain characters. Of nested boxes only the innermost are
    read, a box that is never closed is skipped, and no more than the last 100 boxes are read.

    >>> list(boxes(r"first \boxed{1}, then \boxed{\frac{1}{2}}"))
    ['\\frac{1}{2}', '1']
    """
    before, box, rest = text.rpartition("\\boxed{")
    if not box:
        return
    content, closed, _ = rest.partition("}")
    if (
        closed and "{" not in content and "\\" not in content
    ):  # the usual case, without a walk over all braces
        yield content
        yield from islice(_earlier_boxes(before), _BOXES - 1)
    else:
        yield from islice(_nested_boxes(text), _BOXES)


def _earlier_boxes(text: str) -> Iterator[str]:
    end = len(text)
    while (start := text.rfind("\\boxed{", 0, end)) >= 0:
        close = text.find("}", start, end)
        content = text[start + len("\\boxed{") : close]
        if close < 0 or "{" in content or "\\" in content:
            yield from _nested_boxes(text[:end])
            return
        yield content
        end = start


def _nested_boxes(text: str) -> Iterator[str]:
    open_boxes: list[int] = []  # content start of each open brace, -1 for one that opens no box
    complete: list[tuple[int, int]] = []
    for token in _BRACES.finditer(text):
        kind = token.lastgroup
        if kind == "box":
            open_boxes.append(token.end())
        elif kind == "open":
            open_boxes.append(-1)
        elif kind == "close" and open_boxes:
            opened = open_boxes.pop()
            if opened >= 0 and not (complete and complete[-1][0] > opened):  # holds no other box
                complete.append((opened, token.start()))
    return (text[start:end] for start, end in reversed(complete))


def last_boxed(text: str) -> str | None:
    r"""Content of the last complete ``\boxed{...}``, or None; see `boxes`.

    >>> last_boxed(r"first \boxed{1}, then \boxed{\frac{1}{2}}")
    '\\frac{1}{2}'
    """
    return next(boxes(text), None)


def boxed_answer(text: str) -> str | None:
    r"""Content of the last ``\boxed{...}`` that holds an answer, or None if there is no box.

    Empty boxes and echoes of a prompt, such as ``\boxed{answer}``, hold none; where nothing else is in a
    box, the last one counts. Only one box is ever read, so several boxes are not several guesses.

    >>> boxed_answer(r"It is \boxed{5}, as asked in \boxed{}.")
    '5'
    """
    last = None
    for content in boxes(text):
        if len(content) > _PLACEHOLDER or undecorated(content).lower() not in _PLACEHOLDERS:
            return content
        last = content if last is None else last
    return last


def undecorated(text: str, *, full_stop: bool = False) -> str:
    r"""What is left of an answer without the LaTeX and Markdown that models dress it in.

    Taken off, where it is around the whole text: ``\text{...}`` and its like (``\textbf``, ``\mathrm``),
    ``$...$``, ``**...**``, blanks, and a full stop at the end. Within the text ``\ ``, ``\,``, ``\quad`` and
    ``~`` are blanks.

    Args:
        text: The answer.
        full_stop: Whether a full stop at the end stays.

    >>> undecorated(r"$\textbf{3 \, 4}$.")
    '3   4'
    """
    text = text.strip()
    if len(text) > _DECORATED:
        return text
    if "\\" in text or "~" in text:
        text = _BLANK.sub(" ", text).strip()
    for _ in range(_DECORATIONS):
        before, text = text, _without_wrapper(text if full_stop else text.removesuffix(".").strip())
        if text == before:
            break
    return text


def _without_wrapper(text: str) -> str:
    for mark in ("$$", "$", "**"):
        inside = text[len(mark) : -len(mark)]
        if inside and text.startswith(mark) and text.endswith(mark) and mark not in inside:
            return inside.strip()
    opening = _WRAPPER.match(text)
    if opening is None or not text.endswith("}"):
        return text
    depth = 1
    for token in _BRACES.finditer(text, opening.end(), len(text) - 1):
        depth += {"box": 1, "open": 1, "close": -1}.get(str(token.lastgroup), 0)
        if depth == 0:  # the wrapper ends before the text does
            return text
    return text[opening.end() : -1].strip() if depth == 1 else text


def first_tag(text: str, name: str) -> str | None:
    """Content of the first ``<name>...</name>``, as it stands; None when it is not there or not closed.

    >>> first_tag("<think>?</think> <search>gems</search>", "search")
    'gems'
    """
    opening = f"<{name}>"
    start = text.find(opening)
    if start < 0:
        return None
    start += len(opening)
    end = text.find(f"</{name}>", start)
    return None if end < 0 else text[start:end]


def last_tag(text: str, name: str) -> str | None:
    """Content of the last complete ``<name>...</name>``, as it stands; None when there is none.

    >>> last_tag("<answer>1</answer> no: <answer>2</answer>", "answer")
    '2'
    """
    end = text.rfind(f"</{name}>")
    opening = f"<{name}>"
    start = text.rfind(opening, 0, end) if end >= 0 else -1
    return None if start < 0 else text[start + len(opening) : end]


def first_code_block(text: str, language: str | None = None) -> str | None:
    """Content of the first fenced code block, without the line break before the closing fence.

    A fence is three or more backticks or tildes at the start of a line, which may be indented; the
    closing one has at least as many. A block inside a block, or one that is never closed, does not
    count.

    Args:
        text: Markdown, more or less.
        language: First word after the opening fence, in any case; None takes any block.
    """
    return next(_code_blocks(text, language), None)


def last_code_block(text: str, language: str | None = None) -> str | None:
    """Content of the last fenced code block; see `first_code_block`."""
    last = None
    for last in _code_blocks(text, language):  # noqa: B007  # the last one is wanted
        pass
    return last


def _code_blocks(text: str, language: str | None) -> Iterator[str]:
    fence = ""  # of the block that is open
    wanted = False
    content: list[str] = []
    for line in text.split("\n"):
        mark = line.strip()
        if fence:
            if mark.startswith(fence) and not mark.strip(fence[0]):
                if wanted:
                    yield "\n".join(content)
                fence = ""
            elif wanted:
                content.append(line)
        elif mark.startswith(("```", "~~~")):
            label = mark.lstrip(mark[0])
            if mark[0] == "`" and "`" in label:
                continue  # code within a line
            fence = mark[: len(mark) - len(label)]
            word = (label.split(maxsplit=1) or [""])[0]
            wanted = language is None or word.lower() == language.lower()
            content = []


def integer(text: str) -> int | None:
    """The whole number that `text` is: at most 18 ASCII digits, with an optional sign."""
    if len(text) <= _DIGITS and text.isascii() and text.isdigit():
        return int(text)  # the usual case, three times as fast
    return int(text) if _INTEGER.fullmatch(text) else None


def integers(text: str) -> list[int] | None:
    """The whole numbers that `text` lists, separated by blanks or commas; None when it lists none."""
    words = text.replace(",", " ").split()
    if len(text) <= _DIGITS and text.isascii() and "".join(words).isdigit():
        return list(map(int, words))  # the usual case, twice as fast
    numbers = []
    for entry in words:
        number = integer(entry)
        if number is None:
            return None
        numbers.append(number)
    return numbers or None


def direction(text: str) -> str | None:
    """``up``, ``down``, ``left`` or ``right``, written in either case."""
    if text in _DIRECTIONS:
        return text  # the usual case
    word = text.lower()
    return word if word in _DIRECTIONS else None


def word(text: str) -> str | None:
    """The word that `text` is, in lower case: ASCII letters, which blanks may separate (``C R A N E``)."""
    letters = text if text.isalpha() else "".join(text.split())
    return letters.lower() if letters.isascii() and letters.isalpha() else None


def command(text: str) -> tuple[str, str] | None:
    """Name and argument of ``name[argument]``; None where there is no name or an empty argument.

    >>> command("Search[a red (large) shirt]")
    ('search', 'a red (large) shirt')
    """
    name, bracket, rest = text.strip().partition("[")
    argument = rest[:-1].strip() if rest.endswith("]") else ""
    name = name.strip()
    if not bracket or not argument or not name.isascii() or not name.isalpha():
        return None
    return name.lower(), argument
