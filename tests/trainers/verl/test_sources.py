"""Rows of every source are played and rewarded, and a source that loses all episodes ends the run."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from gem_verl import _failures
from gem_verl._manager import GemAgentLoopManager
from gem_verl._rows import verl_row
from transfer_queue import KVBatchMeta
from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
    _agent_loop_registry,
    register,
)
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size

from gem_core.errors import EnvError
from gem_core.rollout._sources import MANY
from gem_core.tasks import TaskRow
from tests.trainers.verl import memory
from tests.trainers.verl.memory import (
    TOKENIZER,
    MemoryQueue,
    ScriptedServer,
    make_trainer,
    play_rows,
    use_memory_queue,
)

GSM8K = "openai/gsm8k"


class Own(AgentLoopBase):  # type: ignore[misc]
    """An agent loop of a user; `bug` says what is wrong with it."""

    bug = ""

    async def run(self, sampling_params: dict[str, Any], **fields: Any) -> Any:
        if self.bug == "raises":
            raise KeyError("score")
        if self.bug == "waits":
            raise asyncio.TimeoutError
        if self.bug == "none":
            return None
        if self.bug == "nothing":
            return []
        mask, ids = [int(self.bug != "masked")] * 2, [5, 6]
        if self.bug == "empty":
            mask, ids = [], []
        return AgentLoopOutput(
            prompt_ids=[1, 2], response_ids=ids, response_mask=mask, response_logprobs=[-0.5] * len(ids),
            reward_score=None if self.bug == "unscored" else 0.5, num_turns=2,
            metrics=AgentLoopMetrics(), extra_fields={"min_global_steps": 0, "max_global_steps": 0},
        )  # fmt: skip


BUGS = {
    "raises": "KeyError: 'score'",
    "waits": "TimeoutError",
    "none": "AttributeError",
    "nothing": "it returned nothing",
    "masked": "its response mask has no 1",
    "empty": "IndexError",
    "unscored": "NotImplementedError: Reward function is not implemented for data_source=",
}


@pytest.fixture(autouse=True)
def loops(monkeypatch: pytest.MonkeyPatch) -> None:
    for bug in ("", *BUGS):
        name = f"own_{bug}" if bug else "own"
        kind = type(f"Own{bug}", (Own,), {"bug": bug, "__module__": __name__})
        monkeypatch.setitem(globals(), kind.__name__, kind)
        monkeypatch.setitem(_agent_loop_registry, name, None)
        register(name)(kind)


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> MemoryQueue:
    return use_memory_queue(monkeypatch)


def question(number: int, **fields: Any) -> dict[str, Any]:
    """Return a row as verl's dataset yields it; the scripted server answers by the number of the task."""
    return {
        "data_source": GSM8K,
        "raw_prompt": [{"role": "user", "content": f"This is task {number}."}],
        "reward_model": {"style": "rule", "ground_truth": "4"},
        "extra_info": {},
        "index": 0,
        "tools_kwargs": {},
        **fields,
    }


def game(number: int) -> dict[str, Any]:
    row = verl_row(TaskRow(env_id="test:VerlPicky", env_kwargs={}, seed=number, index=0))
    row["raw_prompt"] = row.pop("prompt")
    return row


def own(number: int, bug: str = "") -> dict[str, Any]:
    return question(number, data_source="my/task", agent_name=f"own_{bug}" if bug else "own")


def play(trainer: Any, rows: list[dict[str, Any]], *, answer: str = "#### 4", validate: bool = False) -> None:
    """Play two samples of each row, whose uid is its place."""
    texts = {number: [answer] * 2 for number in range(len(rows))}
    by_uid = {f"u{index}": row for index, row in enumerate(rows)}
    play_rows(
        trainer, by_uid, ScriptedServer(texts), samples=dict.fromkeys(by_uid, 2), validate=validate
    )  # fmt: skip


def train(trainer: Any, queue: MemoryQueue, prompts: int, *, multiple: int = 1) -> KVBatchMeta:
    """Compute the advantages of a step as verl does."""
    batch, _ = trainer.replay_buffer.sample(global_steps=1, partition_id="train", batch_size=prompts)
    batch = upsample_batch_to_divisible_size(batch, multiple, TOKENIZER.eos_token_id)
    for row in queue.rows["train"].values():  # verl computes them on its workers
        row["old_log_probs"] = row["rollout_log_probs"]
    trainer._compute_advantage(batch, {})
    return batch


