"""Names that datasets with function-style tests expect to be imported, as the original GEM does."""

from __future__ import annotations

_LINES = (
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
)
_NUMPY = """
try:
    import numpy as np
except ImportError:
    pass
"""


def base_imports(code: str) -> str:
    """Return the statements that import the usual names; numpy only for code that uses it as ``np``."""
    return "\n".join(_LINES) + (_NUMPY if "np." in code else "")
