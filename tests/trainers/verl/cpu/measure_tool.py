"""A tool and a reward for the test of verl's own tool loop; verl loads this file by its path."""

from __future__ import annotations

import zlib
from typing import Any

from verl.tools.function_tool import function_tool


@function_tool
def measure(text: str) -> str:
    """Measure a text.

    Args:
        text: Any text.
    """
    return f"It has {len(text)} letters."


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any, **more: Any
) -> float:
    """Return a number that depends on the solution."""
    return zlib.crc32(solution_str.encode()) % 100 / 100
