r"""Second solver of questions about figures: measures what is drawn, instead of using a formula.

A figure is to scale. The labels of lengths give the scale, and every other label and every premise of the
question has to agree with the drawing.
"""

from __future__ import annotations

import cmath
import math
import re
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from typing import TypeAlias

from gem_envs._geometry.figures import Angle, Circle, Dot, Label, Polyline, Shape

_NEAR = 1e-6
"""Relative difference below which two measures are the same."""
_ANSWER = re.compile(r"(?P<factor>\d+(?:\.\d+)?)?(?:\\sqrt\{(?P<square>\d+)\})?(?P<pi>\\pi)?")


_Line: TypeAlias = tuple[complex, complex]


class Unlike(Exception):
    """A label or a premise disagrees with the drawing."""


def value_of(answer: str) -> float | None:
    r"""Return the value of a number, a root such as ``3\sqrt{2}``, or a multiple of \pi; else None."""
    found = _ANSWER.fullmatch(answer)
    if found is None or not answer:
        return None
    value = float(found["factor"] or 1) * math.sqrt(float(found["square"] or 1))
    return value * math.pi if found["pi"] else value


def measure(problem: str, shapes: Iterable[Shape]) -> float | None:
    """Return the quantity that a question asks for; None if the figure contradicts itself or the question.

    Raises:
        ValueError: The question is unknown.
    """
    try:
        figure = _Figure(shapes)
        figure.check(problem)
        return figure.answer(problem)
    except Unlike:
        return None


