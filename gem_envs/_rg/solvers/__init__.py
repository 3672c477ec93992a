"""A second solver for the datasets whose answer follows from the prompt: is an answer right?

A solver reads the text of the prompt as a player does. It shares no code with reasoning-gym and sees neither
the label nor the metadata. A module of `TOPICS` defines, for a dataset ``name``, one or both of

- ``solve_name(prompt) -> str | None``: the only right answer; None if there is none, or more than one;
- ``judge_name(prompt, answer) -> bool | None``: whether the answer is right, for datasets with several right
  answers, or several spellings of one; None if no answer is right.

Both raise `UnknownPrompt` for a prompt whose text they do not know.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from gem_envs._rg.solvers.reading import UnknownPrompt, same

__all__ = ["JUDGES", "SOLVERS", "TOPICS", "Judge", "Solver", "UnknownPrompt"]

Solver: TypeAlias = Callable[[str], str | None]
Judge: TypeAlias = Callable[[str, str], bool | None]

TOPICS: tuple[str, ...] = (
    "anagrams",
    "animals",
    "boards",
    "calendars",
    "cells",
    "circuits",
    "clocks",
    "decimals",
    "deduction",
    "digit_grids",
    "divisors",
    "drawings",
    "equations",
    "evidence",
    "families",
    "integrals",
    "liars",
    "list_rules",
    "machines",
    "matrices",
    "mazes",
    "numerals",
    "patterns",
    "plans",
    "programs",
    "spaces",
    "stories",
    "sums",
    "triangles",
    "wording",
)
"""Modules of this package that define solvers."""

_LONGEST = 20_000
"""Length in characters of the longest answer that is read."""

_HUGE = re.compile(r"(?<![\w.])[+-]?[\d.]+[eE][+-]?\d{4}")
"""Start of a number whose digits may fill the memory."""

SOLVERS: dict[str, Solver] = {}
"""Functions that return the only right answer, by dataset."""
JUDGES: dict[str, Judge] = {}
"""Functions that say whether an answer is right, by dataset; every dataset of `SOLVERS` has one."""


def _judged(solve: Solver, prompt: str, answer: str) -> bool | None:
    right = solve(prompt)
    return None if right is None else same(answer, right)


def _read(judge: Judge, prompt: str, answer: str) -> bool | None:
    """Return the verdict of a judge; an answer that it cannot read is wrong."""
    try:
        return len(answer) <= _LONGEST and not _HUGE.search(answer) and judge(prompt, answer)
    except UnknownPrompt:
        raise
    except LookupError as error:
        raise UnknownPrompt(f"the prompt lacks something: {prompt[:200]!r}") from error
    except (ValueError, SyntaxError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return False


for _topic in TOPICS:
    for _name, _function in vars(importlib.import_module(f"{__name__}.{_topic}")).items():
        _kind, _, _dataset = _name.partition("_")
        if _kind == "solve":
            SOLVERS[_dataset] = _function
            JUDGES.setdefault(_dataset, partial(_judged, _function))
        elif _kind == "judge":
            JUDGES[_dataset] = partial(_read, _function)
