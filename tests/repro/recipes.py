"""Two recipes, and a helper that returns the command started by a recipe's script."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gem_lab.repro import Recipe

GUESS, MASTERMIND = "game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy"

PLAIN: dict[str, Any] = {
    "env": GUESS,
    "model": "Qwen/Qwen3-1.7B",
    "seed": 7,
    "gamma": 0.9,
    "steps": 5,
    "episodes_per_step": 16,
    "group_size": 2,
    "turns_per_step": 48,
    "max_turns": 12,
    "max_tokens_per_turn": 320,
    "max_total_tokens": 4096,
    "learning_rate": 2e-6,
}

FULL: dict[str, Any] = {
    **PLAIN,
    "env": [f"{GUESS}(max_number=9)=3", MASTERMIND],
    "estimator_options": {"ddof": 1, "eps": 1e-9, "min_std": 1e-5, "scope": "trained"},
    "minibatches": 4,
    "gpus": 2,
    "temperature": 0.7,
    "wrappers": "time_limit(max_turns=5)",
    "system_prompt": 'It\'s "easy": {think}, \\box,\nthen answer \\',
    "template_kwargs": {"enable_thinking": False},
    "on_length_cut": "pass",
    "step_timeout": 30.0,
    "on_env_error": "retry",
    "max_env_retries": 3,
    "traces": "traces",
}
"""Every option except rebuilt contexts, with a text that needs quotes everywhere."""

BOTH = pytest.mark.parametrize("given", [PLAIN, FULL], ids=["plain", "full"])
OTHERS = pytest.mark.parametrize(
    "changed",
    [
        {"estimator": "grpo", "estimator_options": {"ddof": 1}},
        {"estimator": "rloo", "minibatches": 8},
        {"estimator": "reinforce", "context": "rebuild", "raw": True, "max_turns": None},
    ],
    ids=["grpo", "rloo", "rebuild"],
)
"""Changes of `PLAIN`: other estimators, and a rebuilt context."""

STUB = """#!/usr/bin/env bash
if [ "$1" = path ]; then exec "$GEM_TEST_PYTHON" -m gem_lab "$@"; fi
printf '%s\\0' "$(basename "$0")" "$@" > "$GEM_TEST_WORDS"
"""


def recipe(given: Mapping[str, Any], **changed: Any) -> Recipe:
    """Return a recipe with some options changed."""
    return Recipe.of({**given, **changed})


def started_by(script: Path, *more: str, **environment: str) -> list[str]:
    """Run the script with a stub of the program that it starts; return the words of the command line."""
    folder = script.parent / "stubs"
    folder.mkdir(exist_ok=True)
    for name in ("python", "torchrun", "accelerate", "gem-core"):
        (folder / name).write_text(STUB)
        (folder / name).chmod(0o755)
    words = folder / "words"
    env = {
        **os.environ,
        **environment,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "GEM_TEST_PYTHON": sys.executable,
        "GEM_TEST_WORDS": str(words),
    }
    subprocess.run([str(script), *more], env=env, check=True)
    return words.read_text().split("\0")[:-1]
