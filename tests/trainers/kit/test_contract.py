"""ROLL's plugin with fakes built from ROLL's frozen contract, and the sources of that contract."""

from __future__ import annotations

import asyncio
import json
import math
import types
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gem_core.errors import EnvError, UnsupportedTrainer
from gem_core.rollout import Episode, Turn
from gem_core.rollout._sources import SourceLedger
from gem_core.trainers._failures import pack_outline
from tests.advantages.oracle import turn_returns
from tests.trainers import contract

torch = pytest.importorskip("torch")
pytest.importorskip("ray")

PLUGIN = {"managers": "gem_roll._managers", "pipeline": "gem_roll._pipeline"}
MANAGERS = "roll.pipeline.agentic.env_manager"


class FakeDataProto(SimpleNamespace):
    """Fake of ROLL's batch: a dict of tensors, a dict of columns, and a dict of other values."""

    def __len__(self) -> int:
        return len(next(iter(self.non_tensor_batch.values())))

    def __delitem__(self, key: str) -> None:
        (self.batch if key in self.batch else self.non_tensor_batch).pop(key)


def roll_fakes() -> dict[str, Any]:
    fakes = contract.fake_modules(contract.frozen("roll"))
    base = fakes[f"{MANAGERS}.base_env_manager"].BaseEnvManager
    manager = fakes[f"{MANAGERS}.traj_env_manager"].TrajEnvManager
    manager.update_step = base.update_step  # ROLL inherits these two
    pipeline = fakes["roll.pipeline.agentic.agentic_pipeline"]
    pipeline.AgenticPipeline.do_checkpoint = fakes["roll.pipeline.base_pipeline"].BasePipeline.do_checkpoint
    pipeline.RolloutScheduler = fakes["roll.distributed.scheduler.rollout_scheduler"].RolloutScheduler
    fakes["roll.distributed.scheduler.protocol"].DataProto = FakeDataProto
    tensordict: Any = types.ModuleType("tensordict")
    tensordict.TensorDict = dict
    return {**fakes, "tensordict": tensordict}


@pytest.fixture
def roll(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, Any]]:
    monkeypatch.setenv("ROLL_HOME", str(tmp_path))
    fakes = roll_fakes()
    with contract.import_fakes(fakes, "gem_roll"):
        yield fakes


def test_the_plugin_of_roll_accepts_the_frozen_interface(roll: dict[str, Any]) -> None:
    from gem_roll import _managers
    from gem_roll import _pipeline as pipeline

    base = roll["roll.pipeline.agentic.agentic_pipeline"].AgenticPipeline
    assert issubclass(pipeline.ReBNAgenticPipeline, base)
    assert issubclass(_managers.GemStepEnvManager, roll[f"{MANAGERS}.traj_env_manager"].TrajEnvManager)


@pytest.mark.parametrize(
    ("module", "owner", "name", "plugin"),
    [
        (f"{MANAGERS}.traj_env_manager", "TrajEnvManager", "run_rollout_loop", "managers"),
        (f"{MANAGERS}.traj_env_manager", "TrajEnvManager", "update_step", "managers"),
        ("roll.pipeline.agentic.agentic_pipeline", "AgenticPipeline", "adjust_batch", "pipeline"),
        ("roll.pipeline.agentic.agentic_pipeline", "AgenticPipeline", "do_checkpoint", "pipeline"),
        ("roll.pipeline.agentic.llm_proxy.base_llm_proxy", "BaseLLMProxy", "generate", "managers"),
        ("roll.distributed.scheduler.rollout_scheduler", "GroupQueueManager", "put", "managers"),
        (
            "roll.distributed.scheduler.rollout_scheduler",
            "GroupQueueManager",
            "get_episode_id",
            "managers",
        ),
        (
            "roll.distributed.scheduler.rollout_scheduler",
            "RolloutScheduler",
            "_get_batch",
            "pipeline",
        ),
    ],
)
def test_a_changed_interface_of_roll_is_an_error_on_import(
    roll: dict[str, Any], module: str, owner: str, name: str, plugin: str
) -> None:
    import importlib

    setattr(getattr(roll[module], owner), name, lambda self, other: None)
    with pytest.raises(UnsupportedTrainer, match=rf"{owner}\.{name} takes \(self, other\)"):
        importlib.import_module(PLUGIN[plugin])


