r"""Parsers for answers in a model's text; all parsers of the package are in this module.

Each parser takes any string, never raises because of its content, and runs in linear time, because the text
comes from a model that may be broken or hostile. A parser returns None if it finds no answer.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice

# An escaped brace does not count as a brace; a brace after "\\" is not escaped. "\\boxed{" with a doubled
# backslash is also a box: models write it if text was escaped twice.
_BRACES = re.compile(r"(?P<box>\\boxed\{)|(?P<escape>(?:\\\\)+(?!boxed\{)|\\[{}])|(?P<open>\{)|(?P<close>\})")
# The same tokens for texts with many braces: `inside` is a box without other braces, a run of equal braces is
# one token, and pairs of braces with nothing special inside are skipped.
_BRACE_RUNS = re.compile(
    r"\\boxed\{(?P<inside>[^{}\\]*\})|(?P<box>\\boxed\{)"
    r"|(?:\\\\)+(?!boxed\{)|\\[{}]|(?:\{[^{}\\]*\})+|(?P<open>\{+)|(?P<close>\}+)"
)
_OTHER_BOX = re.compile(r"\\(?:boxed\s{1,9}|fbox\s{0,9})\{")
_BOXES = 100
_PLACEHOLDERS = frozenset(("", "answer", "final answer", "your answer", "number", "...", "\u2026"))
_PLACEHOLDER = 30
"""Maximum number of characters of a box that may be a placeholder."""
_DIGITS = 18
_DIRECTIONS = frozenset(("up", "down", "left", "right"))
_ARROWS = {"\u2191": "up", "\u2193": "down", "\u2190": "left", "\u2192": "right"}
_FENCE = re.compile(r"\s*(?:(?:[-*+]|\d{1,9}[.)])\s+)*(?P<fence>`{3,}|~{3,})(?P<label>.*)")
"""An opening fence, also in a list item."""
_LATE_LABEL = re.compile(r"[\w+#.-]*\s*")
_LANGUAGES = {"py": "python", "python3": "python"}
_INTEGER = re.compile(r"[+-]?[0-9]+(?:\.0+)?")
_LARGEST: int = 10**_DIGITS
_WRAPPER = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:rm|bf|it|sf|tt)|mbox)\s*\{")
_BLANK = re.compile(r"(?<!\\)\\(?:[ ,;:!]|q?quad(?![A-Za-z]))|~")
_DECORATIONS = 4
"""Maximum number of nested wrappers that are removed."""
FONT = re.compile(
    r"\\(?:boldsymbol|bm|pmb|underline|emph|ensuremath|mathstrut|boldmath|bfseries|itshape|bf|it|sf|tt|tiny"
    r"|scriptsize|footnotesize|small|normalsize|large|Large|LARGE|huge|Huge|displaystyle)(?![A-Za-z])\s*"
    r"|\\(?:textcolor|color)\s*\{[^{}]*\}\s*"
)
"""Commands for fonts and colors."""
_SHORT = 200
"""Maximum number of characters of a move with decoration."""
_CLOSING = dict(zip("([{<\"'`*_\u201c\u2018", ")]}>\"'`*_\u201d\u2019", strict=True))
_LABEL = re.compile(
    r"\A\s*(?:(?:the|my|so|final|next|best)\s+){0,3}(?:answer|move|action|guess|word|letter|number|direction|title)"
    r"(?:\s*[:=]|\s+is\b:?)(?!\s*not\b)\s*",
    re.IGNORECASE,
)
_COLUMN_FIRST = re.compile(r"\bc(?:ol(?:umn)?)?\b.*\br(?:ow)?\b", re.IGNORECASE | re.DOTALL)
_BETWEEN = re.compile(
    r"\\(?:to|rightarrow|longrightarrow|Rightarrow|quad|[,; ])(?![A-Za-z])|[-=]>|[\u2192\u21d2()\[\]{},;:=|]"
    r"|\b(?:row|col|column|number|value|letter|cell|peg|from|to|move|go|slide|push|swipe)(?=[\s\d:=(,]|\Z)"
    r"|\b[rc](?=\s*[\d=:])",
    re.IGNORECASE,
)
_WHOLE = re.compile(r"(?<![\w.])([+-]?\d+)\.0+(?![\w.])")
_DECORATED = 10_000
"""Maximum number of characters of a text whose decoration is removed."""


def boxes(text: str) -> Iterable[str]:
    r"""Return the contents of the complete ``\boxed{...}``, verbatim, from the last to the first.

    Braces inside may nest; ``\{`` and ``\}`` are plain characters. Only the innermost of nested boxes are
    read, unclosed boxes are skipped, and at most the last 100 boxes are read. If there are none,
    ``\fbox{...}`` and ``\boxed {...}`` also count.

    >>> list(boxes(r"first \boxed{1}, then \boxed{\frac{1}{2}}"))
    ['\\frac{1}{2}', '1']
    """
    before, box, rest = text.rpartition("\\boxed{")
    content, closed, _ = rest.partition("}")
    if closed and box and "{" not in content and "\\" not in content:  # without matching all braces
        if "\\boxed{" not in before:  # the usual case, without a generator
            return (content,)
        return islice(chain((content,), _earlier_boxes(before)), _BOXES)
    if not box and _OTHER_BOX.search(text):
        return boxes(_OTHER_BOX.sub(r"\\boxed{", text))
    return islice(_nested_boxes(text), _BOXES) if box else ()


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
    open_boxes: list[int] = []  # start of the content for each open box, -1 for each other open brace
    complete: deque[tuple[int, int]] = deque(maxlen=_BOXES)
    for token in _BRACE_RUNS.finditer(text, text.find("\\boxed{"), text.rfind("}") + 1):
        kind, start, end = token.lastgroup, token.start(), token.end()
        if kind == "inside":
            complete.append((token.start("inside"), end - 1))
        elif kind == "box":
            open_boxes.append(end)
        elif kind == "open":
            open_boxes.extend([-1] * (end - start))
        elif kind == "close":
            for close in range(start, min(end, start + len(open_boxes))):
                opened = open_boxes.pop()
                if opened >= 0 and not (complete and complete[-1][0] > opened):  # contains no other box
                    complete.append((opened, close))
    return (text[start:end] for start, end in reversed(complete))


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last complete ``\boxed{...}``, or None; see `boxes`.

    >>> last_boxed(r"first \boxed{1}, then \boxed{\frac{1}{2}}")
    '\\frac{1}{2}'
    """
    return next(iter(boxes(text)), None)