class _Figure:
    """The shapes of a figure, and what can be measured on them."""

    def __init__(self, shapes: Iterable[Shape]) -> None:
        every = list(shapes)
        self.paths = [shape for shape in every if isinstance(shape, Polyline)]
        self.circles = [shape for shape in every if isinstance(shape, Circle)]
        self.marks = [shape for shape in every if isinstance(shape, Angle)]
        self.labels = [shape for shape in every if isinstance(shape, Label)]
        dots = [shape.at for shape in every if isinstance(shape, Dot)]
        self.points = [*dots, *(circle.center for circle in self.circles)]
        self.points += [point for path in self.paths for point in path.points]
        self.lines = [line for path in self.paths for line in _lines(path)]
        self.size = max(abs(a - b) for a, b in combinations(self.points, 2))

    # -- agreement ----------------------------------------------------------------------------

    def check(self, problem: str) -> None:
        """Compare the labels of angles and the premises of the question with the drawing."""
        for mark in self.marks:
            marked = "90" if mark.right else mark.text.rstrip("°")
            if marked.isdecimal():
                _same(_degrees(mark.at, mark.one, mark.other), float(marked))
        if equal := re.search(r"In the figure (\w)(\w) = (\w)(\w)\.", problem):
            a, b, c, d = (self.named(name) for name in equal.groups())
            _same(abs(a - b), abs(c - d))
        if parallel := re.search(r"In the figure (\w)(\w) is parallel to (\w)(\w)\.", problem):
            a, b, c, d = (self.named(name) for name in parallel.groups())
            self.check_parallel((a, b), (c, d))
        if parallel := re.search(r"The lines (\w) and (\w) are parallel\.", problem):
            one, other = (self.line_at(self.named(name)) for name in parallel.groups())
            self.check_parallel(one, other)
        if center := re.search(r"(?:circle with center (\w)|(\w) is the center of the circle)", problem):
            _same(self.size + abs(self.named(center[1] or center[2]) - self.circles[0].center), self.size)
        if touching := re.search(r"(\w)(\w) touches the circle with center (\w) in \2\.", problem):
            far, touch, middle = (self.named(name) for name in touching.groups())
            _same(abs(touch - middle), self.circles[0].radius)
            _same(_degrees(touch, far, middle), 90.0)
        if "sides of the figure are equal" in problem:
            for side, following in pairwise(self.sides()):
                _same(abs(side[1] - side[0]), abs(following[1] - following[0]))
        if "All corners are right angles" in problem:
            corners = self.outline()
            for n in range(len(corners)):
                _same(_degrees(corners[n - 1], corners[n - 2], corners[n]), 90.0)
        if "Two sides of the figure are parallel" in problem and not any(
            self.are_parallel(a, b) for a, b in combinations(self.sides(), 2)
        ):
            raise Unlike("no two sides are parallel")

    def are_parallel(self, one: _Line, other: _Line) -> bool:
        return abs(_side(one[1] - one[0], other[1] - other[0])) < _NEAR * self.size**2

    def check_parallel(self, one: _Line, other: _Line) -> None:
        if not self.are_parallel(one, other):
            raise Unlike(f"{one} and {other} are not parallel")

    def scale(self) -> float:
        """Return the length that is drawn for a length of 1, on which all labels of lengths agree."""
        numbers = [label for label in self.labels if label.text.isdecimal()]
        scales = [self.length_at(label) / int(label.text) for label in numbers]
        for one in scales[1:]:
            _same(one, scales[0])
        if not scales:
            raise Unlike("no length is given")
        return scales[0]

    # -- the question -------------------------------------------------------------------------

    def answer(self, problem: str) -> float:
        if "Find the angle x in the figure, in degrees." in problem:
            (mark,) = (mark for mark in self.marks if mark.text == "x")
            return _degrees(mark.at, mark.one, mark.other)
        if problem == "The text at each corner is the angle there, in degrees. Find x.":
            return self.unknown_of_corners()
        if problem.startswith("Each small square has side 1. "):
            unit = self.side_of_squares()
        else:
            unit = self.scale()
        if "Find the length x in the figure" in problem:
            (label,) = (label for label in self.labels if label.text == "x")
            return self.length_at(label) / unit
        if ends := re.search(r"Find the distance from (\w) to (\w), in exact form\.", problem):
            return abs(self.named(ends[1]) - self.named(ends[2])) / unit
        if "of the circle, as a multiple of \\pi" in problem:
            (circle,) = self.circles
            radius = circle.radius / unit
            return math.pi * (radius * radius if "area" in problem else 2 * radius)
        if "perimeter of the" in problem:
            return sum(abs(b - a) for a, b in self.sides()) / unit
        if re.search(r"Find (?:its area|the area of the (?:figure|rectangle))\.", problem):
            return abs(sum(_side(a, b) for a, b in self.sides())) / 2 / unit**2
        raise ValueError(f"not a known question: {problem!r}")

    def unknown_of_corners(self) -> float:
        """Return the x of a triangle whose angles are given as multiples of x plus a number."""
        corners = self.outline()
        terms = []
        for label in self.labels:
            found = re.fullmatch(r"(\d*)x([+-]\d+)?", label.text)
            if found is None:
                raise Unlike(f"no multiple of x: {label.text!r}")
            terms.append((label.at, int(found[1] or 1), int(found[2] or 0)))
        x = (180 - sum(rest for _, _, rest in terms)) / sum(factor for _, factor, _ in terms)
        for at, factor, rest in terms:
            place = min(range(3), key=lambda n: abs(corners[n] - at))
            _same(_degrees(corners[place], corners[place - 1], corners[place - 2]), factor * x + rest)
        return x

    # -- parts --------------------------------------------------------------------------------

    def named(self, name: str) -> complex:
        """Return the point with a name."""
        (label,) = (label for label in self.labels if label.text == name)
        return label.at

    def line_at(self, point: complex) -> _Line:
        """Return the line that ends at a point."""
        (line,) = (line for line in self.lines if min(abs(end - point) for end in line) < _NEAR)
        return line

    def length_at(self, label: Label) -> float:
        """Return the length of the part of a line whose middle has a label."""
        lengths = [
            abs(a - b)
            for a, b in combinations(self.points, 2)
            if abs((a + b) / 2 - label.at) < _NEAR * self.size < abs(a - b) and self.is_drawn(a, b)
        ]
        if not lengths or max(lengths) - min(lengths) > _NEAR * self.size:
            raise Unlike(f"{len(lengths)} lines at the label {label.text!r}")
        return lengths[0]

    def is_drawn(self, a: complex, b: complex) -> bool:
        """Return whether the straight way from one point to another is part of a line."""
        return any(
            abs(abs(a - one) + abs(a - other) - abs(one - other)) < _NEAR * self.size
            and abs(abs(b - one) + abs(b - other) - abs(one - other)) < _NEAR * self.size
            for one, other in self.lines
        )

    def outline(self) -> tuple[complex, ...]:
        """Return the corners of the figure."""
        (points,) = (path.points for path in self.paths if path.closed)
        return points

    def sides(self) -> list[_Line]:
        corners = self.outline()
        return list(pairwise((*corners, corners[0])))

    def side_of_squares(self) -> float:
        """Return the distance between neighboring lines of squared paper, which is the same everywhere."""
        thin = [path.points for path in self.paths if path.thin]
        rows = sorted({a.imag for a, b in thin if a.imag == b.imag})
        columns = sorted({a.real for a, b in thin if a.real == b.real})
        gaps = [after - before for places in (rows, columns) for before, after in pairwise(places)]
        for gap in gaps:
            _same(gap, gaps[0])
        return gaps[0]


def _lines(path: Polyline) -> list[_Line]:
    ends: Sequence[complex] = (*path.points, path.points[0]) if path.closed else path.points
    return list(pairwise(ends))


def _degrees(at: complex, one: complex, other: complex) -> float:
    return math.degrees(abs(cmath.phase((other - at) / (one - at))))


def _side(one: complex, other: complex) -> float:
    """Return the cross product of two vectors."""
    return one.real * other.imag - one.imag * other.real


def _same(measured: float, marked: float) -> None:
    if not math.isclose(measured, marked, rel_tol=_NEAR):
        raise Unlike(f"{measured} instead of {marked}")
