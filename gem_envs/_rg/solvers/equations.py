"""Solvers of tasks in arithmetic and algebra, with exact numbers and a small reader of formulas."""

from __future__ import annotations

import ast
import re
from collections import Counter
from decimal import Decimal
from fractions import Fraction

Polynomial = dict[tuple[tuple[str, int], ...], Fraction]
"""Coefficients by powers; a product of powers is a sorted tuple of variables and exponents."""


def polynomial(text: str) -> Polynomial:
    """Read sums, products, quotients by numbers, and powers.

    Raises:
        ValueError: The text is something else.
    """
    return _read(ast.parse(text.strip(), mode="eval").body)


def _read(node: ast.expr) -> Polynomial:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return _clean({(): Fraction(node.value)})
    if isinstance(node, ast.Name):
        return {((node.id, 1),): Fraction(1)}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        return _times(_read(node.operand), {(): Fraction(-1 if isinstance(node.op, ast.USub) else 1)})
    if isinstance(node, ast.BinOp):
        left, right = _read(node.left), _read(node.right)
        if isinstance(node.op, ast.Add):
            return _plus(left, right)
        if isinstance(node.op, ast.Sub):
            return _plus(left, _times(right, {(): Fraction(-1)}))
        if isinstance(node.op, ast.Mult):
            return _times(left, right)
        if right.keys() <= {()}:
            number = right.get((), Fraction(0))
            if isinstance(node.op, ast.Div):
                return _times(left, {(): 1 / number})
            if isinstance(node.op, ast.Pow) and number.denominator == 1 and 0 <= number <= 50:
                power: Polynomial = {(): Fraction(1)}
                for _ in range(int(number)):
                    power = _times(power, left)
                return power
    raise ValueError(f"not a polynomial: {ast.unparse(node)}")


def _plus(a: Polynomial, b: Polynomial) -> Polynomial:
    return _clean({key: a.get(key, Fraction(0)) + b.get(key, Fraction(0)) for key in {*a, *b}})


def _times(a: Polynomial, b: Polynomial) -> Polynomial:
    product: Polynomial = {}
    for x, p in a.items():
        for y, q in b.items():
            powers = Counter(dict(x))
            powers.update(dict(y))
            key = tuple(sorted(powers.items()))
            product[key] = product.get(key, Fraction(0)) + p * q
    return _clean(product)


def _clean(a: Polynomial) -> Polynomial:
    return {key: value for key, value in a.items() if value}


def _derivative(a: Polynomial, variable: str) -> Polynomial:
    result: Polynomial = {}
    for key, value in a.items():
        powers = dict(key)
        if exponent := powers.get(variable, 0):
            powers[variable] -= 1
            lower = tuple(sorted((name, power) for name, power in powers.items() if power))
            result[lower] = result.get(lower, Fraction(0)) + value * exponent
    return _clean(result)


def _coefficients(a: Polynomial, variable: str) -> list[Fraction]:
    """Return the coefficients of a polynomial in one variable, constant first."""
    by_power = {dict(key).get(variable, 0): value for key, value in a.items()}
    if any(set(dict(key)) - {variable} for key in a):
        raise ValueError("another variable")
    return [by_power.get(power, Fraction(0)) for power in range(max(by_power, default=0) + 1)]


def judge_polynomial_multiplication(prompt: str, answer: str) -> bool | None:
    """Compare the expanded products."""
    task = re.findall(r"^(?:Simplify this expression|Calculate the following): (.*)$", prompt, re.MULTILINE)
    return polynomial(task[0]) == polynomial(answer)


def judge_simple_integration(prompt: str, answer: str) -> bool | None:
    """Compare the derivative with the integrand."""
    integrand, variable = re.findall(r"∫ (.*) d(\w)$", prompt, re.MULTILINE)[0]
    return _derivative(polynomial(answer), variable) == polynomial(integrand)


def judge_simple_equations(prompt: str, answer: str) -> bool | None:
    """Put the number into the equation; None if the equation is not linear."""
    equation = re.findall(r": (.* = .*)$", prompt.strip().splitlines()[0])[0]
    left, right = equation.split(" = ")
    variable = re.findall(r"[a-z]", equation)[0]
    coefficients = _coefficients(
        _plus(polynomial(left), _times(polynomial(right), {(): Fraction(-1)})), variable
    )
    if len(coefficients) != 2:
        return None
    return coefficients[0] + coefficients[1] * Fraction(answer) == 0


def judge_polynomial_equations(prompt: str, answer: str) -> bool | None:
    """Compare the real roots to four decimals; None if rounding and cutting off give different decimals.

    The prompt asks to round, and to round down where the fifth decimal is 5 or more.
    """
    equation = re.findall(r"^(?:.*: )?(.*) = 0$", prompt, re.MULTILINE)[0]
    variable = re.findall(r"[a-z]", equation)[0]
    roots = real_roots(_coefficients(polynomial(equation), variable))
    given = sorted(Fraction(word) for word in answer.replace(" ", "").split(",") if word)
    ten = 10**4
    nearest = [Fraction(round(root * ten), ten) for root in roots]
    if any(abs(root * ten) % 1 > Fraction(1, 2) - Fraction(1, 1000) for root in roots if root * ten % 1):
        return None
    return given == nearest and len(set(nearest)) == len(nearest)


