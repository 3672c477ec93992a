"""Parser of expressions, which are the parts of an answer between its brackets, commas, and units."""

from __future__ import annotations

from fractions import Fraction

from gem_envs.graders._tokens import FUNCTIONS, OPERATORS, Tokens, Unreadable
from gem_envs.graders._trees import EXPRESSIONS, Tree, expression, fail, names, nesting, renamed

DEEPEST = 40
"""Maximum nesting depth of brackets."""
_CALLED = frozenset(("f", "g", "h", "F", "G", "H", "Gamma", "zeta", "phi", "varphi", "psi", "Phi", "Psi"))
"""Names that are applied to a bracket after them; other letters are factors."""


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
        if self.next == "bmod":
            self.at += 1
            tree = ("o", "bmod", (expression(tree), expression(self.term())))
        self.depth -= 1
        return tree

    def term(self) -> Tree:
        tree = self.factor()
        while True:
            if self.next in ("*", "/"):
                sign = self.need("*", "/")
                tree = (sign, expression(tree), expression(self.factor()))
            elif tree[0] in EXPRESSIONS and self.starts_atom():
                if self.kind == "number" and self.tokens[self.at - 1][0] in ("number", "word", "sub"):
                    raise Unreadable  # 5 5 and x2 are no products
                right = self.power()
                if tree[0] == "v" and right[0] not in EXPRESSIONS:  # P(X = 2)
                    tree = ("o", "call", (tree, right))
                else:
                    tree = ("*", tree, expression(right))
            else:
                return tree

    def starts_atom(self) -> bool:
        kind, value = self.tokens[self.at]
        if self.differentials and self.differential():
            return False
        if kind == "command":
            return value not in ("circ", "rfloor", "rceil")
        return kind in ("number", "word", "blackboard", "name", "begin") or self.next in ("(", "{")

    def factor(self) -> Tree:
        signs = 0
        while self.next in ("+", "-"):
            signs += self.need("+", "-") == "-"
        tree = self.power()
        return ("-", expression(tree)) if signs % 2 else tree

    differentials = 0
    """Number of integrals whose differential is still to come."""

    def differential(self) -> str:
        """Return the variable if the next tokens are a differential."""
        kind, value = self.tokens[self.at]
        if kind == "name" and len(value) == 2:
            return value[1]
        if (kind, value) == ("word", "d") and self.tokens[self.at + 1][0] in ("word", "command"):
            return self.tokens[self.at + 1][1]
        return ""

    def power(self) -> Tree:
        tree = self.atom()
        name = tree[1].rstrip("'") if tree[0] == "v" else ""
        while True:
            if self.next in ("^", "**"):
                self.at += 1
                if self.degree():
                    tree = ("f", "deg", expression(tree), None)
                    continue
                tree = ("^", expression(tree), self.exponent())
            elif self.next in ("!", "!!") and tree[0] in EXPRESSIONS:
                tree = ("f", self.need("!", "!!"), tree, None)
            elif name.partition("_")[0] in _CALLED and self.next == "(":
                self.at += 1
                tree = ("o", "call", (tree, *self.arguments(")")))
                name = ""
            else:
                return tree

    def arguments(self, end: str) -> list[Tree]:
        """Read the arguments of a function up to the closing bracket."""
        found = [self.sum()]
        while self.take(",") or self.take(";"):
            found.append(self.sum())
        self.need(end)
        return found

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
            self.split()  # \frac12 and x^23 take one digit
            self.at += 1
            return ("n", Fraction(value[0]), None)
        if kind == "word" and len(value) > 1:
            self.split()
            self.at += 1
            return ("v", value[0])
        return expression(self.atom())

    def split(self) -> None:
        """Replace the next token by its first character and the rest, which a second reading also sees."""
        kind, value = self.tokens[self.at]
        self.tokens[self.at : self.at + 1] = [(kind, value[0]), (kind, value[1:])]

    tight = False
    """Whether `argument` takes one digit only, as in ``\\frac12``."""

    def atom(self) -> Tree:
        kind, value = self.tokens[self.at]
        if kind == "word" and len(value) > 1:  # adjacent letters are factors
            self.split()
            value = value[0]
        self.at += 1
        if kind == "number":
            literal = (
                "n",
                Fraction(value),
                len(value.partition(".")[2]) if "." in value and "e" not in value.lower() else None,
            )
            return self.mixed(literal) if literal[2] is None else literal
        if kind == "word":
            return self.subscripted(value)
        if kind == "command":
            return self.command(value)
        if kind == "begin":
            return self.matrix(value)
        if kind == "blackboard":
            return self.subscripted(f"blackboard {value}")
        if kind == "name":
            return self.subscripted(value)
        if kind == "sign":
            return self.bracket(value)
        raise Unreadable

    def subscripted(self, name: str) -> Tree:
        if self.kind == "sub":
            name += "_" + self.tokens[self.at][1]
            self.at += 1
        if self.kind == "prime":
            name += self.tokens[self.at][1]
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
        if _first(top) == "d" and _first(bottom)[:1] == "d":  # d/dx is no quotient
            raise Unreadable
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
            return ("f", "binom", *self.fraction()[1:])
        if name in FUNCTIONS:
            return self.function(name)
        if name in OPERATORS:
            return self.operator(name)
        if name in ("sum", "prod", "int", "lim"):
            return self.bound(name)
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
            base = self.base(self.tokens[self.at][1])
            self.at += 1
        if self.take("^"):
            power = self.argument()
            if power == ("-", ("n", 1, None)):
                name, power = "arc" + name, None
        if self.kind == "prime":
            raise Unreadable
        if self.next in ("(", "{"):
            inner = self.argument()
        else:
            inner = expression(self.power())
            while (self.kind in ("number", "word") and not self.differentials) or self.tokens[self.at] == (
                "command",
                "pi",
            ):
                inner = ("*", inner, expression(self.power()))
            if self.next == "/" and self.tokens[self.at + 1][0] == "number":  # sin pi/6
                self.at += 1
                inner = ("/", inner, expression(self.atom()))
        tree: Tree = ("f", name, inner, base)
        return ("^", tree, power) if power else tree

    def base(self, text: str) -> Tree:
        """Read the base of a logarithm."""
        return ("n", Fraction(text), None) if text.isdecimal() else self.inside(text)

    def inside(self, text: str) -> Tree:
        """Read the text of a subscript."""
        reader = type(self)(text)
        reader.depth = self.depth + 1
        if reader.depth > DEEPEST:
            raise Unreadable
        tree = reader.sum()
        if reader.kind != "end of text":
            raise Unreadable
        return expression(tree)

    def operator(self, name: str) -> Tree:
        """Read the arguments of a function that is known by name only."""
        if self.kind == "sub":
            raise Unreadable
        if self.take("("):
            return ("o", name, tuple(self.arguments(")")))
        if self.take("\\{"):
            return ("o", name, tuple(self.arguments("\\}")))
        if name == "expectation" and self.take("["):
            return ("o", name, tuple(self.arguments("]")))
        return ("o", name, (self.power(),))

    def bound(self, name: str) -> Tree:
        """Read a sum, product, integral, or limit; its variable gets a name that depends on nesting only."""
        low, high = "", None
        for _ in range(2):
            if self.kind == "sub":
                low = self.tokens[self.at][1]
                self.at += 1
            elif self.take("^"):
                high = self.argument()
        if name == "int":
            self.differentials += 1
            body = expression(self.sum())
            variable = self.differential()
            self.at += 1 if self.kind == "name" else 2
            self.differentials -= 1
            if not _CALLED.isdisjoint(names(body)):  # f may depend on the variable
                raise Unreadable
            limits = (self.inside(low), high or fail()) if low else ()
        else:
            variable, _, start = low.partition("=" if name != "lim" else "\\to")
            if name == "lim" and not start:
                variable, _, start = low.partition("\\rightarrow")
            limits = (self.inside(start), *(() if name == "lim" else (high or fail(),)))
            body = expression(self.term())
        variable = variable.strip("\\ ")
        if not variable.isalpha():
            raise Unreadable
        fresh = ("v", f"bound {nesting(body) + 1}")
        return ("o", name, (fresh, *limits, renamed(body, variable, fresh)))

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
        if self.tokens[self.at] != ("end", name) or len({len(row) for row in rows}) != 1:
            raise Unreadable
        self.at += 1
        return ("matrix", rows)


def _first(tree: Tree) -> str:
    """Return the name of the first factor; empty if it is no name."""
    while tree[0] in ("*", "^"):
        tree = tree[1]
    return str(tree[1]) if tree[0] == "v" else ""
