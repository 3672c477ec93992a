r"""Parser of mathematical answers, from LaTeX or plain text to a tree.

`read` understands the usual contents of textbook answers (numbers, fractions, roots, powers, functions,
tuples, sets, intervals, unions, matrices, relations, units, words) and returns None for everything else
rather than a wrong tree. Its time is linear in the length of the text, which is cut off at `LONGEST`, and
nesting is bounded.

A tree consists of tuples. Expressions: ``("n", value, digits)`` with the decimals of a literal or None,
``("v", name)``, ``("+", a, b)``, ``("*", a, b)``, ``("/", a, b)``, ``("^", a, b)``, ``("-", a)``,
``("f", name, a, extra)``. Containers: ``("seq", open, close, items)``, ``("matrix", rows)``,
``("union", items)``, ``("rel", operands, signs)``, ``("text", words)``, ``("unit", expression, unit)``.
"""

from __future__ import annotations

import re

from gem_core.graders.expressions import DEEPEST, EXPRESSIONS, ExpressionReader, Tree, expression, fail
from gem_core.graders.tokens import Unreadable

LONGEST = 1000
"""Maximum number of characters of an answer to read."""

_SCALES = {"c": "celsius", "f": "fahrenheit"}


def read(text: str) -> Tree | None:
    """Return the tree of a tidied text, or None."""
    if not text or len(text) > LONGEST:
        return None
    if "\\pm" in text or "\\mp" in text:
        return _both_signs(text)
    try:
        return _AnswerReader(text).answer()
    except (Unreadable, ValueError, IndexError):
        return None


def _both_signs(text: str) -> Tree | None:
    r"""Return the values of a text with ``\\pm``, read once for each sign."""
    if any(part.count("\\pm") + part.count("\\mp") > 1 for part in re.split(r"[,;]|and|or", text)):
        return None  # the signs may be independent
    plus = read(text.replace("\\pm", "+").replace("\\mp", "-"))
    minus = read(text.replace("\\pm", "-").replace("\\mp", "+"))
    if plus is None or minus is None:
        return None
    if plus[0] == minus[0] == "seq" and plus[1] in ("", "\\{"):  # the elements without a sign occur twice
        return (*plus[:3], [*map(_value_of, plus[3]), *map(_value_of, minus[3])])
    return ("seq", "", "", [_value_of(plus), _value_of(minus)])


def _value_of(tree: Tree) -> Tree:
    return tree[1][-1] if tree[0] == "rel" and set(tree[2]) == {"="} else tree


