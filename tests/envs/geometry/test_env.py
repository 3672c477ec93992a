"""Figures are drawn to scale, so these tests measure the answers, with other formulas than the generator."""

from __future__ import annotations

import cmath
import io
import itertools
import json
import math
import re
import sys
from random import Random

import pytest

import gem_core
from gem_core._images import open_image
from gem_core.errors import ConfigError, MissingDependency
from gem_core.images import image_bytes, image_urls
from gem_envs._geometry import _TABLE
from gem_envs._geometry.figures import Angle, Circle, Label, Polyline, draw, turned
from gem_envs._geometry.items import root
from gem_envs.graders.math import grade
from gem_lab import check_env

pytest.importorskip("PIL", reason="needs the extra 'vision'")

from gem_envs._geometry.env import KINDS, GeometryEnv, GeometryRows

IDS = [id for id, *_ in _TABLE]
ANGLES = {"third_angle", "exterior_angle", "isosceles", "parallel_lines", "inscribed_angle", "fourth_angle"}
LENGTHS = {"right_triangle", "rectangle", "similar_triangles", "tangent", "rhombus"}


def items(kind, count=60):
    random = Random(f"test {kind}")
    return [KINDS[kind](random) for _ in range(count)]


def value(answer):
    number, _, rest = answer.partition("\\sqrt")
    return (float(number) if number else 1.0) * (math.sqrt(float(rest.strip("{}"))) if rest else 1.0)


def size_of(angle):
    degrees = math.degrees(abs(cmath.phase((angle.other - angle.at) / (angle.one - angle.at))))
    return round(degrees, 6)


def closed_path(item):
    return next(shape.points for shape in item.shapes if isinstance(shape, Polyline) and shape.closed)


def area(points):
    return abs(sum((a.conjugate() * b).imag for a, b in itertools.pairwise([*points, points[0]]))) / 2


def perimeter(points):
    return sum(abs(b - a) for a, b in itertools.pairwise([*points, points[0]]))


def measured(item):
    """Return the labeled number, or x, and the length of the line segment at the label."""
    paths = [shape for shape in item.shapes if isinstance(shape, Polyline)]
    ends = {point for path in paths for point in path.points} | {0j}
    found = []
    for label in item.shapes:
        if isinstance(label, Label) and re.fullmatch(r"\d+|x", label.text):
            near = min(
                itertools.combinations(sorted(ends, key=lambda p: (p.real, p.imag)), 2),
                key=lambda pair: abs(sum(pair) / 2 - label.at) * 1e6 + abs(pair[0] - pair[1]),
            )
            found.append((label.text, abs(near[0] - near[1])))
    return found


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_text_requests_an_exact_form_where_the_answer_may_be_a_root(kind):
    for item in items(kind, 200):
        if "sqrt" in item.answer:
            assert item.problem.endswith("in exact form."), item.problem


@pytest.mark.parametrize("kind", sorted(ANGLES))
def test_angles_match_their_labels(kind):
    for item in items(kind):
        marks = [shape for shape in item.shapes if isinstance(shape, Angle)]
        for mark in marks:
            expected = item.answer if mark.text == "x" else mark.text.rstrip("°")
            assert size_of(mark) == float(expected), item
        assert sum(mark.text == "x" for mark in marks) == 1
        assert len(marks) >= 2


def test_angles_with_x_match_their_labels():
    for item in items("angles_with_x"):
        corners = closed_path(item)
        texts = [shape.text for shape in item.shapes if isinstance(shape, Label)]
        for n, text in enumerate(texts):
            factor, rest = re.fullmatch(r"(\d*)x([+-]\d+)?", text).groups()
            expected = int(factor or 1) * int(item.answer) + int(rest or 0)
            assert size_of(Angle(corners[n], corners[n - 1], corners[n - 2])) == expected


@pytest.mark.parametrize("kind", sorted(LENGTHS))
def test_lengths_match_their_labels(kind):
    for item in items(kind):
        pieces = measured(item)
        scales = [length / int(text) for text, length in pieces if text != "x"]
        assert max(scales) == pytest.approx(min(scales)), item
        for text, length in pieces:
            if text == "x":
                assert length / scales[0] == pytest.approx(value(item.answer)), item
        if "area" in item.problem:
            assert area(closed_path(item)) / scales[0] ** 2 == pytest.approx(value(item.answer))
        if "perimeter" in item.problem:
            assert perimeter(closed_path(item)) / scales[0] == pytest.approx(value(item.answer))


@pytest.mark.parametrize("kind", ["l_shape", "trapezoid"])
def test_areas_match_their_labels(kind):
    for item in items(kind):
        points = closed_path(item)
        found = perimeter(points) if "perimeter" in item.problem else area(points)
        assert found == pytest.approx(float(item.answer)), item
        for text, length in measured(item):
            assert length == pytest.approx(int(text)), item


def test_circles_match_their_labels():
    for item in items("circle"):
        (round_shape,) = (shape for shape in item.shapes if isinstance(shape, Circle))
        (line,) = (shape for shape in item.shapes if isinstance(shape, Polyline))
        (label,) = (shape for shape in item.shapes if isinstance(shape, Label))
        assert abs(line.points[0] - line.points[1]) == int(label.text)
        expected = math.pi * (round_shape.radius**2 if "area" in item.problem else 2 * round_shape.radius)
        assert float(item.answer.removesuffix("\\pi")) * math.pi == pytest.approx(expected)


