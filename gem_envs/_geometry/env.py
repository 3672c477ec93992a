"""Questions about figures drawn by code."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

from gem_core import Observation
from gem_core._images import require_pillow
from gem_core._util.checks import check_int
from gem_core._util.messages import suggest
from gem_core.errors import ConfigError
from gem_core.images import image_part
from gem_envs._geometry import angles, lengths
from gem_envs._geometry.figures import draw, turned
from gem_envs._geometry.items import Item
from gem_envs._text import boxed_answer
from gem_envs.data import GeneratedRows
from gem_envs.data._rows import DataRow, DataSplit
from gem_envs.datasets._images import ask_with_images
from gem_envs.datasets._math import MathEnv

KINDS: dict[str, Callable[[Random], Item]] = {
    kind.__name__: kind
    for kind in (
        angles.third_angle, angles.exterior_angle, angles.isosceles, angles.parallel_lines,
        angles.inscribed_angle, angles.fourth_angle, angles.angles_with_x, lengths.right_triangle,
        lengths.rectangle, lengths.l_shape, lengths.circle, lengths.trapezoid, lengths.similar_triangles,
        lengths.tangent, lengths.rhombus, lengths.grid_polygon, lengths.grid_distance,
    )
}  # fmt: skip


class GeometryRows(GeneratedRows):
    """Figures of some kinds, each rotated and mirrored at random.

    A row holds shapes rather than an image, which is drawn when it is shown. The split of a question depends
    on its values, not on the orientation of its figure.
    """

    columns: tuple[str, ...] = ("problem", "answer", "figure", "shapes")
    key = "figure"

    def __init__(self, kinds: Sequence[str], split: DataSplit, size: int, seed: int) -> None:
        super().__init__(split, size, seed)
        self.kinds = list(kinds)

    def draw(self, random: Random) -> DataRow:
        kind = random.choice(self.kinds)
        item = KINDS[kind](random)
        upright = item.problem.startswith("Each small square")
        degrees = 0 if upright else random.randrange(360)
        shapes = turned(item.shapes, degrees, random.random() < 0.5)
        figure = " ".join(map(str, (kind, *item.values)))
        return {"problem": item.problem, "answer": item.answer, "figure": figure, "shapes": shapes}


class GeometryEnv(MathEnv):
    r"""Answer a question about a figure.

    Action: the answer in ``\boxed{...}``; the last box with an answer counts.

    Rewards: 1 for the right answer in any exact form (``5\sqrt{2}``, ``\sqrt{50}``), 0 for anything else.
    One step. `max_return` is 1; the oracle reaches it.

    The observation is a list of content parts: the image, the question, and the answer format. Only the
    image, which is to scale, shows what the question is about. Items are generated on demand; the two splits
    share no figure with the same values.
    """

    shows_images = True

    def __init__(
        self,
        kinds: Sequence[str] | None = None,
        pixels: int = 336,
        split: DataSplit = "train",
        size: int = 500_000,
        seed: int = 0,
    ) -> None:
        """Choose the figures.

        Args:
            kinds: Kinds of figures, all equally likely; None means all of them (`KINDS`).
            pixels: Width and height of the images, from 56 to 2048.
            split: "train" or "test".
            size: Number of items.
            seed: Random seed of the items.

        Raises:
            ConfigError: A value is out of range or of the wrong type.
            MissingDependency: Pillow is not installed.
        """
        chosen = list(KINDS) if kinds is None else kinds
        if isinstance(chosen, str) or not chosen:
            raise ConfigError(f"kinds={kinds!r}: expected a list of kinds of figures, or None for all")
        for kind in chosen:
            if kind not in KINDS:
                raise ConfigError(f"unknown figure {kind!r}.{suggest(str(kind), list(KINDS))}")
        check_int("pixels", pixels, 56, 2048)
        require_pillow("a drawn figure")
        self.pixels = pixels
        self.symbolic, self.image_key, self.keys = False, None, ("problem", "answer")
        self.use_rows(GeometryRows(chosen, split, size, seed))

    def question(self, row: DataRow) -> Observation:
        return ask_with_images(
            row["problem"], [image_part(draw(row["shapes"], self.pixels))], self.instruction
        )

    def verify(self, action: str) -> bool | None:
        """Return whether the answer in the box is what can be measured on the figure, which is to scale."""
        from gem_envs._geometry.second_solver import measure, value_of

        self._require_running("verify")
        answer = value_of(boxed_answer(action) or "")
        if answer is None:
            return None
        measured = measure(self.row["problem"], self.row["shapes"])
        return measured is not None and math.isclose(answer, measured, rel_tol=1e-9)
