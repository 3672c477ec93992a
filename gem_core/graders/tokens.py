"""The tokenizer of mathematical answers: tidied text, and tokens with a reading position."""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

from gem_core.graders.units import UNITS

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n", strict=True))
_SUPER = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_VULGAR = re.compile(r"(\d*)\s*([¼-¾⅐-⅞])")
_UNICODE = {
    "−": "-", "–": "-", "—": "-", "×": "*", "·": "*", "⋅": "*", "∙": "*", "÷": "/", "⁄": "/", "∕": "/",
    "π": r"\pi ", "∞": r"\infty ", "√": r"\sqrt ", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ",
    "≠": r"\ne ", "∪": r"\cup ", "∅": r"\emptyset ", "∈": r"\in ", "°": r"^\circ ", "±": r"\pm ",
    "ℝ": r"\mathbb{R}", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "λ": r"\lambda ", "′": "'",
}  # fmt: skip
_UNICODE_ANY = re.compile("|".join(map(re.escape, _UNICODE)))
_DROPPED = re.compile(
    r"\\(?:left|right|displaystyle|textstyle|bigl|bigr|Bigl|Bigr|big|Big|limits|quad|qquad|hfill)(?![A-Za-z])\.?"
    r"|(?<!\\)\\[!,;: ]|\\\(|\\\)|\\\[(?!\d)|\\\](?!\d)|\\?\$|~|\u200b|\ufeff"
)
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:,|\{,\})\d{3})+(?![\d,])")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar|dot)\{?(\d+)\}?")
_SPACED = re.compile(r"\d{1,3}(?: \d{3})+")
_MIXED = re.compile(r"(\d+) +(\d+ */ *\d+)")
_GROUP = re.compile(r"\\(?:text(?:bf|it|rm)?|mbox|(?P<math>math(?:rm|bf|it)))\s*\{(?P<content>[^{}]*)\}")
_QUANTITY = re.compile(r"[-+]?\.?\d[\d.,/ ]*%?(?P<unit>[A-Za-z][A-Za-z/ ]*)?")
_FORMULA = re.compile(r"(?=.*[(\[=])(?=.*\d)(?!.*[A-Za-z]{2}).*")
_AFTER_NUMBER = re.compile(r"(?:[\d)}%]|\\circ)\s*\Z")
_TOKEN = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox|rm|operatorname)\s*\{(?P<words>[^{}]*)\}"
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
    "lbrack": "[", "rbrack": "]",
}  # fmt: skip
_PLAIN_NAMES = {"sqrt": "sqrt", "pi": "pi", "infinity": "infty", "inf": "infty", "oo": "infty"}


MOST = 150
"""Maximum number of tokens to read; their tree is never too deep for a recursive function."""
_LETTERS = 6
"""Maximum number of adjacent letters that may be a product of variables."""


class Unreadable(Exception):
    """Raised when a text is not an answer that this module understands."""


def tidy(text: str) -> str:
    """Return the text without layout commands, dollar signs, thousands separators and Unicode signs."""
    text = text.strip()
    if not text.isascii():
        text = _VULGAR.sub(_vulgar, text)
        text = _SUPER.sub(lambda m: "^{" + "".join(_SUPERSCRIPTS[c] for c in m[0]) + "}", text)
        text = _UNICODE_ANY.sub(lambda m: _UNICODE[m[0]], text)
        text = unicodedata.normalize("NFKC", text)
    if "\\" in text or "$" in text or "~" in text:
        text = _DROPPED.sub(" ", text).strip()
        text = _REPEATING.sub(_repeating, text)
        text = (
            text.replace("\\%", "%")
            .replace("dfrac", "frac")
            .replace("tfrac", "frac")
            .replace("cfrac", "frac")
        )
        if "\\text" in text or "\\m" in text:
            text = _GROUP.sub(_content, text)
    text = text.strip().rstrip(".").strip()
    if "," in text and not any(mark in text for mark in "([") and "\\{" not in text:
        text = _THOUSANDS.sub(lambda m: m[0].replace("{,}", "").replace(",", ""), text)
    if " " in text:
        if _SPACED.fullmatch(text):
            text = text.replace(" ", "")
        text = _MIXED.sub(r"(\1+\2)", text)
    return text


def _content(match: re.Match[str]) -> str:
    r"""Return the content of a text group that is math: ``\text{5 cm}``, ``\mathbf{42}``, ``\mathrm{i}``.

    A letter after a number is a unit, except for i.
    """
    content = match["content"].strip()
    after_number = _AFTER_NUMBER.search(match.string, max(0, match.start() - 9), match.start())
    if len(content) == 1 and content.isalpha():
        opened = content == "i" or not after_number
    elif after_number:
        opened = False
    elif match["math"]:
        opened = any(map(str.isdigit, content))
    elif quantity := _QUANTITY.fullmatch(content):
        units = (quantity["unit"] or "").replace("/", " ").split()
        opened = all(len(unit) > 2 or unit in UNITS for unit in units)
    else:
        opened = _FORMULA.fullmatch(content) is not None
    return f" {content} " if opened else match[0]


def _vulgar(match: re.Match[str]) -> str:
    top, bottom = unicodedata.normalize("NFKC", match[2]).split("\u2044")
    return f"({match[1] or 0}+{top}/{bottom})"


def _repeating(match: re.Match[str]) -> str:
    whole, fixed, again = match.groups()
    scale = 10 ** len(fixed)
    value = Fraction(int(whole + fixed or "0"), scale) + Fraction(int(again), scale * (10 ** len(again) - 1))
    return f"({value})" if len(again) < 20 else match[0]


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
        unit = word in UNITS and after_number and (spaced or len(word) > 1)
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
