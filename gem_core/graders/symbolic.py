"""math-verify behind a limit that holds in any thread."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from gem_core.errors import MissingDependency
from gem_core.graders import limited


def equal(answer: str, reference: str) -> bool | None:
    """Whether math-verify finds two answers equal; None when it ran out of time.

    Raises:
        MissingDependency: It is not installed.
    """
    require()
    try:
        return bool(limited.call("gem_core.graders.symbolic:verify_here", answer, reference))
    except limited.OutOfTime:
        return None
    except limited.CallFailed:
        return False


@lru_cache(maxsize=1)
def require() -> None:
    """Raise `MissingDependency` unless math-verify is installed."""
    if find_spec("math_verify") is None:
        raise MissingDependency("grading needs the package 'math-verify': pip install 'gem-core[math]'")


def preload() -> None:
    """Import what `verify_here` needs, before the worker forks."""
    import math_verify  # noqa: F401


def verify_here(answer: str, reference: str) -> bool:
    """The call itself, for the worker: no time limit, and no signal."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    def parsed(text: str) -> Any:
        return parse(
            f"${text}$",
            [LatexExtractionConfig(), ExprExtractionConfig()],
            parsing_timeout=None,
            raise_on_error=False,
        )

    return bool(verify(parsed(reference), parsed(answer), timeout_seconds=None, raise_on_error=False))
