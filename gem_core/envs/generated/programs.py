"""Small programming tasks with tests and a solution.

A task is a text with parameters, a solution with the same parameters, and a generator of inputs. The expected
outputs come from running the solution in this process; it is our code, not a model's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any, NamedTuple

from gem_core._util.checks import check_bool, check_int
from gem_core.data import GeneratedRows, Row
from gem_core.data.rows import Split
from gem_core.envs.datasets.code import CodeEnv

_WORDS = (  # noqa: SIM905
    "amber brook cedar dune ember fjord grove harbor inlet juniper kelp lagoon meadow nectar olive pebble"
).split()


def _number(random: Random) -> str:
    return f"{random.randint(-50, 99)}\n"


def _numbers(random: Random) -> str:
    return " ".join(str(random.randint(-20, 60)) for _ in range(random.randint(3, 9))) + "\n"


def _line(random: Random) -> str:
    return " ".join(random.choices(_WORDS, k=random.randint(2, 7))) + "\n"


def _lines(random: Random) -> str:
    return "".join(f"{random.choice(_WORDS)} {random.randint(0, 30)}\n" for _ in range(random.randint(2, 6)))


class _Task(NamedTuple):
    text: str
    """Text of the task, with {k} and {m} for the parameters."""
    solution: str
    """Program that solves it, with K and M for the parameters."""
    draw: Callable[[Random], str]
    easy: bool = False


_BOUNDS = {"k": (2, 30), "m": (2, 9), "b": (2, 9), "w": (3, 5)}
_IN = "x = int(input())\n"
_NS = "a = [int(w) for w in input().split()]\n"
_TASKS = (
    _Task(
        "Read a whole number and print it plus {k}.",
        "print(int(input()) + K)",
        _number,
        True,
    ),
    _Task(
        "Read a whole number and print it minus {k}.",
        "print(int(input()) - K)",
        _number,
        True,
    ),
    _Task(
        "Read a whole number and print {k} times that number.",
        "print(int(input()) * K)",
        _number,
        True,
    ),
    _Task(
        "Read a whole number and print the remainder of its division by {k}.",
        "print(int(input()) % K)",
        _number,
        True,
    ),
    _Task(
        "Read a whole number and print {k} minus that number.",
        "print(K - int(input()))",
        _number,
        True,
    ),
    _Task(
        "Read a line and print its first {k} characters.",
        "print(input()[:K])",
        _line,
        True,
    ),
    _Task(
        "Read a line and print it without its first {k} characters.",
        "print(input()[K:])",
        _line,
        True,
    ),
    _Task(
        "Read a line and print it {k} times without a break between.",
        "print(input() * K)",
        _line,
        True,
    ),
    _Task(
        "Read whole numbers on one line and print their sum plus {k}.",
        f"{_NS}print(sum(a) + K)",
        _numbers,
    ),
    _Task(
        "Read whole numbers on one line. Print how many are above {k}.",
        f"{_NS}print(sum(v > K for v in a))",
        _numbers,
    ),
    _Task(
        "Read whole numbers on one line. Print the sum of those that {k} divides.",
        f"{_NS}print(sum(v for v in a if v % K == 0))",
        _numbers,
    ),
    _Task(
        "Read whole numbers on one line. Print the largest of them plus {k} times the smallest.",
        f"{_NS}print(max(a) + K * min(a))",
        _numbers,
    ),
    _Task(
        "Read whole numbers on one line. Print them in falling order, each plus {k}, with blanks between.",
        f"{_NS}print(*[v + K for v in sorted(a, reverse=True)])",
        _numbers,
    ),
    _Task(
        "Read whole numbers on one line. Print every number that is at a distance of at most {m} "
        "from {k}, in the given order; print none if there is none.",
        f"{_NS}print(*[v for v in a if abs(v - K) <= M] or ['none'])",
        _numbers,
    ),
    _Task(
        "Read whole numbers on one line. Print the sum of the squares of the numbers below {k}.",
        f"{_NS}print(sum(v * v for v in a if v < K))",
        _numbers,
    ),
    _Task(
        "Read whole numbers on one line. Print the first position, counted from 1, of a number "
        "above {k}, or 0.",
        f"{_NS}print(next((i for i, v in enumerate(a, 1) if v > K), 0))",
        _numbers,
    ),
    _Task(
        "Read whole numbers on one line. Start with {k}, add the numbers one after the other, and "
        "print the total after each addition, with blanks between.",
        f"{_NS}t = K\nr = []\nfor v in a:\n    t += v\n    r.append(t)\nprint(*r)",
        _numbers,
    ),
    _Task(
        "Read a whole number. Print yes if {k} or {m} divides it, else no.",
        f"{_IN}print('yes' if x % K == 0 or x % M == 0 else 'no')",
        _number,
    ),
    _Task(
        "Read a whole number x. Print x, x + {k}, x + 2 * {k} and so on, {m} numbers in all, one a line.",
        f"{_IN}for i in range(M):\n    print(x + i * K)",
        _number,
    ),
    _Task(
        "Read a whole number. Print the product of {k} and its distance from {m}.",
        f"{_IN}print(K * abs(x - M))",
        _number,
    ),
    _Task(
        "Read a whole number. Print its digits written in base {b}, with a minus sign in front "
        "where it is negative.",
        f"{_IN}n = abs(x)\nr = ''\nwhile n:\n    r = str(n % B) + r\n    n //= B\n"
        "print(('-' if x < 0 else '') + (r or '0'))",
        _number,
    ),
    _Task(
        "Read a line of words. Print those that are longer than {w} letters, with blanks between; print "
        "none if there is none.",
        "print(*[w for w in input().split() if len(w) > W] or ['none'])",
        _line,
    ),
    _Task(
        "Read a line of words. Print how many letters e there are, times {k}.",
        "print(input().count('e') * K)",
        _line,
    ),
    _Task(
        "Read a line of words in small letters. Move every letter {k} places on in the alphabet, "
        "from z to a, and print the line.",
        "print(''.join(chr((ord(c) - 97 + K) % 26 + 97) if c.isalpha() else c for c in input()))",
        _line,
    ),
    _Task(
        "Read a line of words. Print the words in alphabetical order, at most {k} of them, with "
        "blanks between.",
        "print(*sorted(input().split())[:K])",
        _line,
    ),
    _Task(
        "Read a line of words. Reverse every word of more than {w} letters and print the line.",
        "print(*[w[::-1] if len(w) > W else w for w in input().split()])",
        _line,
    ),
    _Task(
        "Each line of the input has a word and a whole number. Print the sum of the numbers, each "
        "counted {k} at most.",
        "import sys\nprint(sum(min(K, int(l.split()[1])) for l in sys.stdin))",
        _lines,
    ),
    _Task(
        "Each line of the input has a word and a whole number. Print the words whose number is at "
        "least {k}, one a line; print none if there is none.",
        "import sys\nprint('\\n'.join(l.split()[0] for l in sys.stdin if int(l.split()[1]) >= K) or 'none')",
        _lines,
    ),
    _Task(
        "Each line of the input has a word and a whole number. Print a line for each "
        "word, in alphabetical order: the word, a blank, and {k} plus the sum of its numbers.",
        "import sys\nt = {}\nfor l in sys.stdin:\n    w, n = l.split()\n"
        "    t[w] = t.get(w, K) + int(n)\nfor w in sorted(t):\n    print(w, t[w])",
        _lines,
    ),
    _Task(
        "Each line of the input has a word and a whole number. Print one line: the word "
        "with the largest number, the first of them in the input, a blank, and that number plus {k}.",
        "import sys\nr = [l.split() for l in sys.stdin]\nb = max(r, key=lambda p: int(p[1]))\n"
        "print(b[0], int(b[1]) + K)",
        _lines,
    ),
)


class ProgramRows(GeneratedRows):
    """Tasks with their tests."""

    columns: tuple[str, ...] = ("problem", "tests", "solution")
    key = "problem"

    def __init__(self, easy: bool, num_tests: int, split: Split, size: int, seed: int) -> None:
        super().__init__(split, size, seed)
        self.tasks = [task for task in _TASKS if task.easy or not easy]
        self.num_tests = num_tests
        self.bounds = {**_BOUNDS, "k": (2, 9)} if easy else _BOUNDS

    @property
    def templates(self) -> int:
        """Number of tasks that differ in more than their numbers."""
        return len(self.tasks)

    def draw(self, random: Random) -> Row:
        while True:  # until the tests distinguish every parameter from the next number
            task = random.choice(self.tasks)
            values = {name: random.randint(*bounds) for name, bounds in self.bounds.items()}
            solution = _filled(task.solution, values)
            near = [_filled(task.solution, {**values, name: values[name] + 1}) for name in values]
            inputs = [task.draw(random) for _ in range(self.num_tests)]
            outputs = [run_here(solution, text) for text in inputs]
            if all(
                other == solution or [run_here(other, text) for text in inputs] != outputs for other in near
            ) and (len(set(outputs)) > 1 or self.num_tests == 1):
                tests = {"inputs": inputs, "outputs": outputs}
                problem = task.text.format(**values)
                return {"problem": problem, "tests": json.dumps(tests), "solution": solution}


class SmallProgramEnv(CodeEnv):
    """Write a short Python program.

    Action: the program in a fenced code block; the last block marked ``python`` counts, or else the last
    block.

    Rewards: 1 when every test passes, else 0; with `partial_credit`, the share of passing tests; -0.1
    without a code block. One step. `max_return` is 1; the oracle reaches it.
    """

    def __init__(
        self,
        easy: bool = False,
        num_tests: int = 4,
        partial_credit: bool = False,
        timeout: float = 5.0,
        split: Split = "train",
        size: int = 100_000,
        seed: int = 0,
    ) -> None:
        """Choose the tasks.

        Args:
            easy: Whether to use only tasks that one short line solves.
            num_tests: Number of tests per task, from 1 to 50.
            partial_credit: Whether the reward is the share of passing tests.
            timeout: Time limit per test, in seconds.
            split: "train" or "test"; they share no task text.
            size: Number of items.
            seed: Random seed of the items.

        Raises:
            ConfigError: A value is out of range or of the wrong type.
        """
        check_bool("easy", easy)
        check_int("num_tests", num_tests, 1, 50)
        self.set_tests(None, partial_credit, timeout)
        self.keys = "problem", "tests", "solution"
        self.use_rows(ProgramRows(easy, num_tests, split, size, seed))

    def random_answer(self, row: Row, random: Random) -> str:
        """Return the solution of another item."""
        other = self.rows[random.randrange(len(self.rows))]
        return f"```python\n{other['solution']}\n```"


def run_here(solution: str, stdin: str) -> str:
    """Return the output of one of our own solutions."""
    lines = iter(stdin.splitlines())
    written: list[str] = []

    def show(*values: Any, end: str = "\n") -> None:
        written.append(" ".join(map(str, values)) + end)

    names: dict[str, Any] = {"input": lambda: next(lines), "print": show, "stdin": stdin.splitlines()}
    exec(_compiled(solution), names)
    return "".join(written)


@lru_cache(maxsize=1024)
def _compiled(solution: str) -> Any:
    return compile(solution.replace("import sys\n", "").replace("sys.stdin", "stdin"), "solution", "exec")


def _filled(program: str, values: dict[str, int]) -> str:
    """Return the program with numbers in place of the one-letter names."""
    return re.sub(r"\b[KMBW]\b", lambda match: str(values[match[0].lower()]), program)
