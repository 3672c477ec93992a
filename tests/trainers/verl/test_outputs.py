"""An agent loop that returns several outputs for a sample: a session counts once, as in verl's own GRPO."""

from __future__ import annotations

from typing import Any

import pytest
from gem_verl.trainer import GemTrainer
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register

from gem_core.errors import ConfigError
from gem_core.tasks import TaskRow
from tests.advantages.oracle import standardized, turn_returns
from tests.trainers.verl.memory import MemoryQueue, make_trainer, play, play_tasks, update, use_memory_queue

SESSIONS = {
    "u1": [(3, 1.0), (1, 0.0), (2, 0.25)],
    "u2": [(1, 0.5), (4, 0.5), (1, 2.0)],
    "u3": [(2, 1.5), (2, 3.0), (2, 0.0)],
}
"""By prompt, the number of outputs of each sample, and its reward."""
MASK = [1, 1, 0, 1, 1]


@register("test_outputs")
class Outputs(AgentLoopBase):  # type: ignore[misc]
    """Returns the outputs of `SESSIONS`, each with two turns; verl copies the last reward to all."""

    async def run(self, sampling_params: Any, **fields: Any) -> list[AgentLoopOutput]:
        count, reward = SESSIONS[fields["uid"]][fields["session_id"]]
        return [
            AgentLoopOutput(
                prompt_ids=[5, 6, index],
                response_ids=[7] * len(MASK),
                response_mask=MASK,
                response_logprobs=[-0.5] * len(MASK),
                reward_score=reward if index == count - 1 else 9.0,
                num_turns=4,
                metrics=AgentLoopMetrics(),
                extra_fields={"reward_extra_info": {}, "min_global_steps": 0, "max_global_steps": 0},
            )
            for index in range(count)
        ]


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> MemoryQueue:
    return use_memory_queue(monkeypatch)


def played(estimator: str, *overrides: str) -> GemTrainer:
    words = ("actor_rollout_ref.rollout.n=3", f"algorithm.adv_estimator={estimator}", *overrides)
    trainer = make_trainer(*words)
    tasks = {uid: TaskRow(env_id="", env_kwargs={}, seed=1, index=0) for uid in SESSIONS}
    play_tasks(trainer, tasks, None, samples=dict.fromkeys(SESSIONS, 3), agent_name="test_outputs")
    return trainer


def advantages(keys: list[str], queue: MemoryQueue) -> dict[str, list[float]]:
    return {key: queue.rows["train"][key]["advantages"].tolist() for key in keys if key[:2] in SESSIONS}


PAIRS = {
    "gem_grpo": ("grpo", ("+algorithm.gem_grpo.ddof=1", "+algorithm.gem_grpo.eps=1e-6")),
    "gem_dr_grpo": ("grpo", ("algorithm.norm_adv_by_std_in_grpo=False",)),
}
"""Estimators of gem_core with the one of verl that they equal, and the options that make them equal."""


@pytest.mark.parametrize("name", PAIRS)
def test_a_session_counts_once_as_in_verls_own_grpo(name: str, queue: MemoryQueue) -> None:
    verl_name, overrides = PAIRS[name]
    trainer = played(name, *overrides)
    keys = update(trainer, queue, 3).keys
    assert len(keys) == sum(count for sessions in SESSIONS.values() for count, _ in sessions) == 18
    found = advantages(keys, queue)
    trainer.config.algorithm.adv_estimator = verl_name
    trainer._compute_advantage(queue.kv_batch_put(keys, "train"), {})
    for key, values in advantages(keys, queue).items():
        assert found[key] == pytest.approx(values, abs=1e-5), key
        assert found[key][2] == 0.0
    assert any(any(values) for values in found.values())


@pytest.mark.parametrize("name", ["gem_rloo", "gem_opo", "gem_maxrl", "gem_reinforce_plus_plus_baseline"])
def test_more_outputs_of_a_session_change_no_advantage(
    name: str, queue: MemoryQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = advantages(update(played(name), queue, 3).keys, queue)
    queue.rows.clear(), queue.tags.clear()
    for uid, sessions in SESSIONS.items():
        monkeypatch.setitem(SESSIONS, uid, [(1, reward) for _, reward in sessions])
    single = advantages(update(played(name), queue, 3).keys, queue)
    assert len(single) == 9
    for key, values in many.items():
        assert values == pytest.approx(single[key.rsplit("_", 1)[0] + "_0"], abs=1e-6), key


def test_episodes_beside_them_are_compared_as_always(queue: MemoryQueue) -> None:
    trainer = played("gem_rloo")
    play(trainer, {8: ["3", "7 more", "1"], 9: ["break", "2"]}, samples=2)
    keys = update(trainer, queue, 5).keys
    # The answers go to whichever of a prompt's samples asks first.
    rows = {key: row["advantages"] for key, row in queue.rows["train"].items()}
    compared = [values[0] for key, values in rows.items() if key.startswith("u8_")]
    assert sorted(compared) == pytest.approx([3 - 8, 8 - 3])
    (alone,) = (values for key, values in rows.items() if key.startswith("u9_"))
    assert not any(alone)
    assert advantages(keys, queue)["u1_0_2"][0] == pytest.approx(1 - 0.125)


def test_turn_rows_count_the_copied_reward_once(queue: MemoryQueue) -> None:
    trainer = played("rebn", "+gem.rows=turn", "algorithm.gamma=0.5")
    play(trainer, {8: ["3 more", "7", "1", "2"]}, samples=3)
    batch = update(trainer, queue, 4)
    rewards = [[0.0] * (count - 1) + [reward] for session in SESSIONS.values() for count, reward in session]
    rewards += [[3.0, 7.0], [1.0], [2.0]]
    returns = [value for turns in rewards for value in turn_returns(turns, 0.5)]
    wanted = standardized(returns, returns, 0, 1e-8, 1e-6)
    found = advantages(sorted(batch.keys), queue)
    assert len(found) == 18
    assert [values[0] for values in found.values()] == pytest.approx(wanted[:18], abs=1e-5)
    metrics = trainer.step_metrics(batch)
    assert metrics["critic/score/mean"] == pytest.approx(sum(map(sum, rewards)) / len(rewards))


def test_turns_that_differ_cannot_be_copied(queue: MemoryQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = played("mt_grpo")
    queue.rows["train"]["u1_0_2"]["rm_scores"][1] = 5.0  # a reward for the first turn
    with pytest.raises(ConfigError, match=r"mt_grpo gives the turns .*returned several outputs"):
        update(trainer, queue, 3)
    queue.rows.clear(), queue.tags.clear()
    for uid, sessions in SESSIONS.items():
        monkeypatch.setitem(SESSIONS, uid, [(1, reward) for _, reward in sessions])
    keys = update(played("mt_grpo"), queue, 3).keys
    assert any(any(values) for values in advantages(keys, queue).values())