def real_roots(coefficients: list[Fraction]) -> list[Fraction]:
    """Return the different real roots in ascending order, each with an error below 10^-12.

    Between two neighboring roots of the derivative a polynomial is monotonic, so bisection finds its root.
    """
    if len(coefficients) < 2:
        return []
    derivative = [power * value for power, value in enumerate(coefficients)][1:]
    bound = 1 + max(abs(value / coefficients[-1]) for value in coefficients[:-1])
    turns = real_roots(derivative)
    found = [turn for turn in turns if abs(_value(coefficients, turn)) < Fraction(1, 10**18)]
    for low, high in zip([-bound, *turns], [*turns, bound], strict=True):
        if _value(coefficients, low) * _value(coefficients, high) < 0 and not {low, high} & set(found):
            found.append(_bisected(coefficients, low, high))
    return sorted(found)


def _bisected(coefficients: list[Fraction], low: Fraction, high: Fraction) -> Fraction:
    sign = _value(coefficients, low) > 0
    for denominator in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10):  # exact roots stay exact
        step = Fraction(1, denominator)
        if high - low > 1000:
            break
        candidate = -(-low // step) * step
        while candidate < high:
            if _value(coefficients, candidate) == 0:
                return candidate
            candidate += step
    while high - low > Fraction(1, 2**45):
        middle = Fraction(round((low + high) * 2**47), 2**48)
        if (_value(coefficients, middle) > 0) == sign:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _value(coefficients: list[Fraction], x: Fraction) -> Fraction:
    value = Fraction(0)
    for coefficient in reversed(coefficients):
        value = value * x + coefficient
    return value


def solve_products(prompt: str) -> str | None:
    """Multiply."""
    a, b = re.findall(r"(-?\d+) \* (-?\d+)", prompt)[0]
    return str(int(a) * int(b))


def judge_prime_factorization(prompt: str, answer: str) -> bool | None:
    """Divide by primes in ascending order."""
    number = int(re.findall(r"prime factorization of (\d+)\.", prompt)[0])
    factors, prime = [], 2
    while number > 1:
        while number % prime == 0:
            factors.append(prime)
            number //= prime
        prime += 1
    return [int(word) for word in answer.split("×")] == factors


def judge_power_function(prompt: str, answer: str) -> bool | None:
    """Compare three significant figures; None if they depend on whether the sign belongs to the base."""
    base, exponent = re.findall(r"Compute (-?[\d.]+)\^(-?\d+)\.", prompt)[0]
    if base.startswith("-") and int(exponent) % 2 == 0 and "belongs to the base" not in prompt:
        return None
    right = Fraction(base) ** int(exponent)
    digits = f"{Decimal(right.numerator) / Decimal(right.denominator):.2e}"
    return f"{Decimal(answer):.2e}" == digits


def judge_puzzle24(prompt: str, answer: str) -> bool | None:
    """Calculate exactly, with each number once."""
    numbers = re.findall(r"Make 24 using ([\d, ]+)\.", prompt)[0].split(", ")
    used = re.findall(r"\d+", answer)
    if sorted(used) != sorted(numbers) or re.search(r"\*\*|//|[^\d+*/() -]", answer):
        return False
    return polynomial(answer) == {(): Fraction(24)}


def judge_simple_geometry(prompt: str, answer: str) -> bool | None:
    """Subtract from the sum of the angles; None if a convex polygon has no such angle."""
    angles = [Fraction(text) for text in re.findall(r"(\d+(?:\.\d+)?)°", prompt)]
    right = 180 * (len(angles) - 1) - sum(angles)
    if not 0 < right < 180 or not all(0 < angle < 180 for angle in angles):
        return None
    sides = re.findall(r"with (\d+) sides|(\d+)-gon|has (\d+) sides", prompt)[0]
    return len(angles) + 1 == int("".join(sides)) and Fraction(answer) == right


def judge_path_star(prompt: str, answer: str) -> bool | None:
    """Follow the path; None if another path leads to the goal."""
    task = prompt.strip().rsplit("\n", 1)[1]
    edges_text, ends = task.removesuffix(" =").removesuffix("= ").strip().split("/")
    edges = {frozenset(edge.split()) for edge in edges_text.strip("|").split("|")}
    start, goal = ends.replace("=", "").split()
    paths, found = [[start]], []
    while paths:
        path = paths.pop()
        if path[-1] == goal:
            found.append(path)
            continue
        for edge in edges:
            if path[-1] in edge:
                paths += [[*path, node] for node in edge - {path[-1]} if node not in path]
    return found[0] == answer.split() if len(found) == 1 else None
