"""A solver of integrals of functions: differentiate the answer, and compare with the integrand at points."""

from __future__ import annotations

import ast
import cmath
import re
from collections.abc import Callable
from fractions import Fraction

from gem_envs._rg.solvers.reading import find

Dual = tuple[complex, complex]
"""A value and its derivative by the variable."""

_FUNCTIONS: dict[str, tuple[Callable[[complex], complex], Callable[[complex], complex]]] = {
    "exp": (cmath.exp, cmath.exp),
    "log": (cmath.log, lambda x: 1 / x),
    "ln": (cmath.log, lambda x: 1 / x),
    "sin": (cmath.sin, cmath.cos),
    "cos": (cmath.cos, lambda x: -cmath.sin(x)),
    "tan": (cmath.tan, lambda x: 1 / cmath.cos(x) ** 2),
    "sqrt": (cmath.sqrt, lambda x: 1 / (2 * cmath.sqrt(x))),
    "asin": (cmath.asin, lambda x: 1 / cmath.sqrt(1 - x * x)),
    "acos": (cmath.acos, lambda x: -1 / cmath.sqrt(1 - x * x)),
    "atan": (cmath.atan, lambda x: 1 / (1 + x * x)),
}
"""Functions and their derivatives."""
_POINTS = (0.0713, 0.1532, 0.2291, 0.3167)
"""Inside the domains of asin(3*x), log(x), and all polynomials."""
_BY_PARTS = re.compile(r"(-?)(?:(\d+)\*)?(\w)(?:\*\*(\d+))?\*(sin|cos)\((?:(\d+)\*)?\3\)")


def solve_intermediate_integration(prompt: str) -> str | None:
    """Integrate a power times a sine or cosine by parts; None for other integrands."""
    match = _BY_PARTS.fullmatch(find(r"∫ (.*?) d\w\n", prompt)[1])
    if match is None:
        return None
    sign, number, variable, exponent, function, frequency = match.groups()
    factor = Fraction(int(number or 1) * (-1 if sign else 1))
    terms = []
    for power in range(int(exponent or 1), -1, -1):
        factor /= int(frequency or 1) * (1 if function == "cos" else -1)
        function = "sin" if function == "cos" else "cos"
        shown = {0: "", 1: f"*{variable}"}.get(power, f"*{variable}**{power}")
        divisor = "" if factor.denominator == 1 else f"/{factor.denominator}"
        inner = f"{frequency}*{variable}" if frequency else variable
        terms.append(f"{factor.numerator}{shown}*{function}({inner}){divisor}")
        factor *= -power
    return " + ".join([*terms, "C"]).replace("+ -", "- ")


def judge_intermediate_integration(prompt: str, answer: str) -> bool | None:
    """Compare the derivative with the integrand at four points; other names are constants."""
    integrand, variable = find(r"∫ (.*?) d(\w)\n", prompt).groups()
    given, right = (ast.parse(text.strip(), mode="eval").body for text in (answer, integrand))
    for point in _POINTS:
        slope, value = _dual(given, variable, point)[1], _dual(right, variable, point)[0]
        if not abs(slope - value) <= 1e-9 * (1 + abs(value)):
            return False
    return True


def _dual(node: ast.expr, variable: str, point: float) -> Dual:
    """Return the value and the derivative of an expression.

    Raises:
        ValueError: The text is not an expression of the functions above.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return complex(node.value), 0j
    if isinstance(node, ast.Name):
        constants = {"E": cmath.e, "e": cmath.e, "pi": cmath.pi}
        return (complex(point), 1 + 0j) if node.id == variable else (complex(constants.get(node.id, 1)), 0j)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value, slope = _dual(node.operand, variable, point)
        return (-value, -slope) if isinstance(node.op, ast.USub) else (value, slope)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
        if node.func.id not in _FUNCTIONS:
            raise ValueError(f"not a known function: {node.func.id}")
        function, derivative = _FUNCTIONS[node.func.id]
        value, slope = _dual(node.args[0], variable, point)
        return function(value), derivative(value) * slope
    if not isinstance(node, ast.BinOp):
        raise ValueError(f"not a formula: {ast.unparse(node)}")
    (a, da), (b, db) = _dual(node.left, variable, point), _dual(node.right, variable, point)
    if isinstance(node.op, ast.Add):
        return a + b, da + db
    if isinstance(node.op, ast.Sub):
        return a - b, da - db
    if isinstance(node.op, ast.Mult):
        return a * b, da * b + a * db
    if isinstance(node.op, ast.Div):
        return a / b, (da * b - a * db) / (b * b)
    if isinstance(node.op, ast.Pow):
        power = a**b
        return power, (b * a ** (b - 1) * da if da else 0) + (power * cmath.log(a) * db if db else 0)
    raise ValueError(f"not a formula: {ast.unparse(node)}")