def boxed_answer(text: str) -> str | None:
    r"""Return the content of the last ``\boxed{...}`` that holds an answer, or None if there is no box.

    Empty boxes and placeholders from the prompt, such as ``\boxed{answer}``, hold no answer; if there are no
    other boxes, the last one counts. Only one box counts, so several boxes are not several guesses.

    >>> boxed_answer(r"It is \boxed{5}, as asked in \boxed{}.")
    '5'
    """
    last = None
    for content in boxes(text):
        if len(content) > _PLACEHOLDER:
            return content
        plain = content if content.isalnum() else undecorated(content)  # the usual case, a number
        if plain.lower() not in _PLACEHOLDERS:
            return content
        last = content if last is None else last
    return last


def undecorated(text: str, *, keep_period: bool = False) -> str:
    r"""Return an answer without the LaTeX and Markdown that models put around it.

    The function removes ``\text{...}`` and similar commands (``\textbf``, ``\mathrm``), ``$...$``, and
    ``**...**`` around the whole text, spaces at both ends, and a period at the end. Within the text, ``\ ``,
    ``\,``, ``\quad``, and ``~`` become spaces.

    Args:
        text: The answer.
        keep_period: Whether to keep a period at the end.

    >>> undecorated(r"$\textbf{3 \, 4}$.")
    '3   4'
    """
    text = text.strip()
    if len(text) > _DECORATED:
        return text
    if "\\" in text or "~" in text:
        text = _BLANK.sub(" ", text).strip()
    for _ in range(_DECORATIONS):
        before, text = text, _without_wrapper(text if keep_period else text.removesuffix(".").strip())
        if text == before:
            break
    return text


