"""Questions about figures drawn by code, and the table of their ids."""

from __future__ import annotations

from typing import Any

from gem_core import register

_ENV = "gem_envs._geometry.env:GeometryEnv"
_EASY = ["third_angle", "exterior_angle", "isosceles", "parallel_lines", "fourth_angle"]
_HARD = ["angles_with_x", "l_shape", "trapezoid", "similar_triangles", "tangent", "grid_polygon"]

# id, arguments, description, wrappers
_TABLE: tuple[tuple[str, dict[str, Any], str, str], ...] = (
    ("vision:Geometry-v0", {}, "A question about a figure, 17 kinds", ""),
    ("vision:Geometry-v0-easy", {"kinds": _EASY}, "An angle in a figure, 5 kinds", ""),
    ("vision:Geometry-v0-hard", {"kinds": _HARD}, "A question about a figure, 6 kinds of two steps", ""),
    ("vision:Geometry-v0-retry", {}, "A question about a figure; three attempts", "retry(max_attempts=3)"),
)


def register_geometry() -> None:
    """Register the ids of the drawn figures."""
    for id, kwargs, description, wrappers in _TABLE:
        register(
            id, _ENV, description=description, extra="vision", wrappers=wrappers,
            eval_kwargs={"split": "test"}, **kwargs,
        )  # fmt: skip