@pytest.mark.parametrize("name", ["missing", None, "", " ", float("nan"), "single_turn_agent"])
@pytest.mark.parametrize("mode", ["gem_sync", "sync"])
def test_a_question_is_played_and_scored_by_verl(mode: str, name: Any, queue: MemoryQueue) -> None:
    fields = {} if name == "missing" else {"agent_name": name}
    fields |= {"__rollout_n__": None, "priority": None}  # columns of another file
    trainer = make_trainer("algorithm.adv_estimator=grpo")
    trainer.config.trainer.v1.trainer_mode = mode
    texts = {0: ["#### 4", "#### 5"]}
    play_rows(trainer, {"u0": question(0, **fields)}, ScriptedServer(texts), samples={"u0": 2})
    rows = [queue.rows["train"][f"u0_{session}_0"] for session in range(2)]
    assert [float(row["rm_scores"].sum()) for row in rows] == [1.0, 0.0]
    assert all(row["response_mask"].all() and len(row["response_mask"]) for row in rows)
    assert _failures.take_lost() == []


def test_the_default_agent_loop_plays_rows_that_name_none(queue: MemoryQueue) -> None:
    trainer = make_trainer("actor_rollout_ref.rollout.agent.default_agent_loop=own")
    play(trainer, [question(0, agent_name=None)])
    assert float(queue.rows["train"]["u0_0_0"]["rm_scores"].sum()) == 0.5


def test_questions_and_games_are_counted_by_source(queue: MemoryQueue) -> None:
    trainer = make_trainer("algorithm.adv_estimator=gem_grpo")
    texts = {0: ["#### 4", "#### 5"], 1: ["3", "break"], 2: ["x", "x"]}
    rows = {"u0": question(0, agent_name=None), "u1": game(1), "u2": own(2)}
    play_rows(trainer, rows, ScriptedServer(texts), samples=dict.fromkeys(rows, 2))
    batch = train(trainer, queue, 3, multiple=4)
    stored = queue.rows["train"]
    pads = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if tag.get("is_padding")]
    assert len(pads) == 3
    for session, advantage in enumerate((1.0, -1.0)):
        assert stored[f"u0_{session}_0"]["advantages"].tolist() == pytest.approx(
            [advantage] * len(stored[f"u0_{session}_0"]["response_mask"]), abs=1e-4
        )
    metrics = trainer.step_metrics(batch)
    assert {name: value for name, value in metrics.items() if "/played/" in name or "/failed/" in name} == {
        "gem/played/my/task": 2, "gem/failed/my/task": 0, f"gem/played/{GSM8K}": 2, f"gem/failed/{GSM8K}": 0,
        "gem/played/test:VerlPicky": 1, "gem/failed/test:VerlPicky": 1,
    }  # fmt: skip
    assert metrics["gem/filled"] == 3
    assert metrics["gem/error_rate"] == 0.5  # of the environments
    assert "gem/filled" not in trainer.step_metrics(batch)


@pytest.mark.parametrize(("bug", "cause"), BUGS.items(), ids=BUGS)
def test_a_source_that_an_agent_loop_loses_ends_the_run(bug: str, cause: str, queue: MemoryQueue) -> None:
    trainer = make_trainer("algorithm.adv_estimator=gem_grpo")
    lost = MANY // 2
    play(trainer, [*(question(n) for n in range(2)), *(own(n, bug) for n in range(2, 2 + lost))])
    with pytest.raises(EnvError) as caught:
        train(trainer, queue, 2 + lost)
    assert f"step 1: all {2 * lost} episodes of my/task are lost" in str(caught.value)
    assert f"agent loop own_{bug}: {cause}" in str(caught.value)
    assert not any("advantages" in row for row in queue.rows["train"].values())  # before the update


