"""Wrong arguments of public functions are errors at once, which say what was given and what was expected."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import gem_core
from gem_chat import AppendContext
from gem_chat.tools import register_tool
from gem_core import advantages
from gem_core.errors import ConfigError, UnknownEnv, UnknownName
from gem_core.rollout import run_episode
from gem_core.tasks import EnvChoice, make_tasks, read_task
from gem_envs.graders.math import judge
from gem_envs.graders.qa import exact_match
from gem_envs.sandbox import open_sandbox
from gem_lab import check_env
from gem_lab.consistency import compare
from gem_lab.eval import evaluate, to_atif
from gem_lab.repro import Recipe

WORDLE: Any = gem_core.make("game:Wordle-v0")
ITEMS: Any = gem_core.make("math:Arithmetic-v0-easy", size=9)
DIVIDED: Any = gem_core.make("logic:Proofs-v0-d0", size=9)


def anything(*args: Any, **kwargs: Any) -> Any:
    """Stand in for a function of any type, because these calls are wrong on purpose."""


MISTAKES: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: gem_core.make(5), UnknownEnv, "unknown environment '5'"),
    (lambda: gem_core.make(None), UnknownEnv, "unknown environment 'None'"),
    (lambda: gem_core.make_vec("game:Wordle-v0", "8"), ConfigError, "num_envs='8': expected a whole number"),
    (lambda: gem_core.register("my:Env-v0", None), ConfigError, "entry point None: expected 'module:attr"),
    (lambda: gem_core.register("", "a:b"), ConfigError, "environment '': expected a text as its name"),
    (lambda: gem_core.register_wrapper("mine", 5), ConfigError, "wrapper 'mine': entry point 5: expected"),
    (lambda: register_tool("", "a:b"), ConfigError, "tool '': expected a text as its name"),
    (lambda: WORDLE.set_state({"turn": 1}), ConfigError, "is no state of <Wordle game:Wordle-v0>: expected"),
    (lambda: WORDLE.set_state(None), ConfigError, "None is no state of <Wordle game:Wordle-v0>: expected"),
    (lambda: ITEMS.items("test"), ConfigError, "split='test': expected train or eval"),
    (lambda: DIVIDED.items("test"), ConfigError, "split='test': expected train or eval"),
    (lambda: advantages.get_estimator(5), UnknownName, "unknown estimator '5'"),
    (lambda: advantages.estimator(anything), ConfigError, 'write @estimator("what it computes")'),
    (lambda: advantages.to_tokens([[1.0]], [[0, 1]]), ConfigError, "from 0 to 1: expected -1 or an index of"),
    (lambda: make_tasks(["game:Wordle-v0"], 3), ConfigError, "['game:Wordle-v0']: expected one EnvChoice or"),
    (lambda: make_tasks([EnvChoice("game:Wordle-v0")], 3, split="test"), ConfigError, "expected train or"),
    (lambda: read_task("game:Wordle-v0"), ConfigError, "task='game:Wordle-v0': expected a dict"),
    (lambda: asyncio.run(run_episode("game:Wordle-v0", None, None)), ConfigError, "expected an environment"),
    (lambda: AppendContext("Qwen/Qwen3-0.6B"), ConfigError, "'Qwen/Qwen3-0.6B': expected a tokenizer or a"),
    (lambda: judge(5, "5"), ConfigError, "answer=5: expected a text"),
    (lambda: exact_match("Paris", "Paris"), ConfigError, "references='Paris': expected a list of texts"),
    (lambda: exact_match(5, ["5"]), ConfigError, "answer=5: expected a text"),
    (lambda: open_sandbox("process").run(5), ConfigError, "code=5: expected a text"),
    (lambda: open_sandbox("process").run("1", stdin=5), ConfigError, "stdin=5: expected a text"),
    (lambda: compare(anything, None), ConfigError, "expected a Record, such as Record.read("),
    (lambda: evaluate({}), ConfigError, "config={}: expected an EvalConfig"),
    (lambda: to_atif({}), ConfigError, "episode={}: expected an Episode"),
    (lambda: Recipe.of(5), ConfigError, "options=5: expected a Mapping, such as {'model': "),
    (lambda: Recipe.of("model"), ConfigError, "options='model': expected a Mapping"),
    (lambda: check_env("game:Wordle-v0", rules=[]), ConfigError, "rules=[]: expected one or more of"),
]  # fmt: skip


BRIDGES = {"gymnasium": "gymnasium", "pettingzoo": "pettingzoo", "skyrl": "skyrl_gym"}
"""Extras of the bridges that are imported, with the package that each needs."""
BLOCKED = """
import importlib, sys
from gem_core.errors import MissingDependency
for extra, package in {bridges!r}.items():
    sys.modules[package] = None
    try:
        importlib.import_module("gem_bridges." + extra)
    except MissingDependency as error:
        print(error)
    del sys.modules[package]
"""


def test_a_bridge_without_its_package_names_the_extra() -> None:
    code = BLOCKED.format(bridges=BRIDGES)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f"gem_bridges.{extra} needs the package {package!r}: pip install 'gem-core[{extra}]'"
        for extra, package in BRIDGES.items()
    ]


@pytest.mark.parametrize(("call", "error", "message"), MISTAKES, ids=[message for *_, message in MISTAKES])
def test_mistakes(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)
