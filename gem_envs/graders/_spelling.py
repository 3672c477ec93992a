r"""Compares texts that `latex` cannot read, symbol by symbol: only the spelling may differ.

A text becomes a list of symbols without layout, in which synonyms of LaTeX are the same (``\le`` and
``\leqslant``, ``\mid`` and ``|``, ``\dots`` and ``\ldots``, ``\frac12`` and ``\frac{1}{2}``). Two texts are
equal if their symbols are, or if they have the same words, connectives, relations, commas, and brackets at
the same places, and between them expressions with equal values. No symbol is left out, so equality is
certain; a difference is not, because another form may mean the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gem_envs.graders._equality import same_expressions
from gem_envs.graders._latex import LONGEST, read
from gem_envs.graders._trees import EXPRESSIONS


class Symbol(NamedTuple):
    """A symbol: its name, which decides equality, and a text that `latex` reads."""

    name: str
    text: str


_SYMBOL = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|mathtt|mbox|operatorname\*?)\s*"
    r"\{(?P<words>[^{}]*)\}"
    r"|\\(?P<edge>begin|end)\s*\{(?P<environment>[a-z*]+)\}(?:\{[lcr|@{}\s]*\})?"
    r"|(?P<row>\\\\)|\\(?P<command>[A-Za-z]+)|\\(?P<escaped>[^A-Za-z])|(?P<number>\d+(?:\.\d+)?|\.\d+)"
    r"|(?P<word>[A-Za-z]+)|(?P<space>\s+)|(?P<dots>\.{2,})|(?P<sign><=|>=|!=|=>|->|\*\*|.)",
    re.DOTALL,
)
_WORD = re.compile(r"[A-Za-z]+|\d+(?:\.\d+)?|[^\sA-Za-z\d]")
_SYNONYMS = {
    "le": "<=", "leq": "<=", "leqslant": "<=", "ge": ">=", "geq": ">=", "geqslant": ">=", "lt": "<",
    "gt": ">",
    "ne": "!=", "neq": "!=", "mid": "|", "vert": "|", "lvert": "|", "rvert": "|", "colon": ":", "Vert": "||",
    "lVert": "||", "rVert": "||", "dots": "...", "ldots": "...", "cdots": "...", "dotsc": "...",
    "dotsb": "...", "vdots": "vdots", "cdot": "*", "ast": "*", "rightarrow": "to", "longrightarrow": "to",
    "Rightarrow": "implies", "Longrightarrow": "implies", "Leftrightarrow": "iff",
    "Longleftrightarrow": "iff",
    "wedge": "land", "vee": "lor", "neg": "lnot", "backslash": "setminus", "smallsetminus": "setminus",
    "varnothing": "emptyset", "lbrace": "\\{", "rbrace": "\\}", "prime": "'", "dfrac": "frac",
    "tfrac": "frac",
    "dbinom": "binom", "tbinom": "binom", "lbrack": "[", "rbrack": "]", "land": "land", "lor": "lor",
    "subsetneqq": "subsetneq", "longmapsto": "mapsto", "div": "/", "R": "blackboard R", "Z": "blackboard Z",
    "N": "blackboard N", "Q": "blackboard Q", "C": "blackboard C", "mod": "bmod", "owns": "ni",
    "bmod": "bmod",
    "operatorname": "", "gets": "leftarrow",
}  # fmt: skip
_SIGNS = {"=>": "implies", "->": "to", "**": "^", ";": ",", "~": ""}
_LAYOUT = frozenset(
    (  # noqa: SIM905  # a list of thirty strings is harder to read
        "left right middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr bigm quad qquad limits nolimits "
        "displaystyle textstyle hfill hspace thinspace mathstrut nonumber"
    ).split()
)
_ENVIRONMENTS = {
    "bmatrix": "pmatrix",
    "matrix": "pmatrix",
    "smallmatrix": "pmatrix",
    "dcases": "cases",
    "rcases": "cases",
}
_SHORT_WORDS = frozenset(("or", "if", "is", "of", "in", "to", "an", "as", "at", "by", "no", "on", "be", "we"))
_WORDS = {
    "for": "if", "when": "if", "whenever": "if", "provided": "if", "else": "otherwise", "mod": "bmod",
    "gcd": "gcd", "lcm": "lcm", "exists": "exists", "forall": "forall",
}  # fmt: skip
_OPENING, _CLOSING = frozenset(("(", "[", "\\{", "{")), frozenset((")", "]", "\\}", "}"))
_LINKS = frozenset(
    (  # noqa: SIM905  # a list of twenty strings is harder to read
        "land lor lnot implies iff forall exists and or if otherwise where then with such that is integer"
    ).split()
)
_RELATED = frozenset(
    (  # noqa: SIM905  # a list of thirty strings is harder to read
        "= < > <= >= != in notin ni subset subseteq subsetneq supset supseteq supsetneq approx sim simeq "
        "cong equiv perp parallel to mapsto propto nmid ll gg pmod leftarrow vdash models"
    ).split()
)
_DEEPEST = 30
_MOST = 400
"""Maximum number of symbols."""


def same_spelling(answer: str, reference: str) -> bool:
    """Return whether two tidied texts differ in spelling only, or in equal expressions at the same places."""
    if len(answer) > LONGEST or len(reference) > LONGEST:
        return False
    a, b = symbols(answer), symbols(reference)
    if [symbol.name for symbol in a] == [symbol.name for symbol in b]:
        return bool(a)
    return 0 < len(a) <= _MOST and 0 < len(b) <= _MOST and _same(a, b, 0)


def symbols(text: str) -> list[Symbol]:
    """Return the symbols of a text. Every character is in a symbol, except for layout."""
    found: list[Symbol] = []
    for match in _SYMBOL.finditer(text):
        kind = str(match.lastgroup)
        value = match[kind]
        if kind == "words":
            found += [_word(word, match[0]) for word in _WORD.findall(value)]
        elif kind == "word":
            parts = [value] if len(value) > 2 or value in _SHORT_WORDS else list(value)
            found += [_word(part, part) for part in parts]
        elif kind == "environment":
            name = _ENVIRONMENTS.get(value.rstrip("*"), value.rstrip("*"))
            found.append(Symbol(f"{match['edge']} {name}", match[0]))
        elif kind == "command":
            if value not in _LAYOUT:
                found.append(Symbol(_SYNONYMS.get(value, value), f"\\{value}"))
        elif kind == "escaped":
            if value not in "!,;: ":
                found.append(Symbol("||" if value == "|" else f"\\{value}", match[0]))
        elif kind == "dots":
            found.append(Symbol("...", "..."))
        elif kind == "row":
            found.append(Symbol("row", value))
        elif kind != "space":
            found.append(Symbol(_SIGNS.get(value, value), value))
    return _canonical([symbol for symbol in found if symbol.name])


def _word(word: str, text: str) -> Symbol:
    if len(word) < 2 or not word.isalpha():
        return Symbol(word, word)
    plain = word.casefold()
    return Symbol(_WORDS.get(plain, plain), word)


def _canonical(found: list[Symbol]) -> list[Symbol]:
    """Return the symbols without optional braces and commas, and with set bars written alike."""
    result: list[Symbol] = []
    braces: list[str] = []
    for index, symbol in enumerate(found):
        name = symbol.name
        following = found[index + 1].name if index + 1 < len(found) else ""
        previous = result[-1].name if result else ""
        if name in (",", ".") and (
            following in ("", "row", "&", "if", "and", "or") or following.startswith("end ")
        ):
            continue
        if name == "row" and following.startswith("end "):
            continue
        if name == "&" and following == "if":
            continue
        if previous == "frac" and len(name) > 1 and name.isdigit():  # \frac12
            result += [Symbol(digit, digit) for digit in name]
            continue
        if name in _OPENING:
            braces.append(name)
        elif name in _CLOSING and braces:
            braces.pop()
        if name == ":" and braces[-1:] == ["\\{"]:
            symbol = Symbol("|", ":")
        elif name == ":" and any(other.name in ("forall", "exists") for other in result):
            symbol = Symbol(",", ",")
        if name == "all" and previous == "if":  # for all
            result[-1] = Symbol("forall", "\\forall")
            continue
        if name == "exists" and previous == "there":
            result.pop()
        result.append(symbol)
        if (
            name == "}"
            and len(result) > 2
            and result[-3].name == "{"
            and result[-2].name not in _OPENING | _CLOSING
        ):
            result[-3:] = [result[-2]]
    return result


# -- places -----------------------------------------------------------------------------------


def _same(a: Sequence[Symbol], b: Sequence[Symbol], depth: int) -> bool:
    if [symbol.name for symbol in a] == [symbol.name for symbol in b]:
        return True
    if depth > _DEEPEST or not a or not b:
        return False
    for separates in _SEPARATORS:
        parts, others = _split(a, separates), _split(b, separates)
        if len(parts) == len(others) == 1:
            continue
        return (
            len(parts) == len(others)
            and all(x[0] == y[0] for x, y in zip(parts, others, strict=True))
            and all(_same(x[1], y[1], depth + 1) for x, y in zip(parts, others, strict=True))
        )
    return _same_values(a, b) or _same_groups(a, b, depth)


_SEPARATORS: tuple[Callable[[Symbol], bool], ...] = (
    lambda symbol: symbol.name == "row",
    lambda symbol: symbol.name == "&",
    lambda symbol: symbol.name in _LINKS,
    lambda symbol: symbol.name == ",",
    lambda symbol: symbol.name in _RELATED,
)
"""What separates the parts of a text, from loose to tight."""


def _split(text: Sequence[Symbol], separates: Callable[[Symbol], bool]) -> list[tuple[str, list[Symbol]]]:
    """Return the parts outside of brackets, each with the separator before it."""
    parts: list[tuple[str, list[Symbol]]] = [("", [])]
    depth = 0
    for symbol in text:
        opens = symbol.name in _OPENING or symbol.name.startswith("begin ")
        closes = symbol.name in _CLOSING or symbol.name.startswith("end ")
        depth += opens - closes
        if not depth and not closes and separates(symbol):
            parts.append((symbol.name, []))
        else:
            parts[-1][1].append(symbol)
    return parts


def _same_values(a: Sequence[Symbol], b: Sequence[Symbol]) -> bool:
    names = {symbol.name for symbol in (*a, *b)}
    if {"times", "*"} <= names:  # a cross product is no dot product
        return False
    trees = [read(" ".join(symbol.text for symbol in text)) for text in (a, b)]
    if trees[0] is None or trees[1] is None:
        return False
    if trees[0][0] not in EXPRESSIONS or trees[1][0] not in EXPRESSIONS:
        return False
    return bool(same_expressions(trees[0], trees[1]))


def _same_groups(a: Sequence[Symbol], b: Sequence[Symbol], depth: int) -> bool:
    """Compare bracket by bracket; what is outside of brackets must be spelled alike."""
    outside, inside = _groups(a)
    other_outside, other_inside = _groups(b)
    if outside != other_outside or not inside:
        return False
    return all(_same(x, y, depth + 1) for x, y in zip(inside, other_inside, strict=True))


def _groups(text: Sequence[Symbol]) -> tuple[list[str], list[list[Symbol]]]:
    """Return the names outside of brackets, and the contents of the brackets."""
    outside: list[str] = []
    inside: list[list[Symbol]] = []
    depth = 0
    for symbol in text:
        opens = symbol.name in _OPENING or symbol.name.startswith("begin ")
        closes = symbol.name in _CLOSING or symbol.name.startswith("end ")
        depth -= closes
        if depth <= 0:
            outside.append(symbol.name)
        else:
            inside[-1].append(symbol)
        if opens:
            if not depth:
                inside.append([])
            depth += 1
    return outside, inside
