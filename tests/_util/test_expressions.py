"""Python's parser in several threads."""

from __future__ import annotations

import ast
import gc
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from gem_core._util.expressions import parse_expression

TEXT = "tools(tools='python', max_tool_uses=2, tool_reward=0.0)"


class Cycle:
    """Garbage whose finalizer gives other threads a chance to run."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        for _ in range(50):
            pass


@pytest.fixture
def busy_collector() -> Iterator[None]:
    """Collect garbage, and switch threads, as often as possible."""
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(50)
    sys.setswitchinterval(1e-6)
    yield
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("busy_collector")
def test_threads_parse_at_the_same_time() -> None:
    expected, start = ast.dump(parse_expression(TEXT)), threading.Barrier(8)

    def parse_often() -> str:
        start.wait()
        for _ in range(3000):
            Cycle()
            tree = parse_expression(TEXT)
        return ast.dump(tree)

    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(parse_often) for _ in range(8)]
        assert {each.result() for each in found} == {expected}


def test_spaces_are_ignored() -> None:
    assert ast.unparse(parse_expression("  f( x )\n")) == "f(x)"