def test_a_step_of_rolls_pipeline_trains_on_our_advantages_or_ends(roll: dict[str, Any]) -> None:
    from gem_roll._options import GemOptions
    from gem_roll._pipeline import ReBNAgenticPipeline
    from gem_roll._rows import object_array

    steps: list[int] = []
    owner = roll["roll.pipeline.agentic.agentic_pipeline"].AgenticPipeline
    owner.adjust_batch = lambda self, data, mode: data
    owner.do_checkpoint = lambda self, global_step, is_last_step=None: steps.append(global_step)
    trained: list[Any] = []
    training = SimpleNamespace(per_device_train_batch_size=4, gradient_accumulation_steps=1)
    pipeline = ReBNAgenticPipeline.__new__(ReBNAgenticPipeline)
    pipeline._ledger = SourceLedger()
    pipeline.gem_options = GemOptions()
    pipeline.pipeline_config = SimpleNamespace(
        gamma=0.9,
        loss_agg_mode="token-mean",
        advantage_clip=None,
        enable_old_logprobs_recompute=False,
        actor_train=SimpleNamespace(training_args=training),
    )
    pipeline.actor_train = SimpleNamespace(dp_size=1)
    pipeline._train_step = trained.append
    pipeline._advantages_wait = False
    mask = torch.tensor([[0, 1, 1, 0, 1], [0, 1, 0, 0, 0]], dtype=torch.bool)
    rewards = [[0.5, 1.0], [0.25]]
    scores = torch.tensor([[0, 0, 0.5, 0, 1.0], [0, 0.25, 0, 0, 0]])
    turn_ids = torch.tensor([[-1, 0, 0, -1, 1], [-1, 0, -1, -1, -1]])
    data = FakeDataProto(
        batch={"response_mask": mask, "scores": scores, "gem_turn_ids": turn_ids},
        non_tensor_batch={"traj_id": object_array(["a", "b"]), "traj_group_id": object_array(["a", "b"])},
        meta_info={},
    )
    adjusted = pipeline.adjust_batch(data, "copy")
    with pytest.raises(UnsupportedTrainer, match="did not train on gem-core's advantages"):
        pipeline.do_checkpoint(0)
    pipeline._train_with_advantages(adjusted)
    pipeline.do_checkpoint(0)
    assert steps == [0]
    returns = [turn_returns(turns, 0.9) for turns in rewards]
    values = [g for gs in returns for g in gs]
    mean = sum(values) / 3
    std = math.sqrt(sum((g - mean) ** 2 for g in values) / 3)
    a, b, c = ((g - mean) / std for g in values)
    wanted = torch.tensor([[a, a, 0, b], [c, 0, 0, 0]], dtype=torch.float32)
    torch.testing.assert_close(trained[0].batch["advantages"], wanted, atol=1e-5, rtol=1e-5)


def test_no_failed_episode_leaves_rolls_scheduler(roll: dict[str, Any]) -> None:
    from gem_roll._failures import FAILED, PlayedOnly
    from gem_roll._rows import EPISODE_JSON, object_array

    def rollout(trainable: bool) -> FakeDataProto:
        turns = [Turn([1], [2], None, 1.0, "", "", "stop")]
        if trainable:
            episode = Episode("test:Env", 7, turns, True, False, "terminated")
        else:
            episode = Episode("test:Env", 7, turns, False, True, "env_error", "it broke", trainable=False)
        columns = {EPISODE_JSON: object_array([pack_outline(episode)]), "tags": object_array(["T"])}
        return FakeDataProto(batch={}, non_tensor_batch=columns, meta_info={"metrics": {}})

    rollouts = [rollout(True), rollout(False)]

    async def get(self: Any, batch_size: int, global_step: int) -> list[Any]:
        return rollouts

    roll["roll.distributed.scheduler.rollout_scheduler"].RolloutScheduler._get_batch = get
    scheduler = PlayedOnly.__new__(PlayedOnly)
    scheduler.mode = "train"
    kept = asyncio.run(scheduler._get_batch(2, 1))
    assert kept == rollouts[:1]
    assert kept[0].meta_info["metrics"]["gem/error_rate"] == 0.5
    assert len(kept[0].meta_info[FAILED]) == 1
    del rollouts[0]
    with pytest.raises(EnvError, match="it broke"):
        asyncio.run(scheduler._get_batch(1, 1))


def test_changes_in_a_checkout_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(contract, "FOLDER", tmp_path)
    monkeypatch.setattr(contract, "PARTS", {"acme": {"acme.py": ("Loop.run", "Batch")}})
    source = "class Loop:\n    def run(self, step: int):\n        'Run.'\n        return step\n"
    source += "class Batch:\n    a: int\n"
    file = tmp_path / "acme.py"
    file.write_text(source)
    (tmp_path / "acme").mkdir()
    parts = contract.read_contract("acme", tmp_path)
    (tmp_path / "acme" / "contract.json").write_text(json.dumps({"source": "here", "parts": parts}))
    assert contract.drift("acme", tmp_path) == []
    for before, after, lines in (
        ("'Run.'", "'Run it.'", []),
        ("step: int", "step: float", []),
        ("return step", "return -step", ["acme.py:Loop.run: the code changed"]),
        (
            "(self, step: int)",
            "(self, number)",
            ["acme.py:Loop.run: parameters ['self', 'step'] became ['self', 'number']"],
        ),
        ("    a: int", "    b: int", ["acme.py:Batch: fields ['a'] became ['b']"]),
        ("def run", "def go", ["acme.py has no Loop.run"]),
    ):
        file.write_text(source.replace(before, after))
        assert contract.drift("acme", tmp_path) == lines
