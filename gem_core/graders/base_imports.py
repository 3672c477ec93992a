"""Names that datasets with function-style tests expect to be imported, as the original GEM does."""

from __future__ import annotations

_LINES = (
    "import bisect, collections, copy, datetime, functools, heapq, io, itertools, math, operator, os",
    "import random, re, string, sys",
    "from bisect import bisect, bisect_left, bisect_right, insort",
    "from collections import Counter, OrderedDict, defaultdict, deque",
    "from copy import deepcopy",
    "from functools import cache, cmp_to_key, lru_cache, partial, reduce",
    "from heapq import heapify, heappop, heappush, heapreplace, merge, nlargest, nsmallest",
    "from itertools import accumulate, chain, combinations, count, cycle, groupby, islice, pairwise",
    "from itertools import permutations, product, repeat, zip_longest",
    "from math import atan2, ceil, comb, factorial, floor, gcd, inf, isqrt, log, log2, log10, pi, prod, sqrt",
    "from operator import iand, itemgetter, or_, sub, xor",
    "from os.path import commonprefix",
    "from random import randrange, shuffle",
    "from re import search as re_search",
    "from string import ascii_lowercase, ascii_uppercase",
    "from time import time",
    "from typing import Any, Callable, Deque, Dict, Generator, Iterable, Iterator, List, Optional, Set",
    "from typing import Tuple, Union",
)
_NUMPY = """
try:
    import numpy as np
except ImportError:
    pass
"""


def with_base_imports(code: str) -> str:
    """Return a program that imports the usual names and then runs `code`, with the line numbers of `code`."""
    numpy = _NUMPY if "np." in code else ""
    return "\n".join(_LINES) + f"\n{numpy}exec(compile({code!r}, 'program.py', 'exec', dont_inherit=True))\n"
