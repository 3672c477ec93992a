r"""Reading a mathematical answer: LaTeX or plain text to a tree.

`read` understands what answers of text books hold (numbers, fractions, roots, powers, functions, tuples,
sets, intervals, unions, matrices, relations, units, words) and returns None for everything else, so that
a wrong tree is not made where the text is not understood. It takes time linear in the text, which is cut
off at `LONGEST`, and nesting is bounded.

A tree is made of tuples. Expressions: ``("n", value, digits)`` with the decimals of a literal or None,
``("v", name)``, ``("+", a, b)``, ``("*", a, b)``, ``("/", a, b)``, ``("^", a, b)``, ``("-", a)``,
``("f", name, a, extra)``. Around them: ``("seq", open, close, items)``, ``("matrix", rows)``,
``("union", items)``, ``("rel", operands, signs)``, ``("text", words)``, ``("unit", expression, unit)``.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from typing import Any, TypeAlias

Tree: TypeAlias = tuple[Any, ...]
LONGEST = 1000
"""Characters of an answer that are worth reading."""
_DEEPEST = 40

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n", strict=True))
_SUPER = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_VULGAR = re.compile(r"(\d*)\s*([¼-¾⅐-⅞])")
_UNICODE = {
    "−": "-", "–": "-", "—": "-", "×": "*", "·": "*", "⋅": "*", "∙": "*", "÷": "/", "⁄": "/", "∕": "/",
    "π": r"\pi ", "∞": r"\infty ", "√": r"\sqrt ", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ",
    "≠": r"\ne ", "∪": r"\cup ", "∅": r"\emptyset ", "∈": r"\in ", "°": r"^\circ ", "±": r"\pm ",
    "ℝ": r"\mathbb{R}", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "λ": r"\lambda ", "′": "'",
    "½": "½", "％": "%",
}  # fmt: skip
_UNICODE_ANY = re.compile("|".join(map(re.escape, _UNICODE)))
_DROPPED = re.compile(
    r"\\(?:left|right|displaystyle|textstyle|bigl|bigr|Bigl|Bigr|big|Big|limits|quad|qquad|hfill)(?![A-Za-z])\.?"
    r"|\\[!,;: ]|\\\(|\\\)|\\\[(?!\d)|\\\](?!\d)|\\?\$|~|\u200b|\ufeff"
)
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:,|\{,\})\d{3})+(?![\d,])")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar|dot)\{?(\d+)\}?")
_SPACED = re.compile(r"\d{1,3}(?: \d{3})+")
_MIXED = re.compile(r"(\d+) +(\d+ */ *\d+)")
_TOKEN = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox|rm|operatorname)\s*\{(?P<words>[^{}]*)\}"
    r"|\\begin\{(?P<begin>[a-z]+)\}(?:\{[lcr|]*\})?|\\end\{(?P<end>[a-z]+)\}"
    r"|\\mathbb\{?\s*(?P<blackboard>[A-Z])\}?|_(?P<sub>[0-9A-Za-z]|\{[0-9A-Za-z, ]+\})"
    r"|(?P<row>\\\\)|\\(?P<command>[A-Za-z]+)|\\(?P<escaped>[{}|%#&])"
    r"|(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)|(?P<word>[A-Za-z]+)|(?P<space>\s+)"
    r"|(?P<sign>\*\*|<=|>=|!=|[-+*/^=<>(){}\[\],;:!|%&'])"
)
FUNCTIONS = frozenset(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log exp asin acos atan".split()
)
_COMMANDS = {
    "cdot": "*", "times": "*", "ast": "*", "div": "/", "le": "<=", "leq": "<=", "leqslant": "<=", "ge": ">=",
    "geq": ">=", "geqslant": ">=", "ne": "!=", "neq": "!=", "lt": "<", "gt": ">", "lbrace": "\\{",
    "rbrace": "\\}", "langle": "(", "rangle": ")", "lvert": "|", "rvert": "|", "vert": "|", "mid": "|",
    "lbrack": "[", "rbrack": "]",
}  # fmt: skip
_GREEK = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta kappa lambda mu nu xi rho sigma tau phi "
    "varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell".split()
)
_PLAIN_NAMES = {"sqrt": "sqrt", "pi": "pi", "infinity": "infty", "inf": "infty", "oo": "infty"}
_PART_OF_EXPRESSION = frozenset({"n", "v", "+", "*", "/", "^", "-", "f"})


class Unreadable(Exception):
    """The text is no answer that this module understands."""


def tidy(text: str) -> str:
    """The text without decoration: layout commands, dollar signs, thousands separators, Unicode signs."""
    text = text.strip()
    if not text.isascii():
        text = _VULGAR.sub(_vulgar, text)
        text = _SUPER.sub(lambda m: "^{" + "".join(_SUPERSCRIPTS[c] for c in m[0]) + "}", text)
        text = _UNICODE_ANY.sub(lambda m: _UNICODE[m[0]], text)
        text = unicodedata.normalize("NFKC", text)
    if "\\" in text or "$" in text or "~" in text:
        text = _DROPPED.sub(" ", text).strip()
        text = _REPEATING.sub(_repeating, text)
        text = text.replace("\\%", "%").replace("dfrac", "frac").replace("tfrac", "frac").replace("cfrac", "frac")
    text = text.strip().rstrip(".").strip()
    if "," in text and not any(mark in text for mark in "([" ) and "\\{" not in text:
        text = _THOUSANDS.sub(lambda m: m[0].replace("{,}", "").replace(",", ""), text)
    if " " in text:
        if _SPACED.fullmatch(text):
            text = text.replace(" ", "")
        text = _MIXED.sub(r"(\1+\2)", text)
    return text


def read(text: str) -> Tree | None:
    """The tree of a tidy text, or None."""
    if not text or len(text) > LONGEST:
        return None
    if "\\pm" in text or "\\mp" in text:  # one text for each sign
        plus = read(text.replace("\\pm", "+").replace("\\mp", "-"))
        minus = read(text.replace("\\pm", "-").replace("\\mp", "+"))
        return None if plus is None or minus is None else ("seq", "", "", [_value_of(plus), _value_of(minus)])
    try:
        return _Reader(text).answer()
    except (Unreadable, ValueError, IndexError):
        return None


def _value_of(tree: Tree) -> Tree:
    return tree[1][-1] if tree[0] == "rel" and set(tree[2]) == {"="} else tree


def _vulgar(match: re.Match[str]) -> str:
    top, bottom = unicodedata.normalize("NFKC", match[2]).split("\u2044")
    return f"({match[1] or 0}+{top}/{bottom})"


def _repeating(match: re.Match[str]) -> str:
    whole, fixed, again = match.groups()
    scale = 10 ** len(fixed)
    value = Fraction(int(whole + fixed or "0"), scale) + Fraction(int(again), scale * (10 ** len(again) - 1))
    return f"({value})" if len(again) < 20 else match[0]


class _Reader:
    """Recursive descent over the tokens of one text."""

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
        if place != len(text):
            raise Unreadable
        self.tokens.append(("end of text", ""))
        self.at = 0
        self.depth = 0

    def _word(self, word: str, spaced: bool) -> tuple[str, str]:
        if word in FUNCTIONS or word in _PLAIN_NAMES:
            return "command", _PLAIN_NAMES.get(word, word)
        after_number = bool(self.tokens) and (self.tokens[-1][0] == "number" or self.tokens[-1][1] in (")", "}"))
        unit = word in UNITS and after_number and (spaced or len(word) > 1)
        wordy = len(word) > 2 and (spaced or not after_number)  # 2xyz is a product, 2 xyz has a unit
        return ("words", word) if wordy or unit else ("word", word)

    # -- tokens -------------------------------------------------------------------------------

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

    # -- grammar ------------------------------------------------------------------------------

    def answer(self) -> Tree:
        if all(kind in ("words", "word") for kind, _ in self.tokens[:-1]) and (
            len(self.tokens) > 2 or self.kind == "words"
        ):
            return ("text", " ".join(" ".join(value for _, value in self.tokens[:-1]).split()).casefold())
        items = self.items("")
        if self.kind != "end of text":
            raise Unreadable
        return items[0] if len(items) == 1 else ("seq", "", "", items)

    def items(self, end: str) -> list[Tree]:
        """Elements between separators."""
        found = [self.element()]
        while True:
            comma = self.take(",") or self.take(";")
            link = self.kind == "words" and self.tokens[self.at][1].strip().casefold() in ("and", "or", "")
            if link:
                self.at += 1
            if not (comma or link):
                return found
            found.append(self.element())

    def element(self) -> Tree:
        """A relation, a union or a single value."""
        operands, signs = [self.union()], []
        while self.next in ("=", "<", ">", "<=", ">=", "!="):
            signs.append(self.need("=", "<", ">", "<=", ">=", "!="))
            operands.append(self.union())
        if self.kind == "command" and self.tokens[self.at][1] == "in":  # x in a set: the set counts
            self.at += 1
            return self.union()
        if self.next == ":" and not signs:
            while self.take(":"):
                operands.append(self.sum())
            return ("seq", ":", ":", operands)
        return ("rel", operands, signs) if signs else operands[0]

    def union(self) -> Tree:
        parts = [self.valued()]
        while self.kind == "command" and self.tokens[self.at][1] == "cup":
            self.at += 1
            parts.append(self.valued())
        return ("union", parts) if len(parts) > 1 else parts[0]

    def valued(self) -> Tree:
        """An expression with its unit, or something with brackets."""
        if self.kind == "words":
            return ("text", self.words())
        tree = self.sum()
        if tree[0] not in _PART_OF_EXPRESSION:
            return tree
        unit = ""
        if self.take("%"):
            unit = "%"
        elif tree[0] == "f" and tree[1] == "deg":
            tree, unit = tree[2], "degree"
        elif self.kind == "words" and self.tokens[self.at][1].strip().casefold() not in ("and", "or", ""):
            unit = self.words()
            if self.take("^"):
                unit += f"^{self.unit_power()}"
        elif self.kind == "sub":
            unit = f"base {self.tokens[self.at][1].strip('{} ')}"
            self.at += 1
        return ("unit", tree, unit) if unit else tree

    def words(self) -> str:
        words = []
        while self.kind in ("words", "word") or (words and self.take("/")):
            if self.kind in ("words", "word"):
                if self.tokens[self.at][1].strip().casefold() in ("and", "or") and words:
                    break
                words.append(self.tokens[self.at][1])
                self.at += 1
            else:
                words.append("per")
        return " ".join(" ".join(words).split()).casefold()

    def unit_power(self) -> str:
        brace = self.take("{")
        kind, value = self.tokens[self.at]
        if kind != "number":
            raise Unreadable
        self.at += 1
        if brace:
            self.need("}")
        return value

    def sum(self) -> Tree:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise Unreadable
        tree = self.term()
        while self.next in ("+", "-"):
            minus = self.need("+", "-") == "-"
            right = _expression(self.term())
            tree = ("+", _expression(tree), ("-", right) if minus else right)
        self.depth -= 1
        return tree

    def term(self) -> Tree:
        tree = self.factor()
        while True:
            if self.next in ("*", "/"):
                sign = self.need("*", "/")
                tree = (sign, _expression(tree), _expression(self.factor()))
            elif tree[0] in _PART_OF_EXPRESSION and self.starts_atom():
                tree = ("*", tree, _expression(self.power()))
            else:
                return tree

    def starts_atom(self) -> bool:
        kind, value = self.tokens[self.at]
        if kind == "command":
            return value not in ("cup", "cap", "in", "circ", "to", "rfloor", "rceil")
        return kind in ("number", "word", "blackboard") or value in ("(", "{") or (
            kind == "begin"
        )

    def factor(self) -> Tree:
        signs = 0
        while self.next in ("+", "-"):
            signs += self.need("+", "-") == "-"
        tree = self.power()
        return ("-", _expression(tree)) if signs % 2 else tree

    def power(self) -> Tree:
        tree = self.atom()
        while True:
            if self.next in ("^", "**"):
                self.at += 1
                if self.degree():
                    tree = ("f", "deg", _expression(tree), None)
                    continue
                tree = ("^", _expression(tree), self.argument())
            elif self.next == "!" and tree[0] in _PART_OF_EXPRESSION:
                self.at += 1
                tree = ("f", "!", tree, None)
            elif self.next == "'":
                raise Unreadable
            else:
                return tree

    def degree(self) -> bool:
        brace = self.tokens[self.at] == ("sign", "{")
        if self.tokens[self.at + brace] != ("command", "circ"):
            return False
        self.at += 1 + brace
        if brace:
            self.need("}")
        return True

    def argument(self) -> Tree:
        r"""What a power, a root or a fraction applies to: a group, or the next digit, letter or command."""
        if self.take("{"):
            tree = self.sum()
            self.need("}")
            return _expression(tree)
        kind, value = self.tokens[self.at]
        if self.next == "(":
            return _expression(self.atom())
        if self.next == "-":
            self.at += 1
            return ("-", self.argument())
        if kind == "number" and len(value) > 1 and self.tight:
            self.tokens[self.at] = (kind, value[1:])  # \frac12 and x^23 take one digit
            return ("n", Fraction(value[0]), None)
        if kind == "word" and len(value) > 1:
            self.tokens[self.at] = (kind, value[1:])
            return ("v", value[0])
        return _expression(self.atom())

    tight = False
    """Whether `argument` takes one digit only, as in ``\\frac12``."""

    def atom(self) -> Tree:
        kind, value = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            literal = ("n", Fraction(value), len(value.partition(".")[2]) if "." in value and "e" not in value.lower() else None)
            return self.mixed(literal) if literal[2] is None else literal
        if kind == "word":
            if len(value) > 1:  # letters side by side are factors
                self.tokens.insert(self.at, ("word", value[1:]))
            return self.subscripted(value[0])
        if kind == "command":
            return self.command(value)
        if kind == "begin":
            return self.matrix(value)
        if kind == "blackboard":
            return ("v", f"blackboard {value}")
        if kind == "sign":
            return self.bracket(value)
        raise Unreadable

    def subscripted(self, name: str) -> Tree:
        if self.kind == "sub":
            name += "_" + self.tokens[self.at][1].strip("{} ")
            self.at += 1
        return ("v", name)

    def mixed(self, whole: Tree) -> Tree:
        r"""``2\frac{1}{3}`` is two and a third."""
        if whole[1].denominator != 1 or self.tokens[self.at] != ("command", "frac"):
            return whole
        start = self.at
        self.at += 1
        fraction = self.fraction()
        top, bottom = fraction[1], fraction[2]
        if top[0] == bottom[0] == "n" and 0 < top[1] < bottom[1]:
            return ("+", whole, fraction)
        self.at = start
        return whole

    def fraction(self) -> Tree:
        self.tight = True
        top, bottom = self.argument(), self.argument()
        self.tight = False
        return ("/", top, bottom)

    def command(self, name: str) -> Tree:
        if name == "frac":
            return self.fraction()
        if name == "sqrt":
            degree = None
            if self.take("["):
                degree = _expression(self.sum())
                self.need("]")
            self.tight = True
            inner = self.argument()
            self.tight = False
            return ("f", "sqrt", inner, degree)
        if name == "binom":
            return ("f", "binom", self.argument(), self.argument())
        if name in FUNCTIONS:
            return self.function(name)
        if name in ("pi", "infty", "emptyset", "varnothing"):
            if name in ("emptyset", "varnothing"):
                return ("seq", "\\{", "\\}", [])
            return ("v", name)
        if name in _GREEK:
            return self.subscripted(name)
        if name in ("lfloor", "lceil"):
            inner = _expression(self.sum())
            if self.tokens[self.at] != ("command", "r" + name[1:]):
                raise Unreadable
            self.at += 1
            return ("f", name[1:], inner, None)
        raise Unreadable

    def function(self, name: str) -> Tree:
        base = power = None
        if self.kind == "sub":
            base = read(self.tokens[self.at][1].strip("{} "))
            self.at += 1
        if self.take("^"):
            power = self.argument()
            if power == ("-", ("n", 1, None)):
                name, power = "arc" + name, None
        if self.next in ("(", "{"):
            inner = self.argument()
        else:
            inner = _expression(self.power())
            while self.kind in ("number", "word") or self.tokens[self.at] == ("command", "pi"):
                inner = ("*", inner, _expression(self.power()))
            if self.next == "/" and self.tokens[self.at + 1][0] == "number":  # sin pi/6
                self.at += 1
                inner = ("/", inner, _expression(self.atom()))
        tree: Tree = ("f", name, inner, base)
        return ("^", tree, power) if power else tree

    def matrix(self, name: str) -> Tree:
        if name not in ("pmatrix", "bmatrix", "matrix", "array", "Bmatrix", "smallmatrix"):
            raise Unreadable
        rows: list[list[Tree]] = [[]]
        while True:
            rows[-1].append(_expression(self.sum()))
            if self.kind == "row":
                self.at += 1
                if self.kind == "end":
                    break
                rows.append([])
            elif not self.take("&"):
                break
        if self.kind != "end" or len({len(row) for row in rows}) != 1:
            raise Unreadable
        self.at += 1
        return ("matrix", rows)

    def bracket(self, opening: str) -> Tree:
        closing = {"(": (")", "]"), "[": ("]", ")"), "\\{": ("\\}",), "{": ("}",), "|": ("|",)}.get(opening)
        if closing is None:
            raise Unreadable
        if opening == "\\{" and self.take("\\}"):
            return ("seq", "\\{", "\\}", [])
        self.depth += 1
        if self.depth > _DEEPEST:
            raise Unreadable
        items = self.items(closing[0])
        end = self.need(*closing)
        self.depth -= 1
        if opening == "|":
            return ("f", "abs", _expression(items[0]), None) if len(items) == 1 else _fail()
        if opening == "{" and len(items) > 1:  # a set as Python writes it
            opening, end = "\\{", "\\}"
        if len(items) == 1 and opening != "\\{":
            return items[0] if (opening, end) in (("(", ")"), ("{", "}"), ("[", "]")) else _fail()
        return ("seq", opening, end, items)


def _expression(tree: Tree) -> Tree:
    return tree if tree[0] in _PART_OF_EXPRESSION else _fail()


def _fail() -> Tree:
    raise Unreadable


def _unit_table() -> dict[str, tuple[str, Fraction]]:
    sizes: dict[str, dict[str, int | str]] = {
        "length": {"mm": "1/1000", "cm": "1/100", "m": 1, "km": 1000, "inch": "254/10000", "ft": "3048/10000"},
        "time": {"s": 1, "min": 60, "h": 3600, "day": 86400, "week": 604800},
        "mass": {"mg": "1/1000", "g": 1, "kg": 1000},
        "volume": {"ml": "1/1000", "l": 1},
        "money": {"cent": "1/100", "dollar": 1},
    }
    names = {
        "mm": "millimeter millimetre", "cm": "centimeter centimetre", "m": "meter metre", "km": "kilometer kilometre",
        "inch": "in inches", "ft": "foot feet", "s": "sec second", "min": "minute", "h": "hr hour", "mg": "milligram",
        "g": "gram", "kg": "kilogram kgs", "ml": "milliliter millilitre mL", "l": "liter litre L", "cent": "",
        "day": "", "week": "", "dollar": "",
    }  # fmt: skip
    table = {}
    for dimension, units in sizes.items():
        for unit, factor in units.items():
            for name in (unit, *names[unit].split()):
                table[name] = table[f"{name}s"] = (dimension, Fraction(factor))
    return table


UNITS = _unit_table()
"""Dimension and size of the units that can be converted."""
