"""An environment with pictures that a tiny model learns in seconds, and the tiny model."""

from __future__ import annotations

import io
from typing import Any

from gem_core.core import Env
from gem_core.images import image_part, text_part
from gem_core.text import last_boxed


class Halves(Env):
    """Say which half of a picture is dark, 0 the left or 1 the right one, `turns` times in a row."""

    shows_images = True
    state_fields = ("place", "turn")
    max_return = 1.0

    def __init__(self, turns: int = 1) -> None:
        self.turns = turns

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.begin_episode(seed)
        self.turn = 0
        return self.show(), {}

    def show(self) -> Any:
        from PIL import Image

        self.place = self.random.randrange(2)
        picture = Image.new("L", (56, 56), 230)
        picture.paste(30, (28 * self.place, 0, 28 * self.place + 28, 56))
        file = io.BytesIO()
        picture.save(file, "PNG")
        return [image_part(file.getvalue()), text_part("Which half is dark?")]

    def step(self, action: str) -> Any:
        self.require_reset()
        answer = last_boxed(action)
        right = answer == str(self.place)
        self.turn += 1
        info: Any = {"invalid": None if answer else "format"}
        done = self.turn == self.turns
        if done:
            self.end_episode()
            info["success"] = right
        return self.show(), float(right) / self.turns, done, False, info

    def sample_random_action(self) -> str:
        return f"\\boxed{{{self.action_random.randrange(2)}}}"

    def oracle_action(self) -> str:
        return f"\\boxed{{{self.place}}}"