class _AnswerReader(ExpressionReader):
    """Reads everything around expressions: lists, relations, unions, units, words, and brackets."""

    def answer(self) -> Tree:
        if (
            all(kind in ("words", "word") for kind, _ in self.tokens[:-1])
            and (len(self.tokens) > 2 or self.kind == "words")
            and not self.lists_letters()
        ):
            return ("text", " ".join(" ".join(value for _, value in self.tokens[:-1]).split()).casefold())
        items = self.items()
        if self.kind != "end of text":
            raise Unreadable
        if (
            len(items) > 1
            and self.links == {"or"}
            and all(item[0] == "rel" and "=" not in item[2] for item in items)
        ):
            return ("union", items)
        return items[0] if len(items) == 1 else ("seq", "", "", items)

    def lists_letters(self) -> bool:
        """Return whether the text is ``A and B``, which is a list rather than words."""
        links = [value.strip().casefold() for _, value in self.tokens[1:-1:2]]
        letters = self.tokens[:-1:2]
        return bool(links) and len(self.tokens) % 2 == 0 and set(links) <= {"and", "or"} and all(
            kind == "word" and len(value) == 1 for kind, value in letters
        )  # fmt: skip

    links: frozenset[str] | set[str] = frozenset()
    """Separators of the elements that were read last."""

    def items(self) -> list[Tree]:
        """Read the elements between separators."""
        items = [self.element()]
        links: set[str] = set()
        while True:
            comma = self.take(",") or self.take(";")
            word = self.tokens[self.at][1].strip().casefold() if self.kind == "words" else None
            if word in ("and", "or", ""):
                self.at += 1
            elif not comma:
                self.links = links
                return items
            links.add(word if word in ("and", "or") else ",")
            items.append(self.element())

    def element(self) -> Tree:
        """Read a relation, a union, or a single value."""
        operands, signs = [self.union()], []
        while self.next in ("=", "<", ">", "<=", ">=", "!="):
            signs.append(self.need("=", "<", ">", "<=", ">=", "!="))
            operands.append(self.union())
        if self.kind == "command" and self.tokens[self.at][1] == "in":  # x in a set: only the set matters
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
        """Read an expression with its unit, or a bracketed value."""
        if self.kind == "words":
            return ("text", self.words())
        tree = self.sum()
        if tree[0] not in EXPRESSIONS:
            return tree
        unit = ""
        if self.take("%"):
            unit = "%"
        elif tree[0] == "f" and tree[1] == "deg" and not self.depth:
            tree, unit = tree[2], "degree"
            if self.kind == "words":  # of Celsius
                unit = f"degree {_SCALES.get(words := self.words(), words)}"
        elif self.kind == "words" and self.tokens[self.at][1].strip().casefold() not in ("and", "or", ""):
            unit = self.words()
            if unit in ("percent", "per cent"):
                unit = "%"
            while True:
                if self.take("^"):
                    unit += f"^{self.unit_power()}"
                elif self.next == "/" and self.tokens[self.at + 1][0] in ("words", "word"):
                    self.at += 1
                    unit += f" per {self.words()}"
                else:
                    break
        elif self.kind == "sub":
            unit = f"base {self.tokens[self.at][1].strip('{} ')}"
            self.at += 1
        return ("unit", tree, unit) if unit else tree

    def words(self) -> str:
        words: list[str] = []
        while self.kind in ("words", "word") or (words and self.next == "/"):
            if words and self.take("/"):
                words.append("per")
                continue
            if self.tokens[self.at][1].strip().casefold() in ("and", "or") and words:
                break
            words.append(self.tokens[self.at][1].replace("/", " per "))
            self.at += 1
        return " ".join(" ".join(words).split()).casefold()

    def unit_power(self) -> str:
        brace = self.take("{")
        sign = "-" if self.take("-") else ""
        kind, value = self.tokens[self.at]
        if kind != "number":
            raise Unreadable
        self.at += 1
        if brace:
            self.need("}")
        return sign + value

    def matrix(self, name: str) -> Tree:
        """Read a matrix, or the lines of ``cases`` as a list."""
        if name != "cases":
            return super().matrix(name)
        lines = []
        while self.kind != "end":
            lines.append(self.element())
            self.take(",")
            if self.kind == "row":
                self.at += 1
            elif self.kind != "end":
                raise Unreadable
        self.at += 1
        return ("seq", "", "", lines) if lines else fail()

    def bracket(self, opening: str) -> Tree:
        closing = {"(": (")", "]"), "[": ("]", ")"), "\\{": ("\\}",), "{": ("}",), "|": ("|",)}.get(opening)
        if closing is None:
            raise Unreadable
        if opening == "\\{" and self.take("\\}"):
            return ("seq", "\\{", "\\}", [])
        self.depth += 1
        if self.depth > DEEPEST:
            raise Unreadable
        items = self.items()
        end = self.need(*closing)
        self.depth -= 1
        if opening == "|":
            return ("f", "abs", expression(items[0]), None) if len(items) == 1 else fail()
        if opening == "{" and len(items) > 1:  # a set in Python's notation
            opening, end = "\\{", "\\}"
        if len(items) == 1 and opening != "\\{":
            return items[0] if (opening, end) in (("(", ")"), ("{", "}"), ("[", "]")) else fail()
        return ("seq", opening, end, items)