@pytest.mark.parametrize(
    ("fields", "source", "cause"),
    [
        (
            {"data_source": "my/math"},
            "my/math",
            "NotImplementedError: Reward function is not implemented for data_source=",
        ),
        ({"reward_model": {}}, GSM8K, "KeyError: 'ground_truth'"),
        ({"agent_name": "tool_agnt"}, GSM8K, "Agent loop tool_agnt not registered"),
        ({"raw_prompt": None}, GSM8K, "TypeError: 'NoneType' object is not iterable"),
        ({"data_source": None}, _failures.UNKNOWN, "agent loop single_turn_agent: AttributeError"),
    ],
    ids=["no reward", "no truth", "no agent loop", "no prompt", "no source"],
)
def test_the_cause_is_that_of_the_worker(
    fields: dict[str, Any], source: str, cause: str, queue: MemoryQueue
) -> None:
    trainer = make_trainer("algorithm.adv_estimator=gem_grpo")
    play(trainer, [*(question(n, **fields) for n in range(MANY // 2)), own(9)])
    with pytest.raises(EnvError, match=rf"episodes of {source} are lost") as caught:
        train(trainer, queue, MANY // 2 + 1)
    assert cause in str(caught.value)


REWARDS = [
    None,
    math.nan,
    math.inf,
    -math.inf,
    {"score": None},
    {"score": math.nan},
    {"acc": 1.0},
    "good",
    [1.0],
]


@pytest.mark.parametrize("reward", REWARDS, ids=repr)
@pytest.mark.parametrize("estimator", ["grpo", "gem_grpo"])
def test_a_row_without_a_finite_reward_is_lost(
    estimator: str, reward: Any, queue: MemoryQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """verl itself ends with a KeyError after None, and makes every weight NaN after NaN."""
    manager = memory.NaiveRewardManager

    def score(ground_truth: str, **_: Any) -> Any:
        return reward if ground_truth == "bad" else 1.0

    monkeypatch.setattr(
        memory, "NaiveRewardManager", lambda config, tokenizer, _: manager(config, tokenizer, score)
    )
    bad = {"reward_model": {"ground_truth": "bad"}, "data_source": "mine"}
    trainer = make_trainer(f"algorithm.adv_estimator={estimator}")
    play(trainer, [question(0), question(1, **bad)])
    metrics = trainer.step_metrics(train(trainer, queue, 2))
    assert [metrics[f"gem/{kind}/{of}"] for kind in ("played", "failed") for of in (GSM8K, "mine")] == [
        2,
        0,
        0,
        2,
    ]
    assert all(
        row["advantages"].isfinite().all() for row in queue.rows["train"].values() if "advantages" in row
    )
    queue.rows.clear(), queue.tags.clear()
    play(trainer, [question(0), *(question(number, **bad) for number in range(1, 1 + MANY // 2))])
    with pytest.raises(EnvError, match="episodes of mine are lost") as caught:
        train(trainer, queue, 1 + MANY // 2)
    if isinstance(reward, float | None):
        assert f"the reward is {reward}: expected a finite number" in str(caught.value)


@pytest.mark.parametrize("source", [None, "", 0, False, 7, "unknown"])
@pytest.mark.parametrize("validating", [False, True], ids=["train", "eval"])
def test_rows_that_name_no_source_are_counted_under_one_name(
    validating: bool, source: Any, queue: MemoryQueue
) -> None:
    trainer = make_trainer("algorithm.adv_estimator=gem_grpo")
    name = _failures.UNKNOWN if source is None or source == "" else str(source)
    rows = [question(0), own(1) | {"data_source": source}, own(2, "raises") | {"data_source": source}]
    if validating:
        metrics = validate(trainer, queue, rows)
    else:
        play(trainer, rows)
        metrics = trainer.step_metrics(train(trainer, queue, 3))
    prefix = "val-aux/" * validating
    counted = {key for key in metrics if "gem/played/" in key or "gem/failed/" in key}
    assert counted == {f"{prefix}gem/{kind}/{of}" for kind in ("played", "failed") for of in (GSM8K, name)}
    assert metrics[f"{prefix}gem/played/{name}"] == metrics[f"{prefix}gem/failed/{name}"] == 2


def test_a_step_without_any_episode_names_the_cause(queue: MemoryQueue) -> None:
    trainer = make_trainer("algorithm.adv_estimator=grpo")
    play(trainer, [own(0, "raises")])
    with pytest.raises(EnvError, match=r"step 1: all 2 episodes are lost: agent loop own_raises: KeyError"):
        trainer._step_once({}, {}, 1)


@pytest.mark.parametrize("kind", [game, own])
def test_an_asynchronous_mode_does_not_replace_prompts_forever(kind: Any, queue: MemoryQueue) -> None:
    trainer = make_trainer(
        "algorithm.adv_estimator=grpo", "data.train_batch_size=2", "actor_rollout_ref.rollout.n=2",
        mode="gem_colocate_async",
    )  # fmt: skip
    row = game(0) if kind is game else own(0, "raises")
    played = []

    def refill(count: int) -> None:
        rows = {f"u{sum(played) + number}": row for number in range(count)}
        played.append(count)
        server = ScriptedServer({0: ["break"] * 2 * count})
        play_rows(trainer, rows, server, samples=dict.fromkeys(rows, 2))

    trainer.replay_buffer.refill_fn = refill
    refill(2)
    with pytest.raises(
        EnvError, match=r"8 prompts one after the other: (no episode|all 16 episodes are lost)"
    ):
        trainer.replay_buffer.sample(global_steps=1, partition_id="train", batch_size=2)
    assert sum(played) == 8


def test_a_source_may_lose_some_episodes_and_all_of_them_for_two_steps(queue: MemoryQueue) -> None:
    trainer = make_trainer("algorithm.adv_estimator=gem_grpo")
    for step, bugs in enumerate((["", "raises"], ["raises"], ["raises"], ["raises"]), start=1):
        queue.rows.clear(), queue.tags.clear()
        trainer.global_steps = step
        play(trainer, [question(0), *(own(n, bug) for n, bug in enumerate(bugs, start=1))])
        if step < 4:
            batch = train(trainer, queue, 1 + len(bugs))
            assert trainer.step_metrics(batch)["gem/failed/my/task"] == 2
        else:
            with pytest.raises(EnvError, match=r"step 4: all 2 episodes of my/task are lost .for 3 steps"):
                train(trainer, queue, 1 + len(bugs))


def validate(trainer: Any, queue: MemoryQueue, rows: list[dict[str, Any]]) -> Any:
    """Compute the metrics of a validation as verl does."""
    play(trainer, rows, validate=True)
    keys = [key for key in queue.rows["val"] if "_" in key]
    stored = [queue.rows["val"][key] for key in keys]
    infos = [row["extra_fields"].get("reward_extra_info", {}) for row in stored]
    columns: dict[str, list[Any]] = {"reward": [float(row["rm_scores"].sum()) for row in stored]}
    columns |= {name: [info.get(name) for info in infos] for name in {key for info in infos for key in info}}
    sources = [row["data_source"] for row in stored]
    return trainer._val_metrics_update(sources, [key.split("_")[0] for key in keys], columns, [2] * len(keys))


def test_a_validation_counts_sources_and_ends_if_one_is_lost(queue: MemoryQueue) -> None:
    trainer = make_trainer("algorithm.adv_estimator=gem_grpo")
    metrics = validate(trainer, queue, [question(0), own(1, "raises"), own(2)])
    assert metrics[f"val-core/{GSM8K}/acc/mean@2"] == 1.0
    assert metrics[f"val-aux/gem/played/{GSM8K}"] == 2
    assert (metrics["val-aux/gem/played/my/task"], metrics["val-aux/gem/failed/my/task"]) == (2, 2)
    trainer = make_trainer("algorithm.adv_estimator=gem_grpo")
    queue.rows.clear(), queue.tags.clear()
    with pytest.raises(EnvError, match=r"validation after step 1: all 8 episodes of my/task .*KeyError"):
        validate(trainer, queue, [question(0), *(own(n, "raises") for n in range(1, 5))])


def test_verls_own_modes_end_one_batch_later(
    queue: MemoryQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    played: Counter[Any] = Counter()
    worker = SimpleNamespace(take_played=SimpleNamespace(remote=lambda: played))
    monkeypatch.setattr(ray, "get", list)
    trainer = make_trainer("algorithm.adv_estimator=grpo")
    config = trainer.config
    config.trainer.v1.trainer_mode = "sync"
    manager = GemAgentLoopManager(config, None)
    manager.agent_loop_workers = [worker]
    play(trainer, [question(0), own(1, "raises")])
    played["train", GSM8K] = 2
    with caplog.at_level("WARNING", logger="verl.gem"):
        manager._close_batch()
    assert "'gem/failed/my/task': 2.0" in caplog.text
    play(trainer, [question(0), *(own(n, "raises") for n in range(1, 5))])
    with pytest.raises(EnvError, match=r"train episodes since the last batch: all 8 episodes of my/task"):
        manager._close_batch()
