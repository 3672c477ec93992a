"""The measured quantities agree with the labels, and changed labels and figures are rejected."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("PIL", reason="needs the extra 'vision'")

from gem_envs._geometry.env import KINDS, GeometryEnv
from gem_envs._geometry.figures import Angle, Label
from gem_envs._geometry.second_solver import measure, value_of


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_labels_are_right(kind):
    env = GeometryEnv(kinds=[kind], pixels=56)
    for seed in range(30):
        env.reset(seed=seed)
        right = env.oracle_action()
        assert env.verify(right) is True, env.row["figure"]
        assert env.verify("no box") is None
        assert env.verify("\\boxed{about 3}") is None
        assert env.verify(f"\\boxed{{{value_of(env.row['answer']) * (1 + 1e-6):.12f}}}") is False
        env.row = {**env.row, "answer": f"{env.row['answer'].partition(chr(92))[0] or 1}7"}
        assert env.verify(env.oracle_action()) is False


def changed(shapes, kind, text):
    """Return the shapes with another text on one label."""
    place = next(
        n for n, shape in enumerate(shapes)
        if isinstance(shape, kind) and shape.text != "x" and any(c.isdigit() for c in shape.text)
    )  # fmt: skip
    return [*shapes[:place], shapes[place]._replace(text=text(shapes[place].text)), *shapes[place + 1 :]]


def more(text):
    """Return a text with a larger number."""
    digits = "".join(c for c in text if c.isdigit())
    return text.replace(digits, str(int(digits) + 1))


@pytest.mark.parametrize(
    ("kinds", "shape"),
    [
        (["third_angle", "exterior_angle", "isosceles", "parallel_lines", "inscribed_angle", "fourth_angle"],
         Angle),
        (["right_triangle", "rectangle", "l_shape", "trapezoid", "similar_triangles", "tangent", "rhombus"],
         Label),
    ],
)  # fmt: skip
def test_figures_that_contradict_themselves_have_no_answer(kinds, shape):
    for kind in kinds:
        env = GeometryEnv(kinds=[kind], pixels=56)
        for seed in range(5):
            env.reset(seed=seed)
            assert measure(env.row["problem"], env.row["shapes"]) is not None
            assert measure(env.row["problem"], changed(env.row["shapes"], shape, more)) is None, kind


@pytest.mark.parametrize("kind", ["isosceles", "similar_triangles", "inscribed_angle", "tangent"])
def test_premises_that_the_figure_breaks_have_no_answer(kind):
    env = GeometryEnv(kinds=[kind], pixels=56)
    for seed in range(5):
        env.reset(seed=seed)
        problem, shapes = env.row["problem"], list(env.row["shapes"])
        name = re.search(r"([A-Z]) (?:=|is parallel|is the center|touches)", problem)[1]
        (place,) = (n for n, shape in enumerate(shapes) if isinstance(shape, Label) and shape.text == name)
        shapes[place] = shapes[place]._replace(at=shapes[place].at * 1.1 + 0.3 + 0.1j)
        assert measure(problem, shapes) is None


def test_lines_that_are_not_parallel():
    env = GeometryEnv(kinds=["parallel_lines"], pixels=56)
    env.reset(seed=0)
    shapes = list(env.row["shapes"])
    start, end = shapes[0].points
    (place,) = (n for n, shape in enumerate(shapes) if isinstance(shape, Label) and shape.at == end)
    shapes[0] = shapes[0]._replace(points=(start, end + 0.2j))
    shapes[place] = shapes[place]._replace(at=end + 0.2j)
    assert measure(env.row["problem"], shapes) is None


def test_questions_and_answers_that_are_unknown():
    with pytest.raises(ValueError, match="not a known question"):
        measure("Find the color.", GeometryEnv(kinds=["rectangle"], pixels=56).rows[0]["shapes"])
    assert value_of("3\\sqrt{2}") == pytest.approx(18**0.5)
    assert value_of("\\pi") == pytest.approx(3.14159265)
    assert [value_of(text) for text in ("", "\\frac{1}{2}", "x", "-1")] == [None] * 4