def _without_wrapper(text: str) -> str:
    if not text.startswith(("$", "**", "\\")):
        return text
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


def plain(text: str) -> str:
    r"""Return a short answer without anything that models put around it; a long text is returned unchanged.

    Besides the decoration that `undecorated` removes, the function removes brackets, quotation marks,
    backticks, and asterisks around the whole text, a label in front (``Answer:``, ``my move is``),
    punctuation at the end, and commands for fonts and colors.

    >>> plain(r"Move: [`\textcolor{red}{up}`]!")
    'up'
    """
    if len(text) > _SHORT:
        return text
    for _ in range(_DECORATIONS + 2):
        before = text
        if label := _LABEL.match(text):
            text = text[label.end() :]
        text = undecorated(FONT.sub("", text) if "\\" in text else text)
        text = text.rstrip(".,;:!? ")
        if text[:1] in _CLOSING and text.endswith(_CLOSING[text[0]]):
            inside = text[1:-1]
            if text[0] not in inside and text[-1] not in inside:
                text = inside.strip()
        if text == before:
            break
    return text


def parts(text: str) -> list[str] | None:
    r"""Return the words and numbers of a move without the separators between them.

    ``(1, 4) 3``, ``1;4;3``, ``row 1, column 4: 3.0``, and ``1 -> 4 -> 3`` are ``["1", "4", "3"]``; in a long
    text, only spaces and commas count as separators. None means that a column precedes its row, so the order
    is unclear.
    """
    if len(text) > _SHORT:
        return text.replace(",", " ").split()
    if _COLUMN_FIRST.search(text):
        return None
    return _WHOLE.sub(r"\1", _BETWEEN.sub(" ", text)).split()


def first_tag(text: str, name: str) -> str | None:
    """Return the content of the first ``<name>...</name>``, verbatim; None if it is missing or not closed.

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
    """Return the content of the last complete ``<name>...</name>``, verbatim; None if there is none.

    >>> last_tag("<answer>1</answer> no: <answer>2</answer>", "answer")
    '2'
    """
    end = text.rfind(f"</{name}>")
    opening = f"<{name}>"
    start = text.rfind(opening, 0, end) if end >= 0 else -1
    return None if start < 0 else text[start + len(opening) : end]


def first_code_block(text: str, language: str | None = None) -> str | None:
    """Return the content of the first fenced code block, without the line break before the closing fence.

    A fence is three or more backticks or tildes at the start of a line, which may be indented or a list item;
    the indentation of the opening fence is removed from the block. The closing fence has at least as many;
    after a space or a tag, text may follow it. Text may also precede an opening fence that only a language
    follows, as in ``</think>```python``. If nothing else closes a block, a fence at the end of a line of code
    does. Nested and unclosed blocks are ignored.

    Args:
        text: Text in Markdown, not necessarily valid.
        language: First word after the opening fence, case-insensitive (``py`` and ``python3`` count as
            ``python``); None accepts any block.

    Returns:
        The content; None if there is no such block.
    """
    return next(_code_blocks(text, language), None)


def last_code_block(text: str, language: str | None = None) -> str | None:
    """Return the content of the last fenced code block; see `first_code_block`."""
    last = None
    for last in _code_blocks(text, language):  # noqa: B007  # the last one is returned
        pass
    return last


def _code_blocks(text: str, language: str | None) -> Iterator[str]:
    fence = ""  # fence of the open block
    indent = 0  # column of its opening fence
    matches = False
    content: list[str] = []
    late_end = 0  # number of lines up to the first one that ends with the fence
    for line in text.split("\n"):
        mark = line.strip()
        if fence:
            rest = mark.lstrip(fence[0]) if mark.startswith(fence) else "no fence"
            if not rest or rest[0].isspace() or rest[0] == "<":  # text may follow the closing fence
                if matches:
                    yield "\n".join(content)
                fence = ""
            elif matches:
                content.append(_outdented(line, indent) if indent else line)
                if not late_end and mark.endswith(fence) and fence[0] not in mark.removesuffix(fence):
                    late_end = len(content)
        elif "```" in line or "~~~" in line:
            opening = _opening(line)
            if opening is None:
                continue  # inline code
            fence, indent, label = opening
            word = (label.split(maxsplit=1) or [""])[0].lower()
            matches = language is None or _LANGUAGES.get(word, word) == language.lower()
            content, late_end = [], 0
    if fence and late_end:
        yield "\n".join(content[:late_end]).rstrip().removesuffix(fence)


