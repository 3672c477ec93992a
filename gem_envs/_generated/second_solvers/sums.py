"""Second solver of lines of arithmetic, and of questions about the numbers in a file."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NUMBERS = {"plus": "+", "minus": "-", "times": "*"}


def arithmetic(question: str) -> int:
    """Multiply each run of factors, and add the products.

    Raises:
        ValueError: The question has no line of arithmetic.
    """
    text = question.splitlines()[0]
    for word, sign in _NUMBERS.items():
        text = text.replace(f" {word} ", f" {sign} ")
    line = re.search(r"\d+(?: [-+*] \d+)+", text)
    if line is None:
        raise ValueError(f"no line of arithmetic: {text!r}")
    total = 0
    for run in line[0].replace(" - ", " + -").split(" + "):
        product = 1
        for factor in run.split(" * "):
            product *= int(factor)
        total += product
    return total


def remainder(question: str, files: Mapping[str, str]) -> int | None:
    """Return what remains of a quantity of the numbers in a file; None if the file has other contents.

    Args:
        question: The question, which names the file, its length, the quantity, and the divisor.
        files: Texts of the files, by name.

    Raises:
        ValueError: The text is not such a question.
    """
    asked = re.match(r"The file (\S+) has (\d+) numbers\.\nDivide the ([a-z ]+) by (\d+)\.", question)
    if asked is None:
        raise ValueError(f"no question about a file: {question!r}")
    lines = files.get(asked[1], "").split()
    if len(lines) != int(asked[2]) or not all(line.isdecimal() for line in lines):
        return None
    ordered = sorted(map(int, lines))
    total = 0
    for number in ordered:
        total += number
    quantity = {"sum": total, "largest number": ordered[-1], "smallest number": ordered[0]}[asked[3]]
    return quantity - quantity // int(asked[4]) * int(asked[4])
