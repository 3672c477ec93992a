r"""Parser of mathematical answers, from LaTeX or plain text to a tree.

`read` understands the usual contents of textbook answers (numbers, fractions, roots, powers, functions,
sums, integrals, tuples, sets, intervals, unions, matrices, relations, congruences, cases, conditions,
units, words) and returns None for everything else rather than a wrong tree: a tree has every symbol of the
text. Its time is linear in the length of the text, which is cut off at `LONGEST`, and nesting is bounded.

A tree consists of tuples. Expressions: ``("n", value, digits)`` with the decimals of a literal or None,
``("v", name)``, ``("+", a, b)``, ``("*", a, b)``, ``("/", a, b)``, ``("^", a, b)``, ``("-", a)``, ``("f",
name, a, extra)``, and ``("o", name, parts)`` for operators such as sums and limits. Containers: ``("seq",
open, close, items)``, where open is empty, "and", or "or" for a list without brackets, ``("matrix",
rows)``, ``("sets", sign, items)`` with the sign cup, cap, or setminus, ``("rel", operands, signs)``,
``("mod", operands, modulus)``, ``("builder", element, conditions)``, ``("cases", lines)`` with a value and
a condition in each line, ``("given", value, conditions)``, ``("text", words)``, ``("unit", expression,
unit)``.
"""

from __future__ import annotations

import re

from gem_envs.graders._expressions import DEEPEST, ExpressionReader
from gem_envs.graders._tokens import RELATIONS, Unreadable
from gem_envs.graders._trees import EXPRESSIONS, Tree, expression, fail
from gem_envs.graders._units import UNITS

LONGEST = 1000
"""Maximum number of characters of an answer to read."""

MOST_SETS = 12
"""Maximum number of set brackets in a text; each may be read twice, also within another."""
_SIGN = re.compile(r"\\[pm][pm](?![A-Za-z])")
_SCALES = {"c": "celsius", "f": "fahrenheit"}
_CONDITION = frozenset(("for", "if", "when", "where", "whenever", "provided", "given", "with", "such"))
"""Words that begin a condition."""
_FILLERS = frozenset(("that", "all", "any", "every", "some"))
"""Words after them."""
_FOLDED = frozenset(UNITS) | {"am", "pm", "per", "yes", "no", "is", "a", "an", "the", "of", "in"}
"""Short words that are equal in any case."""
_OTHERWISE = frozenset(("otherwise", "else"))
_LINKED = frozenset(("and", "or", ""))


def read(text: str) -> Tree | None:
    """Return the tree of a tidied text, or None."""
    if not text or len(text) > LONGEST:
        return None
    try:
        if "\\" in text and _SIGN.search(text):
            return _both_signs(text)
        return _AnswerReader(text).answer()
    except (Unreadable, ValueError, IndexError):
        return None


def _both_signs(text: str) -> Tree | None:
    r"""Return the values of a text with ``\\pm``, read once for each sign."""
    if any(len(_SIGN.findall(part)) > 1 for part in re.split(r"[,;]|and|or", text)):
        return None  # the signs may be independent
    plus = read(_SIGN.sub(lambda match: "+" if match[0] == "\\pm" else "-", text))
    minus = read(_SIGN.sub(lambda match: "-" if match[0] == "\\pm" else "+", text))
    if plus is None or minus is None:
        return None
    if plus[0] == minus[0] == "given" and plus[2] == minus[2]:
        return ("given", _joined(plus[1], minus[1]), plus[2])
    return _joined(plus, minus)


def _joined(plus: Tree, minus: Tree) -> Tree:
    if plus[0] == minus[0] == "seq" and plus[1] in ("", "and", "or", "\\{"):
        others = [item for item in minus[3] if item not in plus[3]]  # items without a sign are in both
        return (*plus[:3], [*plus[3], *others])
    return ("seq", "", "", [plus, minus])


def _folded(word: str) -> str:
    """Return a word in lower case, except for symbols such as mW and MW."""
    return word.casefold() if len(word) > 3 or word.casefold() in _FOLDED else word


def _in_lower_case(text: str) -> str:
    """Return words in lower case; a single letter is a name, except for the article at the start."""
    first, *rest = text.split()
    if rest:
        first = first.casefold() if len(first) > 1 or len(rest[0]) > 1 else first
        return " ".join([first, *(word.casefold() if len(word) > 1 else word for word in rest)])
    return first.casefold()


def is_condition(tree: Tree) -> bool:
    """Return whether a statement restricts a variable: an inequality, or membership in a set."""
    return tree[0] == "rel" and "=" not in tree[2]


