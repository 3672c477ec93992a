"""Parser of expressions, which are the parts of an answer between its brackets, commas, and units."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, TypeAlias

from gem_core.graders.tokens import FUNCTIONS, Tokens, Unreadable

Tree: TypeAlias = tuple[Any, ...]
DEEPEST = 40
"""Maximum nesting depth of brackets."""
EXPRESSIONS = frozenset({"n", "v", "+", "*", "/", "^", "-", "f"})


_GREEK = frozenset(
    (  # noqa: SIM905  # a list of thirty strings is harder to read
        "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta kappa lambda mu nu xi rho sigma "
        "tau phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell"
    ).split()
)


class ExpressionReader(Tokens):
    """Recursive-descent reader of sums, products, powers, and their operands."""

    def bracket(self, opening: str) -> Tree:
        """Read what follows the opening bracket that was just read."""
        raise NotImplementedError

    def sum(self) -> Tree:
        self.depth += 1
        if self.depth > DEEPEST:
            raise Unreadable
        tree = self.term()
        while self.next in ("+", "-"):
            minus = self.need("+", "-") == "-"
            right = expression(self.term())
            tree = ("+", expression(tree), ("-", right) if minus else right)
        self.depth -= 1
        return tree

    def term(self) -> Tree:
        tree = self.factor()
        while True:
            if self.next in ("*", "/"):
                sign = self.need("*", "/")
                tree = (sign, expression(tree), expression(self.factor()))
            elif tree[0] in EXPRESSIONS and self.starts_atom():
                tree = ("*", tree, expression(self.power()))
            else:
                return tree

    def starts_atom(self) -> bool:
        kind, value = self.tokens[self.at]
        if kind == "command":
            return value not in ("cup", "cap", "in", "circ", "to", "rfloor", "rceil")
        return kind in ("number", "word", "blackboard") or value in ("(", "{") or (kind == "begin")

    def factor(self) -> Tree:
        signs = 0
        while self.next in ("+", "-"):
            signs += self.need("+", "-") == "-"
        tree = self.power()
        return ("-", expression(tree)) if signs % 2 else tree

    def power(self) -> Tree:
        tree = self.atom()
        while True:
            if self.next in ("^", "**"):
                self.at += 1
                if self.degree():
                    tree = ("f", "deg", expression(tree), None)
                    continue
                tree = ("^", expression(tree), self.exponent())
            elif self.next == "!" and tree[0] in EXPRESSIONS:
                self.at += 1
                tree = ("f", "!", tree, None)
            elif self.next == "'":
                raise Unreadable
            else:
                return tree

    def exponent(self) -> Tree:
        """Read an exponent. Nested powers associate to the right: 2^3^2 is 2^9."""
        if self.take("-"):
            return ("-", self.exponent())
        group = self.next == "{"
        tree = self.argument()
        if self.next not in ("^", "**"):
            return tree
        self.at += 1
        if group or self.degree():  # x^{a}^b is not LaTeX
            raise Unreadable
        return ("^", tree, self.exponent())

    def degree(self) -> bool:
        brace = self.tokens[self.at] == ("sign", "{")
        if self.tokens[self.at + brace] != ("command", "circ"):
            return False
        self.at += 1 + brace
        if brace:
            self.need("}")
        return True

    def argument(self) -> Tree:
        r"""Read the argument of a power, root, or fraction: a group or the next digit, letter, or command."""
        if self.take("{"):
            tree = self.sum()
            self.need("}")
            return expression(tree)
        kind, value = self.tokens[self.at]
        if self.next == "(":
            return expression(self.atom())
        if self.next == "-":
            self.at += 1
            return ("-", self.argument())
        if kind == "number" and len(value) > 1 and self.tight:
            self.tokens[self.at] = (kind, value[1:])  # \frac12 and x^23 take one digit
            return ("n", Fraction(value[0]), None)
        if kind == "word" and len(value) > 1:
            self.tokens[self.at] = (kind, value[1:])
            return ("v", value[0])
        return expression(self.atom())

    tight = False
    """Whether `argument` takes one digit only, as in ``\\frac12``."""

    def atom(self) -> Tree:
        kind, value = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            literal = (
                "n",
                Fraction(value),
                len(value.partition(".")[2]) if "." in value and "e" not in value.lower() else None,
            )
            return self.mixed(literal) if literal[2] is None else literal
        if kind == "word":
            if len(value) > 1:  # adjacent letters are factors
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
        r"""Read a mixed number: ``2\frac{1}{3}`` is two and a third."""
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
                degree = expression(self.sum())
                self.need("]")
            kind, value = self.tokens[self.at]
            if kind == "number":  # unlike in TeX, \sqrt13 means the root of 13
                self.at += 1
                return ("f", "sqrt", ("n", Fraction(value), None), degree)
            return ("f", "sqrt", self.argument(), degree)
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
            inner = expression(self.sum())
            if self.tokens[self.at] != ("command", "r" + name[1:]):
                raise Unreadable
            self.at += 1
            return ("f", name[1:], inner, None)
        raise Unreadable

    def function(self, name: str) -> Tree:
        base = power = None
        if self.kind == "sub":
            base = self.base(self.tokens[self.at][1].strip("{} "))
            self.at += 1
        if self.take("^"):
            power = self.argument()
            if power == ("-", ("n", 1, None)):
                name, power = "arc" + name, None
        if self.next in ("(", "{"):
            inner = self.argument()
        else:
            inner = expression(self.power())
            while self.kind in ("number", "word") or self.tokens[self.at] == ("command", "pi"):
                inner = ("*", inner, expression(self.power()))
            if self.next == "/" and self.tokens[self.at + 1][0] == "number":  # sin pi/6
                self.at += 1
                inner = ("/", inner, expression(self.atom()))
        tree: Tree = ("f", name, inner, base)
        return ("^", tree, power) if power else tree

    def base(self, text: str) -> Tree:
        """Read the base of a logarithm."""
        return ("n", Fraction(text), None) if text.isdecimal() else ("v", text)

    def matrix(self, name: str) -> Tree:
        if name not in ("pmatrix", "bmatrix", "matrix", "array", "Bmatrix", "smallmatrix"):
            raise Unreadable
        rows: list[list[Tree]] = [[]]
        while True:
            rows[-1].append(expression(self.sum()))
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


def expression(tree: Tree) -> Tree:
    """Return the tree if it is an expression; otherwise give up."""
    return tree if tree[0] in EXPRESSIONS else fail()


def fail() -> Tree:
    """Give up where a value is expected."""
    raise Unreadable
