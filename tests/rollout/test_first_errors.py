"""A rollout logs one traceback per environment at DEBUG level."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from gem_chat import AppendContext
from gem_core import register
from gem_core.multiagent import MultiAgentEnv
from gem_core.rollout import EnvPool
from gem_core.rollout import _calls as calls_module
from gem_core.rollout._first_errors import FirstErrors
from gem_core.tasks import TaskRow
from tests.rollout.policies import ScriptedPolicy
from tests.rollout.tokenizers import CharTokenizer
from tests.support import ScriptedEnv

CONTEXT = AppendContext(CharTokenizer())


def lookup(table: dict[str, int]) -> int:
    return table["score"]


class BrokenInConstructor(ScriptedEnv):
    def __init__(self) -> None:
        lookup({})


class BrokenInReset(ScriptedEnv):
    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        lookup({})


class BrokenInStep(ScriptedEnv):
    def step(self, action: str) -> Any:
        lookup({})


class BrokenInThread(BrokenInStep):
    blocking = True


class BrokenInAsyncStep(ScriptedEnv):
    async def astep(self, action: str) -> Any:
        lookup({})


class Unprintable:
    def __repr__(self) -> str:
        return str(lookup({}))


class BrokenInfo(ScriptedEnv):
    def step(self, action: str) -> Any:
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"value": Unprintable()}


class BrokenTable(MultiAgentEnv):
    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = ["a", "b"]

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        lookup({})


KINDS = [
    BrokenInConstructor, BrokenInReset, BrokenInStep, BrokenInThread, BrokenInAsyncStep, BrokenInfo,
    BrokenTable,
]  # fmt: skip


@pytest.fixture(autouse=True)
def fresh(own_registry: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "first_errors", FirstErrors())


def errors_of(kind: type, count: int) -> list[str]:
    register(f"test:{kind.__name__}", kind)
    rows = [TaskRow(env_id=f"test:{kind.__name__}", env_kwargs={}, seed=n, index=n) for n in range(count)]

    async def played() -> list[Any]:
        pool = EnvPool()
        return await asyncio.gather(*(pool.play_all(row, ScriptedPolicy([[65]]), CONTEXT) for row in rows))

    return [str(episode.error) for episodes in asyncio.run(played()) for episode in episodes]


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for record in caplog.records if "Traceback" in (text := record.getMessage())]


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_error_of_an_environment_has_a_traceback(
    kind: type, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "gem_core")
    errors = errors_of(kind, 3)
    assert len(errors) >= 3
    assert all("KeyError: 'score'" in error for error in errors)
    (text,) = tracebacks(caplog)
    assert text.startswith(f"first error of test:{kind.__name__}; later ones ")
    assert "in lookup" in text
    assert text.endswith("KeyError: 'score'")


def test_each_environment_has_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "gem_core")
    for kind in (BrokenInStep, BrokenInReset, BrokenInStep):
        errors_of(kind, 2)
    assert [text.split(";")[0] for text in tracebacks(caplog)] == [
        "first error of test:BrokenInStep",
        "first error of test:BrokenInReset",
    ]


def test_above_debug_there_is_none_and_none_is_used_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gem_core")
    errors_of(BrokenInStep, 2)
    assert tracebacks(caplog) == []
    caplog.set_level(logging.DEBUG, "gem_core")
    errors_of(BrokenInStep, 2)
    assert len(tracebacks(caplog)) == 1


def test_a_traceback_neither_steers_the_terminal_nor_shows_a_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "gem_core")
    FirstErrors().log("test:Loud", ValueError("\x1b[2J at http://me:secret@host/"))
    (record,) = caplog.records
    assert record.getMessage().endswith("ValueError: \\x1b[2J at http://host/")
