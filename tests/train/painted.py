"""An environment with images that a tiny model learns in seconds, and the tiny model."""

from __future__ import annotations

import io
from typing import Any

from gem_core import Env
from gem_core.images import image_part, text_part
from gem_envs.text import last_boxed


class Shades(Env):
    """Tell whether an image is mostly light (0) or dark (1), `turns` times in a row."""

    shows_images = True
    state_fields = ("dark", "turn")
    max_return = 1.0

    def __init__(self, turns: int = 1) -> None:
        self.turns = turns

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.begin_episode(seed)
        self.turn = 0
        return self.show(), {}

    def show(self) -> Any:
        from PIL import Image

        self.dark = self.random.randrange(2)
        most, least = (30, 230) if self.dark else (230, 30)
        left, top = 28 * self.random.randrange(2), 28 * self.random.randrange(2)
        image = Image.new("L", (56, 56), most)
        image.paste(least, (left, top, left + 28, top + 28))
        file = io.BytesIO()
        image.save(file, "PNG")
        return [image_part(file.getvalue()), text_part("Is more of it light or dark?")]

    def step(self, action: str) -> Any:
        self.require_reset()
        answer = last_boxed(action)
        right = answer == str(self.dark)
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
        return f"\\boxed{{{self.dark}}}"
