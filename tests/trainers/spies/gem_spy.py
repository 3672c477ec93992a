"""A wrapper that shows the model a name for each episode and records its rewards; an environment with images.

For tests; an entry point of the group ``gem_core.envs``.
"""

from __future__ import annotations

import itertools
import json
import os
from typing import Any

from gem_core import Env, Wrapper, register_wrapper
from gem_core import register as register_env
from gem_core.images import text_part

_counter = itertools.count()


class Spy(Wrapper):
    """Puts ``Episode <name>.`` before the first observation, and writes one line of JSON per step."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.name = ""

    def on_reset(self, observation: Any, info: Any) -> Any:
        self.name = f"{os.getpid()}-{next(_counter)}"
        shown = f"Episode {self.name}.\n"
        return shown + observation if isinstance(observation, str) else [text_part(shown), *observation], info

    def on_step(self, action: str, result: Any) -> Any:
        with open(os.path.join(os.environ["GEM_SPY"], "env.jsonl"), "a", encoding="utf-8") as file:
            file.write(json.dumps({"episode": self.name, "action": action, "reward": result[1]}) + "\n")
        return result


def register() -> None:
    """Register the wrapper and the environment."""
    register_wrapper("spy", "gem_spy:Spy")
    register_env("test:Shades", "tests.train.painted:Shades")
