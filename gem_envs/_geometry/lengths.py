"""Figures with an unknown length or area."""

from __future__ import annotations

import cmath
import math
from fractions import Fraction
from random import Random

from gem_envs._geometry.figures import Angle, Circle, Dot, Label, Polyline, Shape, names, side_label
from gem_envs._geometry.items import LETTERS, Item, decimal, direction, root, two_numbers

_X = "Find the length x in the figure."
_EXACT = "Find the length x in the figure, in exact form."
"""Question whose answer may be a root."""
_WIDE, _HIGH = 11, 9
"""Size of the grids, in squares."""


def right_triangle(random: Random) -> Item:
    """A right triangle with two given sides."""
    legs = list(two_numbers(random, 2, 90))
    target = random.choice(("long side", "leg"))
    if target == "leg":  # the hypotenuse is a whole number, the second leg need not be
        long, leg = sorted(two_numbers(random, 3, 90, ratio=2.5), reverse=True)
        square = long * long - leg * leg
        texts = [str(leg), "x", str(long)]
        sides = (float(leg), math.sqrt(square))
        values, answer = (long, leg), root(square)
    else:
        texts = [str(legs[0]), str(legs[1]), "x"]
        sides = (float(legs[0]), float(legs[1]))
        values, answer = (legs[0], legs[1]), root(legs[0] ** 2 + legs[1] ** 2)
    corner, one, two = 0j, complex(sides[0], 0), complex(0, sides[1])
    shapes: list[Shape] = [
        Polyline((corner, one, two)),
        Angle(corner, one, two, right=True),
        side_label(corner, one, texts[0], two),
        side_label(corner, two, texts[1], one),
        side_label(one, two, texts[2], corner),
    ]
    return Item((target, *values), _EXACT, answer, shapes)


def rectangle(random: Random) -> Item:
    """A rectangle with two given sides."""
    width, height = two_numbers(random, 2, 99)
    target = random.choice(("area", "perimeter", "diagonal"))
    corners = (0j, complex(width, 0), complex(width, height), complex(0, height))
    shapes: list[Shape] = [
        Polyline(corners),
        Angle(corners[0], corners[1], corners[3], right=True),
        side_label(corners[0], corners[1], str(width), corners[2]),
        side_label(corners[1], corners[2], str(height), corners[0]),
    ]
    if target == "diagonal":
        shapes += [
            Polyline((corners[1], corners[3]), closed=False),
            side_label(corners[1], corners[3], "x", corners[0]),
        ]
        return Item((width, height, target), _EXACT, root(width**2 + height**2), shapes)
    answer = width * height if target == "area" else 2 * (width + height)
    return Item((width, height, target), f"Find the {target} of the rectangle.", str(answer), shapes)


