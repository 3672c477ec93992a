"""Play episodes on the console, for GEM's test programs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pprint import pformat
from typing import Any

import numpy as np


def run_and_print_episode(
    env: Any, policy: Callable[[Any], Any], ignore_done: bool = False, max_steps: float = 1e9
) -> None:
    """Play an episode of an environment or a vector env and write each step to stdout.

    Args:
        env: The environment.
        policy: Function that maps the observation to the action.
        ignore_done: Whether to continue after the end, as with a vector env that resets itself.
        max_steps: Maximum number of steps.
    """
    observation, _ = env.reset()
    step = 0
    while step < max_steps:
        step += 1
        action = policy(observation)
        following, reward, terminated, truncated, _ = env.step(action)
        parts = {"observation": observation, "action": action, "reward": reward}
        shown = {name: v if isinstance(v, str) else pformat(v) for name, v in parts.items()}
        texts = [f"{name}:\n{text}" for name, text in shown.items()]
        sys.stdout.write("\n".join([f"--- step {step}", *texts, f"done: {terminated | truncated}", ""]))
        observation = following
        if not ignore_done and np.all(terminated | truncated):
            return
