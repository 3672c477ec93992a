"""The small programming tasks: text, solution, and inputs at each boundary and for each branch."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from gem_envs._generated import program_inputs as at
from gem_envs._generated.program_inputs import Input, Inputs


class ProgramTask(NamedTuple):
    """A kind of task."""

    text: str
    """Text of the task, with {k} and {m} for the numbers."""
    solution: str
    """Program that solves it, with K and M for the numbers."""
    inputs: Inputs
    """Inputs at each boundary and for each branch of the text."""
    more: Callable[[Random, int, int], Input]
    """One more input, at random."""
    easy: bool = False
    """Whether one short line solves it."""
    k: tuple[int, int] = (2, 30)
    """Smallest and largest value of k."""
    m: tuple[int, int] = (2, 9)
    """Smallest and largest value of m."""


_IN = "x = int(input())\n"
_NS = "a = [int(w) for w in input().split()]\n"
TASKS = (
    ProgramTask(
        "Read a whole number and print it plus {k}.",
        "print(int(input()) + K)",
        at.signs, at.any_number, easy=True,
    ),
    ProgramTask(
        "Read a whole number and print it minus {k}.",
        "print(int(input()) - K)",
        at.signs, at.any_number, easy=True,
    ),
    ProgramTask(
        "Read a whole number and print {k} times that number.",
        "print(int(input()) * K)",
        at.signs, at.any_number, easy=True,
    ),
    ProgramTask(
        "Read a whole number and print the remainder of its division by {k}, which is never negative.",
        "print(int(input()) % K)",
        at.around_multiples, at.any_number, easy=True,
    ),
    ProgramTask(
        "Read a whole number and print {k} minus that number.",
        "print(K - int(input()))",
        at.signs, at.any_number, easy=True,
    ),
    ProgramTask(
        "Read a line and print its first {k} characters, or all of it if it has fewer.",
        "print(input()[:K])",
        at.lines_around, at.any_line, easy=True,
    ),
    ProgramTask(
        "Read a line and print it without its first {k} characters.",
        "print(input()[K:])",
        at.lines_around, at.any_line, easy=True,
    ),
    ProgramTask(
        "Read a line and print it {k} times without a break between.",
        "print(input() * K)",
        at.any_lines, at.any_line, easy=True,
    ),
    ProgramTask(
        "Read whole numbers on one line and print their sum plus {k}.",
        f"{_NS}print(sum(a) + K)",
        at.any_rows, at.any_numbers,
    ),
    ProgramTask(
        "Read whole numbers on one line. Print how many are above {k}.",
        f"{_NS}print(sum(v > K for v in a))",
        at.around_k, at.any_numbers,
    ),
    ProgramTask(
        "Read whole numbers on one line. Print the sum of those that {k} divides.",
        f"{_NS}print(sum(v for v in a if v % K == 0))",
        at.multiples_of_k, at.any_numbers,
    ),
    ProgramTask(
        "Read whole numbers on one line. Print the largest of them plus {k} times the smallest.",
        f"{_NS}print(max(a) + K * min(a))",
        at.any_rows, at.any_numbers,
    ),
    ProgramTask(
        "Read whole numbers on one line. Print them in falling order, each plus {k}, with blanks between.",
        f"{_NS}print(*[v + K for v in sorted(a, reverse=True)])",
        at.any_rows, at.any_numbers,
    ),
    ProgramTask(
        "Read whole numbers on one line. Print every number that is at a distance of at most {m} "
        "from {k}, in the given order; print none if there is none.",
        f"{_NS}print(*[v for v in a if abs(v - K) <= M] or ['none'])",
        at.at_distance, at.any_numbers,
    ),
    ProgramTask(
        "Read whole numbers on one line. Print the sum of the squares of the numbers below {k}.",
        f"{_NS}print(sum(v * v for v in a if v < K))",
        at.around_k, at.any_numbers,
    ),
    ProgramTask(
        "Read whole numbers on one line. Print the first position, counted from 1, of a number "
        "above {k}, or 0 if there is none.",
        f"{_NS}print(next((i for i, v in enumerate(a, 1) if v > K), 0))",
        at.around_k, at.any_numbers,
    ),
    ProgramTask(
        "Read whole numbers on one line. Start with {k}, add the numbers one after the other, and "
        "print the total after each addition, with blanks between.",
        f"{_NS}t = K\nr = []\nfor v in a:\n    t += v\n    r.append(t)\nprint(*r)",
        at.any_rows, at.any_numbers,
    ),
    ProgramTask(
        "Read a whole number. Print yes if {k} or {m} divides it, else no.",
        f"{_IN}print('yes' if x % K == 0 or x % M == 0 else 'no')",
        at.around_either, at.any_number,
    ),
    ProgramTask(
        "Read a whole number x. Print x, x + {k}, x + 2 * {k} and so on, {m} numbers in all, one a line.",
        f"{_IN}for i in range(M):\n    print(x + i * K)",
        at.signs, at.any_number,
    ),
    ProgramTask(
        "Read a whole number. Print the product of {k} and its distance from {m}.",
        f"{_IN}print(K * abs(x - M))",
        at.around_m, at.any_number,
    ),
    ProgramTask(
        "Read a whole number. Print its digits written in base {k}, with a minus sign in front "
        "where it is negative.",
        f"{_IN}n = abs(x)\nr = ''\nwhile n:\n    r = str(n % K) + r\n    n //= K\n"
        "print(('-' if x < 0 else '') + (r or '0'))",
        at.digits, at.any_number, k=(2, 9),
    ),
    ProgramTask(
        "Read a line of words. Print those that are longer than {k} letters, with blanks between; print "
        "none if there is none.",
        "print(*[w for w in input().split() if len(w) > K] or ['none'])",
        at.lengths_around, at.any_line, k=(3, 7),
    ),
    ProgramTask(
        "Read a line of words. Print how many letters e there are, times {k}.",
        "print(input().count('e') * K)",
        at.letters_e, at.any_line,
    ),
    ProgramTask(
        "Read a line of words in small letters. Move every letter {k} places on in the alphabet, "
        "from z to a, and print the line.",
        "print(''.join(chr((ord(c) - 97 + K) % 26 + 97) if c.isalpha() else c for c in input()))",
        at.letters_to_shift, at.any_line,
    ),
    ProgramTask(
        "Read a line of words. Print the words in alphabetical order, at most {k} of them, with "
        "blanks between.",
        "print(*sorted(input().split())[:K])",
        at.counts_of_words, at.any_line, k=(2, 12),
    ),
    ProgramTask(
        "Read a line of words. Reverse every word of more than {k} letters and print the line.",
        "print(*[w[::-1] if len(w) > K else w for w in input().split()])",
        at.lengths_around, at.any_line, k=(3, 7),
    ),
    ProgramTask(
        "Each line of the input has a word and a whole number. Print the sum of the numbers, each "
        "counted {k} at most.",
        "import sys\nprint(sum(min(K, int(l.split()[1])) for l in sys.stdin))",
        at.records_around, at.any_records,
    ),
    ProgramTask(
        "Each line of the input has a word and a whole number. Print the words whose number is at "
        "least {k}, one a line; print none if there is none.",
        "import sys\nprint('\\n'.join(l.split()[0] for l in sys.stdin if int(l.split()[1]) >= K) or 'none')",
        at.records_around, at.any_records,
    ),
    ProgramTask(
        "Each line of the input has a word and a whole number. Print a line for each "
        "word, in alphabetical order: the word, a blank, and {k} plus the sum of its numbers.",
        "import sys\nt = {}\nfor l in sys.stdin:\n    w, n = l.split()\n"
        "    t[w] = t.get(w, K) + int(n)\nfor w in sorted(t):\n    print(w, t[w])",
        at.records_repeated, at.any_records,
    ),
    ProgramTask(
        "Each line of the input has a word and a whole number. Print one line: the word "
        "with the largest number, the first of them in the input, a blank, and that number plus {k}.",
        "import sys\nr = [l.split() for l in sys.stdin]\nb = max(r, key=lambda p: int(p[1]))\n"
        "print(b[0], int(b[1]) + K)",
        at.records_tied, at.any_records,
    ),
)  # fmt: skip
