"""Scorers for datasets whose own scoring evaluates the model's text or rewards text that solves nothing.

A scorer takes the dataset, the answer, and the item, and returns a number from 0 to 1. On plain answers,
right or wrong, it equals `score_answer` of reasoning-gym 0.1.25; the documentation of these environments
lists the differences. Nothing here evaluates text; `expressions` parses it.
"""

from __future__ import annotations

import cmath
import contextlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

from gem_envs._generated.literal import is_number
from gem_envs._rg.conclusions import is_conclusion
from gem_envs._rg.expressions import arithmetic, is_antiderivative, is_expanded, literal
from gem_envs.data._rows import DataRow
from gem_envs.graders.math import judge

Scorer: TypeAlias = Callable[[Any, str, DataRow], float]

_MOST_MOVES = 1000
_MOST_COMPARED = 100_000
"""Product of the lengths of two JSON texts that are compared node by node, in half a second at most."""
_MOST_ATOMS, _LONGEST_LOGIC = 10, 1000
_TRIVIAL = 0.25
"""Score of the package for a conclusion that holds for any premises."""
_LOGIC = re.compile(r"[\u2227\u2228\u2192\u2194\u00ac()]")
"""The operators and, or, implies, if and only if, not, and brackets."""
_BOX_MOVE = re.compile(r"move\(box_(.*?),\s(.*?)\)")
_DECIMAL = re.compile(r"\d+\.?\d*")
_INTEGER = re.compile(r"\b\d+\b")
_SHORT_FRACTION = re.compile(r"\s*[+-]?[0-9.]{1,60}(?:[eE][+-]?[0-9]{1,2}|/[0-9]{1,60})?\s*")


def scorer(name: str, data: Any) -> Callable[[str, DataRow], float]:
    """Return the scorer of a dataset: our own if there is one, else the package's."""
    if name == "composite":
        parts = {part: scorer(part, inner) for part, inner in data.datasets.items()}
        return lambda answer, row: parts[row["metadata"]["source_dataset"]](answer, row)
    own = SCORERS.get(name)
    if own is None:
        package: Callable[[str, DataRow], float] = data.score_answer
        return package
    return lambda answer, row: own(data, answer, row)


def _countdown(data: Any, answer: str, row: DataRow) -> float:
    value = arithmetic(answer)
    if value is None:
        return 0.01
    target = row["metadata"]["target"]
    close = abs(value - target) <= 1e-6 + 1e-5 * abs(target)
    return 1.0 if close and _has_numbers(answer, row) else 0.05


def _puzzle24(data: Any, answer: str, row: DataRow) -> float:
    return 1.0 if arithmetic(answer) == 24 and _has_numbers(answer, row) else 0.01


def _has_numbers(answer: str, row: DataRow) -> bool:
    """Return whether the answer contains each number of the item once, and no other number."""
    return sorted(map(int, _INTEGER.findall(answer))) == sorted(row["metadata"]["numbers"])


def _binary_matrix(data: Any, answer: str, row: DataRow) -> float:
    if answer == row["answer"]:
        return 1.0
    return 0.1 if data._matrix_to_str(literal(answer)) == row["answer"] else 0.0


def _n_queens(data: Any, answer: str, row: DataRow) -> float:
    solutions = row["metadata"]["valid_answers"]
    if answer in solutions:
        return 1.0
    return 0.5 if data._board_to_string(literal(answer)) in solutions else 0.0


def _spiral_matrix(data: Any, answer: str, row: DataRow) -> float:
    answer, right = answer.strip(), row["answer"].strip()
    if answer == right:
        return 1.0
    return 0.1 if " ".join(map(str, literal(answer))) == right else 0.0


def _string_insertion(data: Any, answer: str, row: DataRow) -> float:
    if answer == row["answer"]:
        return 1.0
    return 0.1 if "".join(literal(answer)) == row["answer"] else 0.0


def _integration(data: Any, answer: str, row: DataRow) -> float:
    metadata = row["metadata"]
    if answer == row["answer"]:
        return 1.0
    return float(is_antiderivative(answer, metadata["integrand"], metadata["variable"]))


def _polynomial_multiplication(data: Any, answer: str, row: DataRow) -> float:
    return float(is_expanded(answer, row["answer"], row["metadata"]["variables"]))


def _game_of_life_halting(data: Any, answer: str, row: DataRow) -> float:
    return float(answer.strip().lower() == row["answer"].lower())


def _complex_arithmetic(data: Any, answer: str, row: DataRow) -> float:
    value = data.parse_string_to_complex(answer)
    if value is None or not cmath.isfinite(value):
        return 0.0
    return min(1.0, math.exp(-abs(value - complex(*row["metadata"]["result"]))))


def _coin_flip(data: Any, answer: str, row: DataRow) -> float:
    """Score the length of the common prefix relative to the longer number: "0" is not 0.375.

    A right number may differ by 0.0001 and a hundredth of the probability; only a certain event has 1.
    """
    answer = answer.replace(",", "")
    if not _SHORT_FRACTION.fullmatch(answer):  # "1e999999999" is a fraction of a billion digits
        return 0.0
    value, right = Fraction(answer), Fraction(row["answer"])
    if value == right or (value != 1 and abs(value - right) <= min(Fraction(1, 10_000), right / 100)):
        return 1.0
    a, b = f"{float(value):.10g}", f"{float(right):.10g}"
    agreeing = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return agreeing / max(len(a), len(b))


