"""Second solver of small programming tasks: the output that a task requires for an input."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

_Output: TypeAlias = "int | str | Sequence[object]"
"""One line, or the words of a line."""
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def _digits(number: int, base: int) -> str:
    text, rest = "", abs(number)
    while rest >= base:
        rest, digit = divmod(rest, base)
        text = f"{digit}{text}"
    return f"{'-' if number < 0 else ''}{rest}{text}"


def _divides(divisor: int, number: int) -> bool:
    return abs(number) // divisor * divisor == abs(number)


def _totals(numbers: list[int], start: int) -> list[int]:
    return [start + sum(numbers[:end]) for end in range(1, len(numbers) + 1)]


def _from_z_to_a(line: str, places: int) -> str:
    wheel = _ALPHABET * (places // 26 + 2)
    return "".join(wheel[_ALPHABET.index(c) + places] if c in _ALPHABET else c for c in line)


_NUMBER: dict[str, Callable[..., _Output]] = {
    "Read a whole number and print it plus #.": lambda x, k: x + k,
    "Read a whole number and print it minus #.": lambda x, k: x - k,
    "Read a whole number and print # times that number.": lambda x, k: k * x,
    "Read a whole number and print the remainder of its division by #, which is never negative.": (
        lambda x, k: next(r for r in range(k) if _divides(k, x - r))
    ),
    "Read a whole number and print # minus that number.": lambda x, k: k - x,
    "Read a whole number. Print yes if # or # divides it, else no.": (
        lambda x, k, m: "yes" if _divides(k, x) or _divides(m, x) else "no"
    ),
    "Read a whole number. Print the product of # and its distance from #.": (
        lambda x, k, m: k * (max(x, m) - min(x, m))
    ),
    "Read a whole number. Print its digits written in base #, with a minus sign in front where it is "
    "negative.": _digits,
}
"""Tasks about a number."""

_NUMBERS: dict[str, Callable[..., _Output]] = {
    "Print the sum of those that # divides.": lambda a, k: sum([x for x in a if _divides(k, x)]),
    "Print how many are above #.": lambda a, k: len([x for x in a if not x <= k]),
    "Print the largest of them plus # times the smallest.": lambda a, k: sorted(a)[-1] + sorted(a)[0] * k,
    "Print them in falling order, each plus #, with blanks between.": (
        lambda a, k: [k + x for x in sorted(a)[::-1]]
    ),
    "Print every number that is at a distance of at most # from #, in the given order; print none if there "
    "is none.": lambda a, far, k: [x for x in a if k - far <= x <= k + far] or "none",
    "Print the sum of the squares of the numbers below #.": lambda a, k: sum([x**2 for x in a if not x >= k]),
    "Print the first position, counted from 1, of a number above #, or 0 if there is none.": (
        lambda a, k: min([place + 1 for place in range(len(a)) if a[place] > k], default=0)
    ),
    "Start with #, add the numbers one after the other, and print the total after each addition, with blanks "
    "between.": _totals,
}
"""Tasks about whole numbers on one line, after the sentence that says so."""

_LINE: dict[str, Callable[..., _Output]] = {
    "Read a line and print its first # characters, or all of it if it has fewer.": (
        lambda line, k: "".join(c for place, c in enumerate(line) if place < k)
    ),
    "Read a line and print it without its first # characters.": (
        lambda line, k: "".join(c for place, c in enumerate(line) if place >= k)
    ),
    "Read a line and print it # times without a break between.": lambda s, k: "".join(s for _ in range(k)),
    "Read a line of words. Print those that are longer than # letters, with blanks between; print none if "
    "there is none.": lambda s, k: [word for word in s.split(" ") if len(word) >= k + 1] or "none",
    "Read a line of words. Print how many letters e there are, times #.": lambda s, k: (
        k * sum(c == "e" for c in s)
    ),
    "Read a line of words in small letters. Move every letter # places on in the alphabet, from z to a, and "
    "print the line.": _from_z_to_a,
    "Read a line of words. Print the words in alphabetical order, at most # of them, with blanks between.": (
        lambda s, k: [w for place, w in enumerate(sorted(s.split(" "))) if place < k]
    ),
    "Read a line of words. Reverse every word of more than # letters and print the line.": (
        lambda s, k: " ".join("".join(reversed(w)) if len(w) > k else w for w in s.split(" "))
    ),
}
"""Tasks about a line."""

_RECORDS: dict[str, Callable[..., _Output]] = {
    "Print the sum of the numbers, each counted # at most.": (
        lambda rows, k: sum([k if number > k else number for _, number in rows])
    ),
    "Print the words whose number is at least #, one a line; print none if there is none.": (
        lambda rows, k: "\n".join([word for word, number in rows if not number < k]) or "none"
    ),
    "Print a line for each word, in alphabetical order: the word, a blank, and # plus the sum of its "
    "numbers.": lambda rows, k: "\n".join(
        f"{word} {k + sum(n for other, n in rows if other == word)}" for word in sorted({w for w, _ in rows})
    ),
    "Print one line: the word with the largest number, the first of them in the input, a blank, and that "
    "number plus #.": lambda rows, k: next(
        f"{word} {number + k}" for word, number in rows if all(number >= other for _, other in rows)
    ),
}
"""Tasks about lines of a word and a number, after the sentence that says so."""

_SERIES = re.compile(
    r"Read a whole number x\. Print x, x \+ (\d+), x \+ 2 \* \1 and so on, (\d+) numbers in all, one a line\."
)
_ON_ONE_LINE = "Read whole numbers on one line"
_EACH_LINE = "Each line of the input has a word and a whole number. "


def required_output(task: str, stdin: str) -> str:
    """Return what a program for a task must print.

    Args:
        task: Text of the task.
        stdin: Standard input.

    Raises:
        ValueError: The task is unknown, or the input is not of the form that the task describes.
    """
    line = stdin.removesuffix("\n")
    if series := _SERIES.fullmatch(task):
        step, count = int(series[1]), int(series[2])
        return "\n".join(str(value) for value in range(int(line), int(line) + step * count, step))
    if task.startswith(_EACH_LINE):
        rows = [(word, int(number)) for word, number in (row.split(" ") for row in line.split("\n"))]
        return _said(_RECORDS, task.removeprefix(_EACH_LINE), rows)
    if task.startswith(f"{_ON_ONE_LINE} and print their sum plus "):
        return str(sum(_whole(line)) + int(re.findall(r"\d+", task)[0]))
    if task.startswith(f"{_ON_ONE_LINE}. "):
        return _said(_NUMBERS, task.removeprefix(f"{_ON_ONE_LINE}. "), _whole(line))
    if task.startswith("Read a whole number"):
        return _said(_NUMBER, task, int(line))
    return _said(_LINE, task, line)


def _whole(line: str) -> list[int]:
    return [int(text) for text in line.split(" ")]


def _said(tasks: dict[str, Callable[..., _Output]], task: str, given: object) -> str:
    """Return the output of the task whose text with # for the numbers is one of `tasks`."""
    numbers = re.findall(r"(?<![\w.])\d+(?![\w])", task.replace("counted from 1", "counted from one"))
    form = re.sub(r"\d+", "#", task).replace("counted from #", "counted from 1").replace(", or #", ", or 0")
    if form not in tasks:
        raise ValueError(f"not a known task: {task!r}")
    output = tasks[form](given, *[int(text) for text in numbers if text != "0"])
    return output if isinstance(output, str) else " ".join(map(str, _words(output)))


def _words(output: int | Sequence[object]) -> Sequence[object]:
    return [output] if isinstance(output, int) else output
