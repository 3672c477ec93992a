"""The verdict of math-verify. `symbolic` sends this file into the sandbox, so it must not import gem_core."""

from __future__ import annotations

from typing import Any

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

_WARM = (
    (r"\int_0^1 2x\,dx", "1", "7"),
    (r"\sum_{k=1}^{3} k^2", "14", "9"),
    (r"\sin^2(x)+\log_2(x)", r"\log_2(x)+\sin^2(x)", "x+y"),
    (r"\begin{pmatrix}1&2\end{pmatrix}", "(1, 2)", "3"),
    (r"x\in[3,9)", "[3,9)", "[2,9)"),
)
"""An answer, an equal reference, and an unequal one; the two comparisons take different paths."""


def warm_up() -> None:
    """Import the modules that sympy imports lazily and fill its tables, before any child is forked."""
    for answer, *references in _WARM:
        for reference in references:
            equal(answer, reference)


def equal(answer: str, reference: str) -> bool:
    """Return whether math-verify considers two answers equal. Its time limit uses a signal and is off."""
    return bool(verify(_parsed(reference), _parsed(answer), timeout_seconds=None, raise_on_error=False))


def _parsed(text: str) -> Any:
    return parse(
        f"${text}$",
        [LatexExtractionConfig(), ExprExtractionConfig()],
        parsing_timeout=None,
        raise_on_error=False,
    )