def _calendar_arithmetic(data: Any, answer: str, row: DataRow) -> float:
    """Divide by the absolute value of the right number, which is -1 if there is no such day."""
    try:
        right = int(row["answer"])
    except ValueError:
        return float(data.score_answer(answer, row))
    if right >= 0:
        return float(data.score_answer(answer, row))
    return math.exp(-5 * min(100.0, abs(int(answer.strip()) - right) / -right))


def _number_sorting(data: Any, answer: str, row: DataRow) -> float:
    """Reject NaN: a list of NaN counts as sorted, and no distance to NaN is too large."""
    values = json.loads(answer.replace("'", '"'))
    if not isinstance(values, list) or not all(math.isfinite(float(value)) for value in values):
        return 0.0
    return float(data.score_answer(answer, row))


def _spell_backward(data: Any, answer: str, row: DataRow) -> float:
    """Score the right word with extra text 0.8, even if a sum of fractions misses 1.0 by rounding."""
    word, right = answer.lower(), row["answer"].lower()
    longer = word != right and word.startswith(right)
    return 0.8 if longer else float(data.score_answer(answer, row))


def _codeio(data: Any, answer: str, row: DataRow) -> float:
    """Compare large JSON by equality: the package's distance of two trees takes minutes and gigabytes."""
    start, end = answer.find("{"), answer.rfind("}") + 1
    if 0 <= start < end and (end - start) * len(row["answer"]) > _MOST_COMPARED:
        with contextlib.suppress(ValueError):  # the package scores text that is not JSON at once
            if json.loads(answer[start:end]) != json.loads(row["answer"]):
                return 0.01
    return float(data.score_answer(answer, row))


def _rubiks_cube(data: Any, answer: str, row: DataRow) -> float:
    """Bound the number of moves: ``R999999999`` stands for that many moves."""
    moves = answer.split()
    counts = [re.sub(r"[^0-9]", "", move) for move in moves]
    if any(len(count) > 4 for count in counts) or sum(int(count or 1) for count in counts) > _MOST_MOVES:
        return 0.01
    return float(data.score_answer(answer, row))


def _rush_hour(data: Any, answer: str, row: DataRow) -> float:
    """Limit moves to the size of the board, where a piece stops: ``F+99999999`` means that many attempts."""
    return float(data.score_answer(re.sub(r"([+-])\d{2,}", r"\g<1>9", answer), row))


def _boxnet(data: Any, answer: str, row: DataRow) -> float:
    """Stop at the first impossible act; the package skips it, so a walk over all squares solves any board."""
    squares = {place: Counter(things) for place, things in row["metadata"]["initial_state"].items()}
    boxes = sum(things[thing] for things in squares.values() for thing in things if thing[:4] == "box_")
    matched = 0
    for agent, act in (pair for step in json.loads(answer) for pair in step.items()):
        here, move = _square(agent), _BOX_MOVE.match(act)
        if move is None or not squares.get(here, Counter())[f"box_{move[1]}"]:
            break
        if move[2] == f"target_{move[1]}" and squares[here][move[2]]:
            matched += 1
            squares[here][move[2]] -= 1
        elif "square" in move[2] and _adjacent(here, there := _square(move[2])) and there in squares:
            squares[there][f"box_{move[1]}"] += 1
        else:
            break
        squares[here][f"box_{move[1]}"] -= 1
    return max(0.05, matched / boxes)


def _square(text: str) -> str:
    return "_".join(str(float(number)) for number in _DECIMAL.findall(text))


def _adjacent(a: str, b: str) -> bool:
    return sum(abs(float(x) - float(y)) for x, y in zip(a.split("_"), b.split("_"), strict=False)) == 1


def _propositional_logic(data: Any, answer: str, row: DataRow) -> float:
    """Score a conclusion 1 only if it needs several premises, else as the package scores a tautology.

    The package tabulates all truth values of all names, 2 to the power of their number.
    """
    if is_conclusion(answer, row):
        return 1.0
    atoms = {atom.strip() for atom in _LOGIC.split(answer)} - {""}
    if len(atoms) > _MOST_ATOMS or len(answer) > _LONGEST_LOGIC:
        return 0.0
    return min(_TRIVIAL, float(data.score_answer(answer, row)))


def _gsm_symbolic(data: Any, answer: str, row: DataRow) -> float:
    """Read one number with its sign, separators, and unit; the package takes the first digits of any text."""
    if not any(map(str.isdigit, answer)):
        return 0.0
    right = is_number(answer) and judge(answer, row["answer"], symbolic=False).correct
    return 1.0 if right else 0.01


SCORERS: dict[str, Scorer] = {
    "binary_matrix": _binary_matrix,
    "boxnet": _boxnet,
    "calendar_arithmetic": _calendar_arithmetic,
    "codeio": _codeio,
    "coin_flip": _coin_flip,
    "complex_arithmetic": _complex_arithmetic,
    "countdown": _countdown,
    "game_of_life_halting": _game_of_life_halting,
    "gsm_symbolic": _gsm_symbolic,
    "intermediate_integration": _integration,
    "n_queens": _n_queens,
    "number_sorting": _number_sorting,
    "polynomial_multiplication": _polynomial_multiplication,
    "propositional_logic": _propositional_logic,
    "puzzle24": _puzzle24,
    "rubiks_cube": _rubiks_cube,
    "rush_hour": _rush_hour,
    "simple_integration": _integration,
    "spell_backward": _spell_backward,
    "spiral_matrix": _spiral_matrix,
    "string_insertion": _string_insertion,
}
"""Scorers by dataset. An exception of a scorer is a score of 0."""
