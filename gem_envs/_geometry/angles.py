"""Figures with an unknown angle."""

from __future__ import annotations

import math
from random import Random

from gem_envs._geometry.figures import Angle, Circle, Dot, Label, Polyline, Shape, names
from gem_envs._geometry.items import LETTERS, Item, direction

_ASK = "Find the angle x in the figure, in degrees."


def third_angle(random: Random) -> Item:
    """A triangle with two given angles."""
    a, b = _two_angles(random)
    corners = _triangle(a, b)
    one, two, three = corners
    shapes: list[Shape] = [
        Polyline(corners),
        Angle(one, two, three, f"{a}°"),
        Angle(two, three, one, f"{b}°"),
        Angle(three, one, two, "x"),
        *names(corners, random.sample(LETTERS, 3)),
    ]
    return Item((a, b), _ASK, str(180 - a - b), shapes)


def exterior_angle(random: Random) -> Item:
    """A triangle with one side extended; two of the three other angles are given."""
    a, b = _two_angles(random)
    corners = _triangle(a, b)
    one, two, three = corners
    far = two + 0.6
    hidden = random.choice(("outside", "inside"))
    outside, top = (180 - b, 180 - a - b)
    texts = ("x", f"{top}°") if hidden == "outside" else (f"{outside}°", "x")
    shapes: list[Shape] = [
        Polyline(corners),
        Polyline((two, far), closed=False),
        Angle(one, two, three, f"{a}°"),
        Angle(two, far, three, texts[0]),
        Angle(three, one, two, texts[1]),
    ]
    return Item((a, b, hidden), _ASK, str(outside if hidden == "outside" else top), shapes)


def isosceles(random: Random) -> Item:
    """An isosceles triangle with one given angle."""
    base = random.randint(25, 77)
    top = 180 - 2 * base
    corners = _triangle(base, base)
    letters = random.sample(LETTERS, 3)
    target = random.choice(("top", "base"))
    label = (0, f"{base}°") if target == "top" else (2, f"{top}°")
    unknown = (2, "x") if target == "top" else (random.randrange(2), "x")
    shapes: list[Shape] = [
        Polyline(corners),
        *(Angle(corners[n], corners[n - 1], corners[n - 2], text) for n, text in (label, unknown)),
        *names(corners, letters),
    ]
    equal = f"In the figure {letters[0]}{letters[2]} = {letters[1]}{letters[2]}."
    return Item((base, target), f"{equal} {_ASK}", str(top if target == "top" else base), shapes)


def parallel_lines(random: Random) -> Item:
    """A line that crosses two parallel lines."""
    slope = random.choice([a for a in range(35, 146) if a != 90])
    below, above = 0j, complex(1 / math.tan(math.radians(slope)), 1)
    along = direction(slope)
    rays = (1 + 0j, along, -1 + 0j, -along)
    label, unknown = random.randrange(4), random.randrange(4)
    size = slope if label % 2 == 0 else 180 - slope
    answer = size if (label - unknown) % 2 == 0 else 180 - size
    first, second = random.sample("kmnpqrst", 2)
    ends = [(at - 0.9, at + 0.9) for at in (below, above)]
    shapes: list[Shape] = [
        *(Polyline(line, closed=False) for line in ends),
        Polyline((below - 0.7 * along, above + 0.7 * along), closed=False),
        _between(below, rays, label, f"{size}°"),
        _between(above, rays, unknown, "x"),
        Label(ends[0][1], first, 1 + 0j),
        Label(ends[1][1], second, 1 + 0j),
    ]
    values = (slope, label, unknown)
    return Item(values, f"The lines {first} and {second} are parallel. {_ASK}", str(answer), shapes)


def inscribed_angle(random: Random) -> Item:
    """An angle at the center of a circle and an inscribed angle over the same arc."""
    half = random.randint(20, 75)
    share = random.randint(30, 70)
    place = 2 * half + (360 - 2 * half) * share / 100
    center, one, two, top = 0j, 1 + 0j, direction(2 * half), direction(place)
    target = random.choice(("center", "circle"))
    texts = ("x", f"{half}°") if target == "center" else (f"{2 * half}°", "x")
    letters = random.sample(LETTERS, 4)
    shapes: list[Shape] = [
        Circle(center, 1.0),
        Polyline((one, center, two), closed=False),
        Polyline((one, top, two), closed=False),
        Angle(center, one, two, texts[0]),
        Angle(top, one, two, texts[1]),
        Dot(center),
        Label(center, letters[3], -direction(half)),
        *(Label(point, name, point) for point, name in zip((one, two, top), letters, strict=False)),
    ]
    problem = f"{letters[3]} is the center of the circle. {_ASK}"
    return Item((half, share, target), problem, str(2 * half if target == "center" else half), shapes)


def fourth_angle(random: Random) -> Item:
    """A quadrilateral with three given angles."""
    while True:
        p, q, r = (random.randint(55, 130) for _ in range(3))
        side = random.randint(6, 11) / 10
        one, two = 0j, 1 + 0j
        three = two + side * direction(180 - q)
        # The fourth corner is on the line from the first at angle p and on the line from the third at r.
        back, up = direction(360 - q - r), direction(p)
        turn = (up.conjugate() * back).imag
        if abs(turn) < 0.3:
            continue
        length = (three.conjugate() * back).imag / turn
        other = (three.conjugate() * up).imag / turn
        if 0.4 < length < 1.6 and 0.4 < other < 1.6 and 55 <= 360 - p - q - r <= 130:
            break
    corners = (one, two, three, length * up)
    angles = [p, q, r, 360 - p - q - r]
    unknown = random.randrange(4)
    shapes: list[Shape] = [
        Polyline(corners),
        *(
            Angle(corners[n], corners[n - 3], corners[n - 1], "x" if n == unknown else f"{angles[n]}°")
            for n in range(4)
        ),
    ]
    return Item((p, q, r, unknown), _ASK, str(angles[unknown]), shapes)


def angles_with_x(random: Random) -> Item:
    """A triangle whose angles are linear in x."""
    a, b = _two_angles(random)
    x = random.randint(5, 30)
    texts, values = [], []
    for angle in (a, b, 180 - a - b):
        factor = random.randint(1, min(6, (angle + 30) // x))
        rest = angle - factor * x
        values += [factor, rest]
        texts.append(f"{factor if factor > 1 else ''}x{f'{rest:+d}' if rest else ''}")
    corners = _triangle(a, b)
    shapes: list[Shape] = [
        Polyline(corners),
        *(Angle(corners[n], corners[n - 2], corners[n - 1]) for n in range(3)),
        *names(corners, texts),
    ]
    problem = "The text at each corner is the angle there, in degrees. Find x."
    return Item(tuple(values), problem, str(x), shapes)


def _two_angles(random: Random) -> tuple[int, int]:
    """Return the angles of a triangle, each large enough for its label."""
    first = random.randint(25, 120)
    return first, random.randint(25, min(120, 155 - first))


def _triangle(a: int, b: int) -> tuple[complex, complex, complex]:
    """Return the corners of a triangle with these angles at the first two corners, 0 and 1."""
    side = math.sin(math.radians(b)) / math.sin(math.radians(a + b))
    return 0j, 1 + 0j, side * direction(a)


def _between(at: complex, rays: tuple[complex, ...], index: int, text: str) -> Angle:
    return Angle(at, at + rays[index], at + rays[(index + 1) % 4], text)
