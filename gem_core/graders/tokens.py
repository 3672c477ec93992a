"""The tokenizer of mathematical answers: tokens with a reading position."""

from __future__ import annotations

import re

from gem_core.graders.units import PREFIXES, UNITS

_TOKEN = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|mathtt|mbox|rm|operatorname)\s*\{(?P<words>[^{}]*)\}"
    r"|\\begin\{(?P<begin>[a-z]+)\}(?:\{[lcr|]*\})?|\\end\{(?P<end>[a-z]+)\}"
    r"|\\mathbb\{?\s*(?P<blackboard>[A-Z])\}?|_(?P<sub>[0-9A-Za-z]|\{[0-9A-Za-z, ]+\})"
    r"|(?P<row>\\\\)|\\(?P<command>[A-Za-z]+)|\\(?P<escaped>[{}|%#&])"
    r"|(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3}(?!\d))?)|(?P<word>[A-Za-z]+)|(?P<space>\s+)"
    r"|(?P<sign>\*\*|<=|>=|!=|[-+*/^=<>(){}\[\],;:!|%&'])"
)
FUNCTIONS = frozenset(
    (  # noqa: SIM905  # a list of seventeen strings is harder to read
        "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log exp asin acos atan"
    ).split()
)
_COMMANDS = {
    "cdot": "*", "times": "*", "ast": "*", "div": "/", "le": "<=", "leq": "<=", "leqslant": "<=", "ge": ">=",
    "geq": ">=", "geqslant": ">=", "ne": "!=", "neq": "!=", "lt": "<", "gt": ">", "lbrace": "\\{",
    "rbrace": "\\}", "langle": "(", "rangle": ")", "lvert": "|", "rvert": "|", "vert": "|", "mid": "|",
    "lbrack": "[", "rbrack": "]", "colon": ":",
}  # fmt: skip
_LINKS = {"lor": "or", "vee": "or", "land": "and", "wedge": "and"}
_PLAIN_NAMES = {"sqrt": "sqrt", "pi": "pi", "infinity": "infty", "inf": "infty", "oo": "infty"}


MOST = 150
"""Maximum number of tokens to read; their tree is never too deep for a recursive function."""
_LETTERS = 6
"""Maximum number of adjacent letters that may be a product of variables."""


class Unreadable(Exception):
    """Raised when a text is not an answer that this module understands."""


class Tokens:
    """The tokens of one text, and the reading position."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        place = 0
        spaced = False
        for match in _TOKEN.finditer(text):
            if match.start() != place:
                raise Unreadable
            place = match.end()
            kind = str(match.lastgroup)
            value = match[kind]
            if kind == "space":
                spaced = True
                continue
            if kind == "word":
                kind, value = self._word(value, spaced)
            elif kind == "command" and value in _COMMANDS:
                kind, value = "sign", _COMMANDS[value]
            elif kind == "command" and value in _LINKS:
                kind, value = "words", _LINKS[value]
            elif kind == "escaped":
                kind, value = "sign", "|" if value == "|" else "%" if value == "%" else "\\" + value
            spaced = False
            self.tokens.append((kind, value))
        if place != len(text) or len(self.tokens) > MOST:
            raise Unreadable
        self.tokens.append(("end of text", ""))
        self.at = 0
        self.depth = 0

    def _word(self, word: str, spaced: bool) -> tuple[str, str]:
        if word in FUNCTIONS or word in _PLAIN_NAMES:
            return "command", _PLAIN_NAMES.get(word, word)
        after_number = bool(self.tokens) and (
            self.tokens[-1][0] == "number" or self.tokens[-1][1] in (")", "}")
        )
        unit = (word in UNITS or word in PREFIXES) and after_number and (spaced or len(word) > 1)
        unit = unit or (word in ("C", "F") and ("command", "circ") in self.tokens[-2:])
        wordy = len(word) > 2 and (spaced or not after_number)  # 2xyz is a product, 2 xyz has a unit
        if len(word) > _LETTERS and not (wordy or unit):
            raise Unreadable
        return ("words", word) if wordy or unit or word in ("or", "and") else ("word", word)

    @property
    def next(self) -> str:
        kind, value = self.tokens[self.at]
        return value if kind == "sign" else ""

    @property
    def kind(self) -> str:
        return self.tokens[self.at][0]

    def take(self, sign: str) -> bool:
        if self.next == sign:
            self.at += 1
            return True
        return False

    def need(self, *signs: str) -> str:
        value = self.next
        if value not in signs:
            raise Unreadable
        self.at += 1
        return value
