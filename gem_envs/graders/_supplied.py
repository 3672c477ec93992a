"""Names that a grader imports for a program, so that the program can use them without an import.

A program gets the names that occur in it, so it does not wait for the import of the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Literal

Names = Literal["none", "gem", "apps", "livecodebench"]

_GEM = (
    "import bisect, collections, copy, datetime, fractions, functools, heapq, io, itertools, json, math",
    "import operator, os, random, re, statistics, string, sys",
    "from bisect import bisect, bisect_left, bisect_right, insort",
    "from collections import ChainMap, Counter, OrderedDict, defaultdict, deque",
    "from copy import deepcopy",
    "from functools import cache, cmp_to_key, lru_cache, partial, reduce",
    "from heapq import heapify, heappop, heappush, heappushpop, heapreplace, merge, nlargest, nsmallest",
    "from itertools import accumulate, chain, combinations, count, cycle, groupby, islice, pairwise",
    "from itertools import permutations, product, repeat, zip_longest",
    "from math import atan2, ceil, comb, cos, exp, fabs, factorial, floor, gcd, inf, isqrt, log, log2, log10",
    "from math import pi, prod, sin, sqrt, tan",
    "from operator import iand, itemgetter, or_, sub, xor",
    "from os.path import commonprefix",
    "from random import randrange, shuffle",
    "from re import search as re_search",
    "from string import ascii_lowercase, ascii_uppercase",
    "from time import time",
    "from typing import Any, Callable, Deque, Dict, Generator, Iterable, Iterator, List, Optional, Set",
    "from typing import Tuple, Union",
    "import numpy as np",
)
"""As the original GEM does for tests of a function."""
_APPS = (
    "from heapq import *",
    "from itertools import accumulate, combinations, permutations, product",
    "from collections import ChainMap, Counter, OrderedDict, defaultdict, deque",
    "from functools import lru_cache",
    "from math import ceil, cos, exp, fabs, floor, gcd, log, log2, sin, sqrt, tan",
    "from typing import List, Tuple",
    "from sys import stdin, stdout",
    "import collections, fractions, heapq, itertools, math, random, sys, time",
    "import numpy as np",
)
"""As the graders of APPS and TACO do."""
_STARS = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics",
    "itertools", "functools", "operator", "io", "sys", "json",
)  # fmt: skip
_LIVECODEBENCH = (
    *(f"from {module} import *" for module in (*_STARS, "builtins", "typing")),
    f"import {', '.join(_STARS)}",
)
"""As the grader of LiveCodeBench does; a later statement replaces the names of an earlier one."""
_STATEMENTS: dict[Names, tuple[str, ...]] = {
    "none": (),
    "gem": _GEM,
    "apps": _APPS,
    "livecodebench": _LIVECODEBENCH,
}
_WORD = re.compile(r"[^\W\d]\w*")


def supplied_names(names: Names, code: str, *more: Names) -> str:
    """Return the statements that import the names that occur in a program.

    Args:
        names: Whose grader supplies them.
        code: The program.
        more: Further graders; their names count where the first one has none.
    """
    words = dict.fromkeys(_WORD.findall(code))
    known = {word: line for kind in (*reversed(more), names) for word, line in _table(kind).items()}
    lines = dict.fromkeys(known[word] for word in words if word in known)
    return "\n".join(map(guarded, lines))


def guarded(statement: str) -> str:
    """Return an import that may fail, because not every Python has every name, nor every machine numpy."""
    return f"try:\n    {statement}\nexcept ImportError:\n    pass"


@cache
def _table(names: Names) -> dict[str, str]:
    """Return the statement that imports each name."""
    table: dict[str, str] = {}
    for statement in _STATEMENTS[names]:
        for name, line in _imported(statement):
            table[name] = line
            if not line:
                del table[name]
    return table


def _imported(statement: str) -> Iterator[tuple[str, str]]:
    """Return the names that a statement imports, each with a statement for it alone; builtins need none."""
    if statement == "import numpy as np":
        yield "np", statement
    elif statement.startswith("import "):
        for module in statement[7:].split(", "):
            yield module, f"import {module}"
    else:
        _, module, _, names = statement.split(" ", 3)
        for name in _all(module) if names == "*" else names.split(", "):
            own = name.rpartition(" ")[2]
            yield own, "" if module == "builtins" else f"from {module} import {name}"


def _all(module: str) -> list[str]:
    found = import_module(module)
    return list(getattr(found, "__all__", (name for name in vars(found) if not name.startswith("_"))))
