"""The tokenizer of mathematical answers: tokens with a reading position."""

from __future__ import annotations

import re

from gem_envs.graders._units import PREFIXES, UNITS

_TOKEN = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|mathtt|mbox|rm|operatorname\*?)\s*"
    r"\{(?P<words>[^{}]*)\}"
    r"|\\begin\{(?P<begin>[a-z]+)\}(?:\{[lcr|]*\})?|\\end\{(?P<end>[a-z]+)\}"
    r"|\\mathbb(?:\s*(?P<blackboard>[A-Z])|\s*\{\s*(?P<blackboard_group>[A-Z])\s*\})"
    r"|_\s*(?P<sub>[0-9A-Za-z]|\\[A-Za-z]+(?![A-Za-z{])|\{(?:[^{}]|\{[^{}]*\})+\})"
    r"|(?P<name>\\(?:vec|hat|bar|overline|overrightarrow|tilde|widehat|widetilde|mathcal|mathfrak|mathscr)\s*"
    r"(?:\{[^{}]*\}|[A-Za-z]|\\[a-z]+)|\\(?:angle|triangle)\s*(?:[A-Z]+|\{[A-Z ]+\}))"
    r"|(?P<row>\\\\)|\\(?P<command>[A-Za-z]+)|\\(?P<escaped>[{}|%#&])"
    r"|(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3}(?!\d))?)|(?P<word>[A-Za-z]+)|(?P<space>\s+)"
    r"|(?P<prime>'+)|(?P<sign>\*\*|<=|>=|!=|!!|[-+*/^=<>(){}\[\],;:!|%&])"
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
    "lbrack": "[", "rbrack": "]", "colon": ":", "in": "in", "notin": "notin", "subset": "subset",
    "subseteq": "subseteq", "subsetneq": "subsetneq", "supset": "supset", "supseteq": "supseteq",
    "equiv": "equiv", "approx": "approx", "sim": "sim", "perp": "perp", "parallel": "parallel", "to": "to",
    "rightarrow": "to", "cup": "cup", "cap": "cap", "setminus": "setminus", "backslash": "setminus",
    "bmod": "bmod", "pmod": "pmod", "mod": "bmod", "nmid": "nmid",
}  # fmt: skip
RELATIONS = frozenset(
    (  # noqa: SIM905  # a list of twenty strings is harder to read
        "= < > <= >= != in notin subset subseteq subsetneq supset supseteq approx sim perp parallel"
    ).split()
)
OPERATORS = frozenset(
    (
        "gcd",
        "lcm",
        "max",
        "min",
        "det",
        "arg",
        "dim",
        "rank",
        "deg",
        "tr",
        "Re",
        "Im",
        "Var",
        "Cov",
        "expectation",
        "Pr",
        "lg",
    )
)
"""Names of functions that are read, but not computed unless their arguments are numbers."""
_LINKS = {"lor": "or", "vee": "or", "land": "and", "wedge": "and"}
_SHORT_WORDS = frozenset(("if", "is", "of", "at", "by", "as"))
_DIFFERENTIAL = re.compile(r"d[xytuvzrs]")
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
        self.integrals = "\\int" in text
        for match in _TOKEN.finditer(text):
            if match.start() != place:
                raise Unreadable
            place = match.end()
            kind = str(match.lastgroup)
            value = match[kind]
            kind = "blackboard" if kind == "blackboard_group" else kind
            if kind == "space":
                spaced = True
                continue
            if kind == "word":
                if self.integrals and len(value) > 2 and _DIFFERENTIAL.fullmatch(value[-2:]):
                    self.tokens.append(("word", value[:-2]))
                    value = value[-2:]
                kind, value = self._word(value, spaced)
            elif kind == "words" and value.strip() in OPERATORS:
                kind, value = "command", value.strip()
            elif kind in ("name", "sub"):
                value = "".join(value.split()).strip("{}") if kind == "sub" else _accent(value)
            elif kind == "command" and value in _COMMANDS:
                kind, value = "sign", _COMMANDS[value]
            elif kind == "command" and value in _LINKS:
                kind, value = "words", _LINKS[value]
            elif kind == "escaped":
                kind, value = "sign", "%" if value == "%" else "\\" + value
            spaced = False
            self.tokens.append((kind, value))
        if place != len(text) or len(self.tokens) > MOST:
            raise Unreadable
        self.tokens.append(("end of text", ""))
        self.at = 0
        self.depth = 0

    def _word(self, word: str, spaced: bool) -> tuple[str, str]:
        after_number = bool(self.tokens) and (
            self.tokens[-1][0] == "number" or self.tokens[-1][1] in (")", "}")
        )
        named = word in ("gcd", "lcm", "max", "min") and not after_number
        if word in FUNCTIONS or word in _PLAIN_NAMES or named:
            return "command", _PLAIN_NAMES.get(word, word)
        if _DIFFERENTIAL.fullmatch(word):
            return "name", word
        if word in _SHORT_WORDS and spaced:
            return "words", word
        unit = (word in UNITS or word in PREFIXES) and after_number and (spaced or len(word) > 1)
        if len(word) == 1 and any(kind in ("word", "name") for kind, _ in self.tokens):
            unit = False  # r^2 h has the height h
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


def _accent(text: str) -> str:
    r"""Return the name of a letter with an accent: ``\\vec{v}`` and ``\\vec v`` have the same."""
    command, _, content = text.replace("{", " ").replace("}", " ").strip().partition(" ")
    if not content:  # \\vec\\alpha
        command, _, content = command[1:].partition("\\")
        return f"{command} {content}"
    return f"{command[1:]} {''.join(content.split())}"
