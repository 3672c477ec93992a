r"""Prints expressions as LaTeX for math-verify, which reads these forms to their last symbol.

Numbers become fractions, products get ``\cdot``, and every operand is in braces or brackets.
"""

from __future__ import annotations

from collections.abc import Iterator

from gem_envs.graders._trees import Tree, children

_FUNCTIONS = frozenset(
    ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "arcsin", "arccos", "arctan", "ln")
)
_LETTERS = "abcdfghjklmnpqrstuvwxyz"
"""Letters that math-verify reads as variables; e, i, and o are not among them."""


class Unprintable(Exception):
    """Raised for an expression that math-verify does not read."""


class Printer:
    """Prints trees with one letter for each variable; `names` maps the letters back."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self._letters: dict[str, str] = {}
        self._free: Iterator[str] = iter(_LETTERS)

    def latex(self, tree: Tree) -> str:
        """Return the LaTeX of an expression.

        Raises:
            Unprintable: It has a part that math-verify does not read, or too many variables.
        """
        kind = tree[0]
        if kind == "n":
            value = tree[1]
            if value.denominator == 1:
                return f"{value.numerator}" if value >= 0 else f"({value.numerator})"
            return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
        if kind == "v":
            return self._name(tree[1])
        if kind == "o":
            return self._operator(tree[1], tree[2])
        parts = [self.latex(part) for part in children(tree)]
        if kind == "-":
            return f"(-({parts[0]}))"
        if kind == "+":
            return f"(({parts[0]}) + ({parts[1]}))"
        if kind == "*":
            return rf"(({parts[0]}) \cdot ({parts[1]}))"
        if kind == "/":
            return rf"\frac{{{parts[0]}}}{{{parts[1]}}}"
        if kind == "^":
            return f"({parts[0]})^{{{parts[1]}}}"
        return self._function(tree[1], parts)

    def _function(self, name: str, parts: list[str]) -> str:
        if name == "sqrt":
            return rf"\sqrt{f'[{parts[1]}]' if len(parts) > 1 else ''}{{{parts[0]}}}"
        if name == "exp":
            return f"e^{{{parts[0]}}}"
        if name == "abs":
            return f"|{parts[0]}|"
        if name == "!" and len(parts) == 1:
            return f"({parts[0]})!"
        if name not in _FUNCTIONS or len(parts) > 1:
            raise Unprintable(name)
        return rf"\{name}({parts[0]})"

    def _operator(self, name: str, parts: tuple[Tree, ...]) -> str:
        if name not in ("int", "sum", "prod", "lim"):
            raise Unprintable(name)
        variable, *limits, body = (self.latex(part) for part in parts)
        if name == "int" and limits:
            return rf"\int_{{{limits[0]}}}^{{{limits[1]}}} ({body}) \, d{variable}"
        if name == "lim":
            return rf"\lim_{{{variable} \to {limits[0]}}} ({body})"
        if name in ("sum", "prod"):
            return rf"\{name}_{{{variable}={limits[0]}}}^{{{limits[1]}}} ({body})"
        raise Unprintable("an integral without limits")

    def _name(self, name: str) -> str:
        if name in ("pi", "infty"):
            return f"\\{name}"
        if name == "e":
            return "e"
        if name == "i":
            raise Unprintable("the imaginary unit")
        if name not in self._letters:
            letter = next(self._free, None)
            if letter is None:
                raise Unprintable("too many variables")
            self._letters[name] = letter
            self.names[letter] = name
        return self._letters[name]
