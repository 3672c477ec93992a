"""Solvers of puzzles whose answer follows from a few statements: detectors, acquaintances, prerequisites."""

from __future__ import annotations

import ast
import re

from gem_envs._rg.solvers.reading import find


def solve_acre(prompt: str) -> str:
    """Find the objects that cannot be blickets, and what the others allow.

    An object on a dark detector is no blicket. Of the other objects of a lit detector, one at least is.
    """
    shown = find(r"experimental results:\n(.*?)\n\nNew test case:\n(.*?)\n\n", prompt)
    dark: set[str] = set()
    lit: list[set[str]] = []
    for objects, light in re.findall(r"^(.*) → (on|off)$", shown[1], re.MULTILINE):
        if light == "on":
            lit.append(set(objects.split(", ")))
        else:
            dark |= set(objects.split(", "))
    tested = set(shown[2].split(", ")) - dark
    if not tested:
        return "off"
    return "on" if any(objects - dark <= tested for objects in lit) else "undetermined"


_SIBLINGS = (
    r"(\w+) has (\d+) (?:brothers|sisters) and she also has (\d+) (brothers|sisters)\."
    r" How many sisters does (\w+)'s brother have"
)
_FRIENDS = r"she also has (\d+) female friends\. .*How many female friends does \w+, a male friend"
_COLLEAGUES = (
    r"(\d+) female colleagues\. .* and (\d+) female colleagues in total\."
    r" .*female colleagues does Matilda have"
)


def solve_aiw(prompt: str) -> str | None:
    """Count the women and girls around someone; None if the prompt says nothing of the person asked for.

    Matilda belongs to both circles. In hers, she replaces the first woman; in his, she is one of the women.
    """
    if match := re.search(_COLLEAGUES, prompt):
        return str(int(match[1]) + int(match[2]) - 1)
    if match := re.search(_FRIENDS, prompt):
        return str(int(match[1]) + 1)
    name, first, second, kind, other = find(_SIBLINGS, prompt).groups()
    return str(int(second if kind == "sisters" else first) + 1) if name == other else None


def solve_course_schedule(prompt: str) -> str:
    """Take courses whose prerequisites have been taken until there are none."""
    pairs: list[tuple[int, int]] = ast.literal_eval(find(r"\[\(.*?\)\]|\[\]", prompt)[0])
    taken: set[int] = set()
    waiting = set(range(int(find(r"total of (\d+) courses", prompt)[1])))
    while ready := {course for course in waiting if all(b in taken for a, b in pairs if a == course)}:
        taken |= ready
        waiting -= ready
    return str(not waiting)