def _opening(line: str) -> tuple[str, int, str] | None:
    """Return the fence that opens a block, the indentation of the block, and its label, if there is one."""
    if opening := _FENCE.match(line):
        fence, label = opening.group("fence", "label")
        return None if fence[0] == "`" and "`" in label else (fence, opening.start("fence"), label)
    before, _, label = line.partition("```")
    late = _LATE_LABEL.fullmatch(label) and "~" not in before
    if late and (before.rstrip()[-1:] in (">", ":") or (before[-1:].isspace() and label.strip())):
        return "```", 0, label
    return None


def _outdented(line: str, indent: int) -> str:
    """Return a line without the indentation of its block."""
    return line[min(indent, len(line) - len(line.lstrip(" \t"))) :]


def integer(text: str) -> int | None:
    """Return the whole number in `text`, ASCII digits with an optional sign and zero decimals; else None.

    A number of more than 18 digits is returned as 10**18 or -10**18, which is out of range everywhere.
    """
    if (
        len(text) <= _DIGITS
        and text.isascii()
        and (text.isdigit() or (text[1:].isdigit() and text[0] in "+-"))
    ):
        return int(text)  # the usual case, three times as fast
    if not _INTEGER.fullmatch(text):
        return None
    text = text.partition(".")[0]
    if len(text.lstrip("+-0")) > _DIGITS:
        return -_LARGEST if text[0] == "-" else _LARGEST
    return int(text.lstrip("+-0") or "0") * (-1 if text[0] == "-" else 1)


def integers(text: str) -> list[int] | None:
    """Return the whole numbers in `text`, separated as in `parts`; None if there is anything else."""
    words = text.replace(",", " ").split()
    short = len(text) <= _DIGITS or max(map(len, words), default=0) <= _DIGITS
    if short and text.isascii() and "".join(words).isdigit():
        return list(map(int, words))  # the usual case, twice as fast
    entries = parts(text)
    numbers = []
    for entry in entries or ():
        number = integer(entry)
        if number is None:
            return None
        numbers.append(number)
    return numbers or None


def direction(text: str) -> str | None:
    """Return ``up``, ``down``, ``left``, or ``right`` if `text` is that word in any case; else None.

    A verb may precede the word (``move up``), and an arrow may replace it.
    """
    if text in _DIRECTIONS:
        return text  # the usual case
    words = parts(text) if len(text) <= _PLACEHOLDER else None
    word = words[0].lower() if words and len(words) == 1 else ""
    return word if word in _DIRECTIONS else _ARROWS.get(text)


def word(text: str) -> str | None:
    """Return the word of ASCII letters in `text`, in lower case; spaces may separate them (``C R A N E``)."""
    letters = text
    if not text.isalpha():
        pieces = text.split()
        letters = "".join(pieces)
        if 1 < len(pieces) < len(letters):  # a piece has several letters
            return None
    return letters.lower() if letters.isascii() and letters.isalpha() else None


def command(text: str) -> tuple[str, str] | None:
    """Return the name and argument of ``name[argument]``; None if either is missing or empty.

    >>> command("Search[a red (large) shirt]")
    ('search', 'a red (large) shirt')
    """
    name, bracket, rest = text.strip().partition("[")
    argument = rest[:-1].strip() if rest.endswith("]") else ""
    name = name.strip()
    if not bracket or not argument or not name.isascii() or not name.isalpha():
        return None
    return name.lower(), argument