def l_shape(random: Random) -> Item:
    """A rectangle with one corner cut out; four of its six sides are given."""
    width, height = two_numbers(random, 9, 60, ratio=2.0)
    right = random.randint(width // 3, 2 * width // 3)
    top = random.randint(height // 3, 2 * height // 3)
    inner = complex(width - right, height - top)
    corners = (
        0j, complex(width, 0), complex(width, inner.imag), inner, complex(inner.real, height),
        complex(0, height),
    )  # fmt: skip
    target = random.choice(("area", "perimeter"))
    center = inner / 2
    shapes: list[Shape] = [
        Polyline(corners),
        side_label(corners[0], corners[1], str(width), center),
        side_label(corners[5], corners[0], str(height), center),
        side_label(corners[2], corners[3], str(right), center),
        side_label(corners[3], corners[4], str(top), center),
    ]
    answer = width * height - right * top if target == "area" else 2 * (width + height)
    problem = f"All corners are right angles. Find the {target} of the figure."
    return Item((width, height, right, top, target), problem, str(answer), shapes)


def circle(random: Random) -> Item:
    """A circle; its radius or diameter is given."""
    radius = random.randint(2, 400)
    measure, target = random.choice(("radius", "diameter")), random.choice(("area", "circumference"))
    end = complex(radius, 0)
    start = 0j if measure == "radius" else -end
    text = str(radius if measure == "radius" else 2 * radius)
    shapes: list[Shape] = [
        Circle(0j, float(radius)),
        Polyline((start, end), closed=False),
        Dot(0j),
        side_label(start, end, text, complex(0, -radius)),
    ]
    answer = f"{radius * radius if target == 'area' else 2 * radius}\\pi"
    problem = f"Find the {target} of the circle, as a multiple of \\pi."
    return Item((radius, measure, target), problem, answer, shapes)


def trapezoid(random: Random) -> Item:
    """A trapezoid; its parallel sides and its height are given."""
    long, short = sorted(two_numbers(random, 6, 80, ratio=2.5), reverse=True)
    height = random.randint(max(2, long // 3), long)
    offset = random.randint(0, long - short)
    foot = complex(offset, 0)
    corners = (0j, complex(long, 0), complex(offset + short, height), complex(offset, height))
    shapes: list[Shape] = [
        Polyline((corners[3], foot), closed=False, thin=True),
        Polyline(corners),
        Angle(foot, foot + 1, corners[3], right=True),
        side_label(corners[0], corners[1], str(long), corners[3]),
        side_label(corners[2], corners[3], str(short), corners[0]),
        Label((foot + corners[3]) / 2, str(height), 1 + 0j),
    ]
    area = Fraction((long + short) * height, 2)
    problem = "Two sides of the figure are parallel. Find its area."
    return Item((long, short, height, offset), problem, decimal(area), shapes)


def similar_triangles(random: Random) -> Item:
    """A line across a triangle, parallel to a side."""
    one, two = two_numbers(random, 2, 15, ratio=2.5)
    side, along = random.randint(2, 9), random.randint(2, 9)
    side, along = max(side, (along + 1) // 2), max(along, (side + 1) // 2)  # neither steep nor flat
    upper, lower, across, base = one * side, two * side, one * along, (one + two) * along
    slope = random.randint(50, 100)
    top = (upper + lower) * direction(slope)
    left, right = top * (lower / (upper + lower)), base + (top - base) * (lower / (upper + lower))
    corners = (0j, complex(base, 0), top)
    a, b, c, d, e = random.sample(LETTERS, 5)
    target = random.choice(("base", "across"))
    shapes: list[Shape] = [
        Polyline(corners),
        Polyline((left, right), closed=False),
        *names(corners, (a, b, c)),
        Label(left, d, 1j * direction(slope)),
        Label(right, e, _away(right - left)),
        side_label(top, left, str(upper), corners[1]),
        side_label(left, 0j, str(lower), corners[1]),
        side_label(left, right, str(across) if target == "base" else "x", top),
        side_label(corners[0], corners[1], "x" if target == "base" else str(base), top),
    ]
    problem = f"In the figure {d}{e} is parallel to {a}{b}. {_X}"
    return Item((upper, lower, across, target), problem, str(base if target == "base" else across), shapes)


def tangent(random: Random) -> Item:
    """A tangent of a circle."""
    far, radius = sorted(two_numbers(random, 3, 99, ratio=2.6), reverse=True)
    square = far * far - radius * radius
    center, point = 0j, complex(far, 0)
    touch = radius * cmath.rect(1.0, math.acos(radius / far))
    o, p, t = random.sample(LETTERS, 3)
    shapes: list[Shape] = [
        Circle(center, float(radius)),
        Polyline((center, point, touch)),
        Angle(touch, center, point, right=True),
        Label(center, o, -1 + 0j),
        Label(point, p, 1 + 0j),
        Label(touch, t, _away(touch)),
        side_label(center, point, str(far), touch),
        side_label(center, touch, str(radius), point),
        side_label(touch, point, "x", center),
    ]
    problem = f"{p}{t} touches the circle with center {o} in {t}. {_EXACT}"
    return Item((far, radius), problem, root(square), shapes)


def rhombus(random: Random) -> Item:
    """A rhombus with half of each diagonal given."""
    one, two = two_numbers(random, 2, 90, ratio=2.5)
    target = random.choice(("area", "side"))
    corners = (complex(one, 0), complex(0, two), complex(-one, 0), complex(0, -two))
    shapes: list[Shape] = [
        Polyline((corners[0], corners[2]), closed=False, thin=True),
        Polyline((corners[1], corners[3]), closed=False, thin=True),
        Polyline(corners),
        Dot(0j),
        side_label(0j, corners[0], str(one), corners[1]),
        side_label(0j, corners[1], str(two), corners[0]),
    ]
    premise = "The sides of the figure are equal. "
    if target == "side":
        shapes.append(side_label(corners[3], corners[0], "x", 0j))
        return Item((one, two, target), premise + _EXACT, root(one**2 + two**2), shapes)
    return Item((one, two, target), premise + "Find its area.", str(2 * one * two), shapes)


def grid_polygon(random: Random) -> Item:
    """A figure on squared paper, without numbers."""
    while True:
        count = random.choice((3, 4))
        points = {complex(random.randint(0, _WIDE), random.randint(0, _HIGH)) for _ in range(count)}
        center = sum(points) / len(points)
        if len(points) < count or center in points:
            continue
        corners = sorted(points, key=lambda p: math.atan2((p - center).imag, (p - center).real))
        # Areas of the triangles of two neighbors and the center; an area of 0 means that lines coincide.
        parts = [
            round(count * ((corners[n - 1] - center).conjugate() * (corners[n] - center)).imag)
            for n in range(count)
        ]
        bends = [
            round(((corners[n] - corners[n - 1]).conjugate() * (corners[n - 2] - corners[n - 1])).imag)
            for n in range(count)
        ]
        twice = sum(parts) // count
        if min(parts) > 0 and min(map(abs, bends)) > 2 and twice >= 6:
            break
    text = " ".join(f"{int(p.real)},{int(p.imag)}" for p in corners)
    shapes: list[Shape] = [*_grid(), Polyline(tuple(corners))]
    problem = "Each small square has side 1. Find the area of the figure."
    return Item((text,), problem, decimal(Fraction(twice, 2)), shapes)


def grid_distance(random: Random) -> Item:
    """Two points on squared paper, without numbers."""
    while True:
        one, two = (complex(random.randint(0, _WIDE), random.randint(0, _HIGH)) for _ in range(2))
        step = two - one
        if abs(step) >= 2:
            break
    a, b = random.sample(LETTERS, 2)
    shapes: list[Shape] = [
        *_grid(),
        Dot(one),
        Dot(two),
        Label(one, a, -step / abs(step)),
        Label(two, b, step / abs(step)),
    ]
    values = tuple(int(part) for p in (one, two) for part in (p.real, p.imag))
    problem = f"Each small square has side 1. Find the distance from {a} to {b}, in exact form."
    return Item(values, problem, root(round(step.real) ** 2 + round(step.imag) ** 2), shapes)


def _grid() -> list[Shape]:
    across = [Polyline((complex(0, y), complex(_WIDE, y)), closed=False, thin=True) for y in range(_HIGH + 1)]
    up = [Polyline((complex(x, 0), complex(x, _HIGH)), closed=False, thin=True) for x in range(_WIDE + 1)]
    return [*across, *up]


def _away(vector: complex) -> complex:
    return vector / abs(vector)
