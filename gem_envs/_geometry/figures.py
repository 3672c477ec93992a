"""Figures: shapes in a plane, and their image.

Points are complex numbers, so rotating a figure is a multiplication. Everything is drawn to scale.
"""

from __future__ import annotations

import cmath
import io
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from gem_core._images import require_pillow

SMOOTH = 2
"""Factor by which figures are drawn larger and then scaled down, which smooths their lines."""


class Polyline(NamedTuple):
    """Straight lines from point to point."""

    points: tuple[complex, ...]
    closed: bool = True
    thin: bool = False


class Circle(NamedTuple):
    """A circle."""

    center: complex
    radius: float


class Angle(NamedTuple):
    """The mark of the angle at a point between the directions to two others, with a label."""

    at: complex
    one: complex
    other: complex
    text: str = ""
    right: bool = False
    """Angle that is marked by a square, without a label."""


class Label(NamedTuple):
    """A label next to a point."""

    at: complex
    text: str
    away: complex = 0
    """Direction of the label from the point; 0 puts it on the point."""


class Dot(NamedTuple):
    """A visible point."""

    at: complex


Shape: TypeAlias = Polyline | Circle | Angle | Label | Dot


def side_label(a: complex, b: complex, text: str, inside: complex) -> Label:
    """Return the label of the side from `a` to `b`, on the opposite side of `inside`."""
    outward = (b - a) * 1j
    middle = (a + b) / 2
    if ((inside - middle) * outward.conjugate()).real > 0:
        outward = -outward
    return Label(middle, text, outward / abs(outward))


def names(points: Sequence[complex], letters: Iterable[str]) -> list[Label]:
    """Return a letter outside of each corner of a figure."""
    center = sum(points) / len(points)
    return [
        Label(point, letter, (point - center) / abs(point - center))
        for point, letter in zip(points, letters, strict=False)
    ]


def turned(shapes: Iterable[Shape], degrees: int, mirrored: bool) -> list[Shape]:
    """Return the shapes, mirrored first and then rotated about the origin."""
    turn = cmath.rect(1.0, math.radians(degrees))

    def move(value: Any) -> Any:
        if isinstance(value, complex):
            return (value.conjugate() if mirrored else value) * turn
        return tuple(map(move, value)) if isinstance(value, tuple) else value

    return [type(shape)(*map(move, shape)) for shape in shapes]


def draw(shapes: Sequence[Shape], size: int) -> bytes:
    """Draw shapes as a PNG file of `size` times `size` pixels in shades of gray.

    Raises:
        MissingDependency: Pillow is not installed.
    """
    require_pillow("drawing a figure")
    from PIL import Image, ImageDraw

    wide = size * SMOOTH
    image = Image.new("L", (wide, wide), 255)
    _Pen(ImageDraw.Draw(image), shapes, wide).draw(shapes)
    file = io.BytesIO()
    image.reduce(SMOOTH).save(file, "PNG", compress_level=6)
    return file.getvalue()


class _Pen:
    """Draws shapes so that they fill a square canvas up to a margin."""

    def __init__(self, canvas: Any, shapes: Sequence[Shape], size: int) -> None:
        self.canvas = canvas
        self.unit = size / 20  # height of a letter; everything else is a multiple of it
        self.font = _font(max(1, round(self.unit)))
        points = [point for shape in shapes for point in _extent(shape)]
        left, right = min(p.real for p in points), max(p.real for p in points)
        low, high = min(p.imag for p in points), max(p.imag for p in points)
        longest = max((self.font.getlength(s.text) for s in shapes if isinstance(s, Label)), default=0.0)
        margin = max(2 * self.unit, self.unit + longest)
        self.scale = (size - 2 * margin) / max(right - left, high - low)
        self.middle = complex(left + right, low + high) / 2
        self.center = complex(size, size) / 2

    def draw(self, shapes: Sequence[Shape]) -> None:
        for shape in shapes:
            if isinstance(shape, Polyline):
                self._path(shape)
            elif isinstance(shape, Circle):
                self._circle(self._place(shape.center), shape.radius * self.scale, None)
            elif isinstance(shape, Angle):
                self._angle(shape)
            elif isinstance(shape, Label):
                self._text(self._place(shape.at), shape.text, shape.away.conjugate())
            else:
                self._circle(self._place(shape.at), self.unit / 5, 0)

    def _place(self, point: complex) -> complex:
        """Return the position of a point on the canvas, whose second axis points down."""
        return self.center + ((point - self.middle) * self.scale).conjugate()

    def _path(self, path: Polyline) -> None:
        points = [self._place(point) for point in path.points]
        self._line(points + points[:1] if path.closed else points, thin=path.thin)

    def _line(self, points: Sequence[complex], *, thin: bool = False) -> None:
        width, shade = (self.unit / 16, 170) if thin else (self.unit / 8, 0)
        flat = [(point.real, point.imag) for point in points]
        self.canvas.line(flat, fill=shade, width=max(1, round(width)), joint="curve")

    def _circle(self, center: complex, radius: float, fill: int | None) -> None:
        corner = complex(radius, radius)
        box = [*_pair(center - corner), *_pair(center + corner)]
        self.canvas.ellipse(box, fill=fill, outline=0, width=max(1, round(self.unit / 8)))

    def _angle(self, angle: Angle) -> None:
        at = self._place(angle.at)
        one, other = (self._place(p) - at for p in (angle.one, angle.other))
        one, other = one / abs(one), other / abs(other)
        if angle.right:
            leg = self.unit * 0.8
            self._line([at + leg * one, at + leg * (one + other), at + leg * other])
            return
        turn = cmath.phase(other / one)
        half = one * cmath.rect(1.0, turn / 2)
        radius = self.unit * 1.2
        steps = [at + radius * one * cmath.rect(1.0, turn * step / 12) for step in range(13)]
        self._line(steps)
        if not angle.text:
            return
        # Between two lines that almost meet, the label must be farther out.
        room = self.unit * (1.0 + 0.22 * len(angle.text)) / max(0.3, math.sin(abs(turn) / 2))
        self._text(at + half * max(radius + self.unit * 0.8, room), angle.text)

    def _text(self, at: complex, text: str, away: complex = 0) -> None:
        left, top, right, bottom = self.canvas.textbbox((0, 0), text, font=self.font, anchor="mm")
        if away:  # far enough for the box of the label to clear the point
            reach = abs(away.real) * (right - left) / 2 + abs(away.imag) * (bottom - top) / 2
            at += away * (reach + self.unit / 3)
        left, top, right, bottom = left + at.real, top + at.imag, right + at.real, bottom + at.imag
        pad = self.unit / 8
        self.canvas.rectangle((left - pad, top - pad, right + pad, bottom + pad), fill=255)
        self.canvas.text(_pair(at), text, fill=0, font=self.font, anchor="mm")


@lru_cache(8)
def _font(height: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(height)


def _pair(point: complex) -> tuple[float, float]:
    return point.real, point.imag


def _extent(shape: Shape) -> tuple[complex, ...]:
    if isinstance(shape, Polyline):
        return shape.points
    if isinstance(shape, Circle):
        corner = complex(shape.radius, shape.radius)
        return shape.center - corner, shape.center + corner
    return (shape.at,)