class _AnswerReader(ExpressionReader):
    """Reads everything around expressions: lists, relations, unions, units, words, and brackets."""

    def answer(self) -> Tree:
        if (
            all(kind in ("words", "word") for kind, _ in self.tokens[:-1])
            and (len(self.tokens) > 2 or self.kind == "words")
            and not self.lists_letters()
        ):
            return ("text", _in_lower_case(" ".join(value for _, value in self.tokens[:-1])))
        tree = self.statement()
        return tree if self.kind == "end of text" else fail()

    def lists_letters(self) -> bool:
        """Return whether the text is ``A and B``, which is a list rather than words."""
        links = [value.strip().casefold() for _, value in self.tokens[1:-1:2]]
        letters = self.tokens[:-1:2]
        return bool(links) and len(self.tokens) % 2 == 0 and set(links) <= {"and", "or"} and all(
            kind == "word" and len(value) == 1 for kind, value in letters
        )  # fmt: skip

    def statement(self) -> Tree:
        """Read a list with its conditions: ``k\\pi, k \\in \\mathbb{Z}``, or ``x + 1 for x > 0``."""
        tree = self.listed(self.items())
        conditions: list[Tree] = []
        if tree[0] == "seq" and tree[1] == "" and not is_condition(tree[3][0]):
            items = tree[3]
            while is_condition(items[-1]):
                conditions.insert(0, items[-1])
                items = items[:-1]
            tree = items[0] if len(items) == 1 else ("seq", "", "", items)
        while self.condition_word():
            more = self.listed(self.items())
            conditions += more[3] if more[:2] == ("seq", "") else [more]
        return ("given", tree, conditions) if conditions else tree

    def listed(self, items: list[Tree]) -> Tree:
        if len(items) == 1:
            return items[0]
        if items[0][0] == "rel" and items[0][2] == ["!="]:  # x \\ne 2, 3
            name = items[0][1][0]
            items = [("rel", [name, x], ["!="]) if x[0] in EXPRESSIONS else x for x in items]
        link = "or" if "or" in self.links else "and" if "and" in self.links else ""
        if link == "or" and "and" in self.links:
            raise Unreadable
        return ("seq", link, link, items)

    def condition_word(self) -> bool:
        """Read the words that begin a condition."""
        words = self.tokens[self.at][1].strip(" ,()").casefold().split() if self.kind == "words" else []
        if not words or words[0] not in _CONDITION or not set(words[1:]) <= _FILLERS:
            return False
        self.at += 1
        while self.kind == "words" and self.tokens[self.at][1].strip().casefold() in _FILLERS:
            self.at += 1
        return True

    links: frozenset[str] | set[str] = frozenset()
    """Separators of the elements that were read last."""

    def items(self) -> list[Tree]:
        """Read the elements between separators."""
        items = [self.element()]
        links: set[str] = set()
        while True:
            start = self.at
            comma = self.take(",") or self.take(";")
            word = self.tokens[self.at][1].strip().casefold() if self.kind == "words" else None
            if word in _LINKED:
                self.at += 1
            elif comma and self.kind in ("row", "end"):  # a comma at the end of a line
                self.at = start
                self.links = links
                return items
            elif not comma:
                self.links = links
                return items
            elif self.kind == "words" and self.condition_word():  # a comma before "for"
                self.at = start + 1
                self.links = links
                return items
            links.add(word if word in ("and", "or") else ",")
            items.append(self.element())

    def element(self) -> Tree:
        """Read a relation, a congruence, or a single value."""
        operands, signs = [self.union()], []
        while self.next in RELATIONS:
            signs.append(self.need(*RELATIONS))
            operands.append(self.union())
        if self.next == "equiv" and not signs:
            return self.congruence(operands[0])
        if self.next == ":" and not signs and operands[0][0] in EXPRESSIONS and not self.building:
            while self.take(":"):
                operands.append(self.sum())
            return ("seq", ":", ":", operands)
        return ("rel", operands, signs) if signs else operands[0]

    def congruence(self, left: Tree) -> Tree:
        residues: list[Tree] = []
        self.need("equiv")
        while True:
            residues.append(expression(self.sum()))
            if residues[-1][:2] == ("o", "bmod"):  # \bmod or \mod after a congruence
                residues[-1], modulus = residues[-1][2]
                break
            bracket = self.take("(")
            if self.next in ("pmod", "bmod") or self.tokens[self.at] == ("words", "mod"):
                self.at += 1
                modulus = self.argument() if self.next in ("{", "(") else expression(self.sum())
                if bracket:
                    self.need(")")
                break
            if self.kind == "words" and self.tokens[self.at][1].strip() in ("or", "and"):
                self.at += 1
            else:
                self.need(",")
        return ("mod", [left, *residues], modulus)

    def union(self) -> Tree:
        tree = self.valued()
        while self.next in ("cup", "cap", "setminus"):
            sign = self.need("cup", "cap", "setminus")
            right = self.valued()
            if tree[0] == "sets" and tree[1] == sign != "setminus":
                tree = ("sets", sign, [*tree[2], right])
            elif tree[0] == "sets" and not (tree[1] == "cup" == sign):
                raise Unreadable  # the order of different operations is not clear
            else:
                tree = ("sets", sign, [tree, right])
        return tree

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
            if self.kind == "words" and not self.before_condition():  # of Celsius
                unit = f"degree {_SCALES.get(words := self.words().casefold(), words)}"
        elif self.kind == "words" and not self.before_condition():
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
            unit = f"base {self.tokens[self.at][1]}"
            self.at += 1
        return ("unit", tree, unit) if unit else tree

    def before_condition(self) -> bool:
        """Return whether the next words are a link, or begin a condition."""
        start = self.at
        words = self.tokens[start][1].strip().casefold()
        found = words in _LINKED or words == "mod" or self.condition_word()
        self.at = start
        return found

    def words(self) -> str:
        words: list[str] = []
        while self.kind in ("words", "word") or (words and self.next == "/"):
            if words and self.take("/"):
                words.append("per")
                continue
            if words and self.kind == "words" and self.before_condition():
                break
            words.append(self.tokens[self.at][1].replace("/", " per "))
            self.at += 1
        return " ".join(_folded(word) for word in " ".join(words).split())

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
        """Read a matrix, or the lines of ``cases``: with conditions, or as a list."""
        if name not in ("cases", "aligned", "gathered"):
            return super().matrix(name)
        lines: list[tuple[Tree, Tree | None]] = []
        conditional = False
        while self.kind != "end":
            value = self.element()
            marked = self.take(",") | self.take("&")
            marked = self.condition_word() or marked
            condition: Tree | None = None
            if self.kind == "words":
                if self.words().strip(" .,") not in _OTHERWISE:
                    raise Unreadable
                conditional = True
            elif marked and self.kind not in ("row", "end"):
                condition = self.listed(self.items())
                conditional = True
            elif conditional:
                raise Unreadable
            lines.append((value, condition))
            if not self.take(","):
                self.take(";")
            if self.kind == "row":
                self.at += 1
            elif self.kind != "end":
                raise Unreadable
        if self.tokens[self.at][1] != name:
            raise Unreadable
        self.at += 1
        if not conditional:
            return ("seq", "", "", [value for value, _ in lines]) if lines else fail()
        return ("cases", lines) if sum(condition is None for _, condition in lines) < 2 else fail()

    attempts = 0
    """Number of set brackets that were tried as set builders."""
    building = 0
    """Number of set brackets around the reading position whose bar is still to come."""

    def builder(self) -> Tree | None:
        r"""Read ``x \mid x > 1 \}``; None, and nothing read, if it is a list of elements."""
        start, depth, integrals = self.at, self.depth, self.differentials
        self.attempts += 1
        if self.attempts > MOST_SETS:
            raise Unreadable
        self.building += 1
        try:
            element = self.element()
            if self.kind == "words" and self.tokens[self.at][1].strip() == "such that":
                self.at += 1
            else:
                self.need("|", ":")
        except (Unreadable, IndexError):
            self.at, self.depth, self.differentials = start, depth, integrals
            return None
        finally:
            self.building -= 1
        conditions = self.listed(self.items())
        self.need("\\}")
        listed = conditions[3] if conditions[:2] in (("seq", ""), ("seq", "and")) else [conditions]
        if element[0] == "rel" and element[2] == ["in"]:
            listed = [element, *listed]
            element = element[1][0]
        return ("builder", element, listed)

    def bracket(self, opening: str) -> Tree:
        closing = {"(": (")", "]"), "[": ("]", ")"), "\\{": ("\\}",), "{": ("}",), "|": ("|",)}.get(opening)
        if closing is None:
            raise Unreadable
        if opening == "\\{" and self.take("\\}"):
            return ("seq", "\\{", "\\}", [])
        self.depth += 1
        if self.depth > DEEPEST:
            raise Unreadable
        if opening == "\\{" and (built := self.builder()):
            self.depth -= 1
            return built
        outer, self.building = self.building, 0
        items = self.items()
        links = self.links
        self.building = outer
        end = self.need(*closing)
        self.depth -= 1
        if opening == "|":
            return ("f", "abs", expression(items[0]), None) if len(items) == 1 else fail()
        if "or" in links:
            raise Unreadable
        if opening == "{" and len(items) > 1:  # a set in Python's notation
            opening, end = "\\{", "\\}"
        if len(items) == 1 and opening != "\\{":
            return items[0] if (opening, end) in (("(", ")"), ("{", "}"), ("[", "]")) else fail()
        return ("seq", opening, end, items)
