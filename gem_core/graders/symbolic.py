"""math-verify in a sandbox, with one fresh process per answer."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from gem_core.errors import MissingDependency
from gem_core.sandbox.calls import CallError, Calls, CallTimeout

calls = Calls(Path(__file__).with_name("_verify.py"), packages=("math-verify", "antlr4-python3-runtime"))


def equal(answer: str, reference: str) -> bool | None:
    """Return whether math-verify considers two answers equal; None if it timed out.

    Raises:
        MissingDependency: math-verify is not installed.
    """
    require()
    try:
        return calls("equal", answer, reference) is True
    except CallTimeout:
        return None
    except CallError:
        return False


@lru_cache(maxsize=1)
def require() -> None:
    """Raise `MissingDependency` unless math-verify is installed."""
    if find_spec("math_verify") is None:
        raise MissingDependency("grading needs the package 'math-verify': pip install 'gem-core[math]'")
