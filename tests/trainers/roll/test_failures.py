"""Failed episodes are dropped from ROLL's batches and group filters before anything is computed."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from gem_roll._failures import PlayedGroupFilter, PlayedOnly, guard_group_filter, played_only
from gem_roll._options import GemOptions
from gem_roll._pipeline import ReBNAgenticPipeline
from roll.distributed.scheduler.protocol import DataProto
from roll.distributed.scheduler.rollout_scheduler import RolloutScheduler
from roll.pipeline.agentic.agentic_pipeline import compute_rollout_traj_metrics

from gem_core.errors import EnvError
from gem_core.rollout._sources import SourceLedger
from tests.trainers.roll.configs import small_config
from tests.trainers.roll.test_rows import rollouts, troubled  # noqa: F401  a fixture

CAUSE = "RuntimeError: the environment broke"


@pytest.fixture
def batch(tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return rollouts of three episodes, of which the second failed."""
    answers = {"test:Endless": ["a", "b", "c"], "test:Raises": ["a", "b"]}
    made = []
    for env_id in ("test:Endless", "test:Raises", "test:Endless"):
        (rollout,) = rollouts(
            tmp_path, tokenizer, list(answers[env_id]), monkeypatch, env_type=f"gem_core:{env_id}"
        )
        made.append(rollout)
    return made


def test_a_batch_holds_no_failed_episode(batch: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def get(self: Any, batch_size: int, global_step: int) -> list[Any]:
        return batch

    monkeypatch.setattr(RolloutScheduler, "_get_batch", get)
    scheduler = PlayedOnly.__new__(PlayedOnly)
    scheduler.mode = "train"
    kept = asyncio.run(scheduler._get_batch(3, 5))
    assert kept == [batch[0], batch[2]]
    assert compute_rollout_traj_metrics(DataProto.concat(kept))["rollout/score/mean"] == 3.0
    rates = [
        {name: value for name, value in rollout.meta_info["metrics"].items() if name.endswith("_rate")}
        for rollout in kept
    ]
    assert rates[0]["gem/error_rate"] == rates[0]["env/T/error_rate"] == pytest.approx(1 / 3)
    assert rates[0]["gem/retry_rate"] == 0.0
    counted = {f"{prefix}/{rate}" for prefix in ("gem", "env/T") for rate in ("error_rate", "retry_rate")}
    for name in counted:  # ROLL computes the mean over rollouts
        assert rates[0][name] == rates[1][name]


def test_a_batch_of_failed_episodes_names_the_environment_and_the_cause(batch: list[Any]) -> None:
    with pytest.raises(
        EnvError, match=f"step 5: no episode is trainable.*test:Raises with seed [0-9]+.*{CAUSE}"
    ):
        played_only([batch[1]], True, "step 5")
    (kept,) = played_only([batch[1]], False, "eval")  # which continues
    assert math.isnan(kept.non_tensor_batch["episode_scores"][0])


def test_no_other_episode_is_dropped_because_of_them(batch: list[Any], tmp_path: Path) -> None:
    pipeline: Any = ReBNAgenticPipeline.__new__(ReBNAgenticPipeline)
    pipeline._ledger = SourceLedger()
    rows_of_two = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 1}
    config = small_config(tmp_path, {"actor_train": {"training_args": rows_of_two, "infer_batch_size": 1}})
    pipeline.gem_options, pipeline.pipeline_config = GemOptions.from_config(config), config
    pipeline.actor_train = SimpleNamespace(dp_size=1)
    data = pipeline.adjust_batch(DataProto.concat(played_only(batch, True, "step 0")), "random_sample")
    assert data.meta_info["metrics"]["system/batch_add_count"] == 1
    assert data.batch["response_mask"].any(1).tolist() == [True, True, False]
    assert data.meta_info["metrics"]["gem/error_rate"] == pytest.approx(1 / 3)


class Asked:
    """A filter that drops every group and records the groups that it receives."""

    groups: ClassVar[list[list[Any]]] = []

    def __init__(self, config: Any, env_manager_config: Any, mode: str) -> None:
        self.mode = mode

    def filter(self, group_id: int, episode_id: int, group: list[Any]) -> bool:
        self.groups.append(group)
        return True


def test_a_filter_of_groups_sees_the_other_episodes(batch: list[Any], tmp_path: Path) -> None:
    named = {"train_env_manager": {"group_filter_cls": f"{__name__}.Asked"}}
    config = small_config(tmp_path, named)
    for section in (config.train_env_manager, config.val_env_manager):
        guard_group_filter(section)
        guard_group_filter(section)  # the second call has no effect
    assert config.train_env_manager.group_filter_cls == "gem_roll._failures.PlayedGroupFilter"
    assert config.val_env_manager.group_filter_cls != config.train_env_manager.group_filter_cls
    guard = PlayedGroupFilter(config, config.train_env_manager, "train")
    assert guard.filter(0, 0, batch)
    assert Asked.groups == [[batch[0], batch[2]]]
    assert not guard.filter(0, 1, [batch[1]])  # otherwise it would be replaced forever
    assert len(Asked.groups) == 1
