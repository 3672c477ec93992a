"""Values of sums, integrals, and limits by math-verify and SymPy.

`symbolic` sends this file into the sandbox, so it must not import gem_core.
"""

from __future__ import annotations

from typing import Any

import sympy
from math_verify import LatexExtractionConfig, parse

_WARM = (
    r"\int_{0}^{1} (((2) \cdot (a))) \, da",
    r"\sum_{a=1}^{\infty} (\frac{1}{(a)^{2}})",
    r"\prod_{a=1}^{3} (a)",
    r"\lim_{a \to 0} (\frac{\sin(a)}{a})",
)
_OPEN = (sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit)
_NAMES = {
    "log": "ln", "Abs": "abs", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "factorial": "!",
    "floor": "floor", "ceiling": "ceil",
    **{name: name for name in ("exp", "sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")},
}  # fmt: skip


def warm_up() -> None:
    """Import the modules that SymPy imports lazily and fill its tables, before any child is forked."""
    for text in _WARM:
        value(text)


def value(text: str) -> Any:
    """Return the tree of the value of an expression, with a pair for each fraction; None if it has none.

    math-verify's time limit uses a signal and is off.
    """
    found = parse(f"${text}$", [LatexExtractionConfig()], parsing_timeout=None, raise_on_error=False)
    if not found or not isinstance(found[0], sympy.Expr):
        return None
    two_sided = found[0].replace(
        lambda part: isinstance(part, sympy.Limit) and part.args[2].is_finite,
        lambda part: sympy.Limit(*part.args[:3], dir="+-"),
    )
    result = two_sided.doit()
    return None if result.has(*_OPEN, sympy.zoo, sympy.nan) else _tree(result)


def _tree(value: Any) -> Any:
    if value.is_Rational:
        return ["n", int(value.p), int(value.q)]
    if value.is_Symbol:
        return ["v", str(value)]
    for constant, name in ((sympy.pi, "pi"), (sympy.E, "e"), (sympy.I, "i"), (sympy.oo, "infty")):
        if value == constant:
            return ["v", name]
    if value == -sympy.oo:
        return ["-", ["v", "infty"]]
    if value.is_Pow:
        return ["^", _tree(value.base), _tree(value.exp)]
    if value.is_Add or value.is_Mul:
        first, *rest = value.args
        tree = _tree(first)
        for part in rest:
            tree = ["+" if value.is_Add else "*", tree, _tree(part)]
        return tree
    function = _NAMES.get(type(value).__name__)
    if function is None or len(value.args) != 1:
        return None
    return ["f", function, _tree(value.args[0]), None]