def test_areas_on_squared_paper_by_counting_points():
    """Check Pick's theorem: inner points + half of the points on the border - 1."""
    for item in items("grid_polygon", 40):
        corners = closed_path(item) if len(closed_path(item)) < 5 else None
        assert corners is not None
        sides = list(itertools.pairwise([*corners, corners[0]]))
        border = sum(math.gcd(int(abs((b - a).real)), int(abs((b - a).imag))) for a, b in sides)
        inner = sum(winding(complex(x, y), sides) for x in range(12) for y in range(10))
        assert inner + border / 2 - 1 == float(item.answer), item


def winding(point, sides):
    """Return whether the point is inside and not on the border."""
    total = 0.0
    for a, b in sides:
        if point in (a, b):
            return False
        turn = cmath.phase((b - point) / (a - point))
        if abs(abs(turn) - math.pi) < 1e-9:
            return False
        total += turn
    return abs(total) > 1


def test_distances_on_squared_paper():
    for item in items("grid_distance"):
        x0, y0, x1, y1 = item.values
        assert value(item.answer) == pytest.approx(math.hypot(x1 - x0, y1 - y0))


def test_roots_are_simplified():
    assert [root(n) for n in (4, 7, 8, 720)] == ["2", r"\sqrt{7}", r"2\sqrt{2}", r"12\sqrt{5}"]


def test_turning_a_figure_changes_no_measure():
    item = items("trapezoid", 1)[0]
    moved = turned(item.shapes, 137, True)
    assert [type(shape) for shape in moved] == [type(shape) for shape in item.shapes]
    before, after = closed_path(item), next(s.points for s in moved if isinstance(s, Polyline) and s.closed)
    assert area(after) == pytest.approx(area(before))
    assert perimeter(after) == pytest.approx(perimeter(before))


# -- the environment --------------------------------------------------------------------------


@pytest.mark.parametrize("id", IDS)
def test_check_env(id):
    whole = id == "vision:Geometry-v0"
    rules = None if whole else ["reset_results", "best_return", "twins_are_equal", "random_actions_are_legal"]
    check_env(id, rules=rules)


def test_every_kind_is_drawn_and_solved_by_the_oracle():
    for kind in KINDS:
        env = gem_core.make("vision:Geometry-v0", kinds=[kind])
        observation, _ = env.reset(seed=0)
        assert [part["type"] for part in observation] == ["image_url", "text", "text"]
        (url,) = image_urls(observation)
        image = open_image(url)
        assert image.size == (336, 336)
        assert image.convert("L").getextrema() == (0, 255)
        assert all(image.getpixel((n, m)) == (255, 255, 255) for n in (0, 335) for m in (0, 335))
        assert env.step(env.oracle_action())[1] == 1.0
        assert env.row["figure"].startswith(kind)


def test_the_text_does_not_contain_what_it_asks_about():
    env = gem_core.make("vision:Geometry-v0")
    for seed in range(40):
        text = env.reset(seed=seed)[0][1]["text"]
        assert set(re.findall(r"\d+", text)) <= {"1"}  # "each small square has side 1"


def test_exact_forms_are_right_and_rounded_ones_are_not():
    env = GeometryEnv(kinds=["right_triangle"])
    answer = next(row["answer"] for row in map(env.rows.__getitem__, range(50)) if "\\sqrt" in row["answer"])
    assert grade(f"\\sqrt{{{round(value(answer) ** 2)}}}", answer, symbolic=False)
    assert not grade(f"{value(answer):.2f}", answer, symbolic=False)


def test_items_are_many_and_splits_share_no_values():
    def rows(split):
        found = GeometryRows(list(KINDS), split, 500_000, 0)
        return [found[n] for n in range(0, 500_000, 500)]

    train, test = rows("train"), rows("test")
    assert len({(row["figure"], str(row["shapes"])) for row in train}) >= 998
    assert not {row["figure"] for row in train} & {row["figure"] for row in test}
    assert {row["figure"].split()[0] for row in train} == set(KINDS)


def test_images_are_small_and_the_same_each_time():
    first, second = (gem_core.make("vision:Geometry-v0", pixels=112) for _ in range(2))
    for seed in range(5):
        (url,), (again,) = (image_urls(env.reset(seed=seed)[0]) for env in (first, second))
        assert url == again
        assert len(image_bytes(url)) < 3000
    assert len(json.dumps(first.get_state())) < 20_000  # the image is not part of the state


def test_an_answer_that_repeats_costs_no_image(monkeypatch):
    env = gem_core.make("vision:Geometry-v0")
    env.reset(seed=0)
    monkeypatch.setattr("gem_envs._geometry.env.draw", lambda *args: pytest.fail("drawn"))
    assert env.sample_random_action()
    assert env.oracle_action()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kinds": ["third_angel"]}, "Did you mean third_angle"),
        ({"kinds": []}, "expected a list"),
        ({"kinds": "circle"}, "expected a list"),
        ({"pixels": 20}, "pixels"),
        ({"split": "dev"}, "split"),
    ],
)
def test_wrong_arguments_are_rejected(arguments, message):
    with pytest.raises(ConfigError, match=message):
        gem_core.make("vision:Geometry-v0", **arguments)


def test_without_pillow_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingDependency, match=r"pip install 'gem-core\[vision\]'"):
        gem_core.make("vision:Geometry-v0")


def test_a_figure_fills_its_image():
    from PIL import Image

    for kind in KINDS:
        image = Image.open(io.BytesIO(draw(items(kind, 1)[0].shapes, 336)))
        left, top, right, bottom = image.point(lambda shade: 255 * (shade < 200)).getbbox()
        assert max(right - left, bottom - top) > 0.5 * 336
        assert min(left, top) > 2
        assert max(right, bottom) < 334
