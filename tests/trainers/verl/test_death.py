"""The death of a worker or of an inference server ends the run instead of leaving it waiting."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from gem_verl import _failures, _manager
from gem_verl._manager import GemAgentLoopManager, GemAgentLoopWorker
from gem_verl._trainer import GemTrainerSeparateAsync
from ray.exceptions import RayActorError

from gem_core.errors import PolicyError
from tests.trainers.verl.memory import make_trainer, play, use_memory_queue


@pytest.mark.parametrize("failed", [False, True])
def test_the_trainer_checks_the_workers_while_it_waits(failed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    use_memory_queue(monkeypatch)
    trainer = make_trainer()
    play(trainer, {1: ["break" if failed else "3"]})
    timeouts = []

    def check_workers(timeout: float) -> None:
        timeouts.append(timeout)
        raise PolicyError("a worker died")

    trainer.agent_loop_manager = SimpleNamespace(check_workers=check_workers)
    with pytest.raises(PolicyError, match="a worker died"):
        trainer.replay_buffer.sample(global_steps=1, partition_id="train", batch_size=1)
    assert timeouts == [float(failed)]


class EngineDeadError(Exception):
    """Stands in for vLLM's error of this name, which verl's server passes on."""


@pytest.mark.parametrize("error", [RayActorError(), EngineDeadError(), ValueError("a bug")])
def test_a_worker_reports_a_dead_engine(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*args: Any, **fields: Any) -> Any:
        raise error

    monkeypatch.setattr(GemAgentLoopWorker.__base__, "_run_agent_loop", fail)
    worker = GemAgentLoopWorker.__new__(GemAgentLoopWorker)
    worker.rollout_config = SimpleNamespace(max_model_len=1)
    use_memory_queue(monkeypatch)

    async def run() -> bool:
        _failures.group.set(_failures.Group(samples=1, position_limit=1))
        watch = asyncio.create_task(worker.watch())
        await asyncio.sleep(0)
        with pytest.raises(type(error)):
            await worker._run_agent_loop({}, {"validate": False}, uid="u", session_id=0)
        await asyncio.sleep(0)
        if watch.done():
            assert watch.exception() is error
        return watch.cancel() is False

    assert asyncio.run(run()) == (not isinstance(error, ValueError))


def test_a_worker_that_died_before_its_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    def dispatch(self: Any, prompts: Any) -> None:
        raise RayActorError

    monkeypatch.setattr(GemAgentLoopManager.__base__, "generate_sequences", dispatch)
    monkeypatch.setattr(_manager, "check_data", lambda config, rows: None)
    manager = GemAgentLoopManager.__new__(GemAgentLoopManager)
    manager.config, manager._own_trainer = None, True
    with pytest.raises(PolicyError, match=r"process that plays episodes died.*resume_mode=auto"):
        manager.generate_sequences({})


def test_a_server_that_died_before_it_gets_new_weights() -> None:
    class Separate(GemTrainerSeparateAsync):
        """Its engines are stand-ins, of which one is dead."""

        def __init__(self) -> None:
            self.standalone_checkpoint_manager = self
            self.prev_step_profile, self.timing_raw, self.global_steps = False, {}, 1
            self.hybrid_rollout_config = SimpleNamespace(enable_switch=False)

        def update_weights(self, step: int) -> None:
            raise RayActorError

    with pytest.raises(PolicyError, match=r"process that plays episodes died.*resume_mode=auto"):
        Separate().on_step_end()


def test_the_manager_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = GemAgentLoopManager.__new__(GemAgentLoopManager)
    manager._watches = ["alive"]

    def get(ended: list[str]) -> list[None]:
        if ended:
            raise RayActorError
        return []

    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(ray, "wait", lambda refs, timeout: ([], refs))
    manager.check_workers()
    monkeypatch.setattr(ray, "wait", lambda refs, timeout: (refs, []))
    with pytest.raises(PolicyError, match=r"process that plays episodes died.*resume_mode=auto") as caught:
        manager.check_workers()
    assert isinstance(caught.value.__cause__, RayActorError)
