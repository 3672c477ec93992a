"""An agent loop that returns several outputs for a sample: a session counts once, as in verl's own GRPO."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gem_verl._sessions import join_sessions, unpack_played
from gem_verl._trainer import GemTrainer
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register
from verl.trainer.ppo.core_algos import get_kl_controller
from verl.trainer.ppo.v1 import trainer_base

from gem_core.advantages import get_estimator
from gem_core.errors import ConfigError
from gem_core.rollout import Episode, Turn
from gem_core.rollout._estimator_inputs import EpisodeTurns
from gem_core.rollout._metrics import without_tokens
from gem_core.tasks import TaskRow
from gem_core.trainers import pack_facts
from gem_core.trainers._facts import unpack_outlines
from tests.advantages.oracle import standardized, turn_returns
from tests.trainers.verl.configs import verl_config
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


@pytest.mark.parametrize(
    "name",
    [
        "rebn",
        "gem_rloo",
        "gem_opo",
        "gem_maxrl",
        "gem_reinforce_plus_plus_baseline",
        "mt_grpo",
        "gem_reinforce",
    ],
)
def test_the_outputs_of_a_session_are_the_turns_of_an_episode(name: str, queue: MemoryQueue) -> None:
    """The score, which verl copies to every output, is the reward of the last turn."""
    found = advantages(update(played(name), queue, 3).keys, queue)
    estimator = get_estimator(name.removeprefix("gem_"))
    sessions = [(uid, *session) for uid, listed in SESSIONS.items() for session in listed]
    given = {
        "group_ids": [uid for uid, *_ in sessions],
        "lengths": [[2] * 2 * count for _, count, _ in sessions],
    }
    wanted = estimator(
        [[0.0] * (2 * count - 1) + [reward] for _, count, reward in sessions],
        **{need: given[need] for need in estimator.needs},
    )
    numbers = {f"{uid}_{index}": n for n, (uid, index) in enumerate(
        (uid, index) for uid, listed in SESSIONS.items() for index in range(len(listed))
    )}  # fmt: skip
    assert len(found) == 18
    for key, values in found.items():
        session, output = key.rsplit("_", 1)
        first, second = wanted[numbers[session]][2 * int(output) : 2 * int(output) + 2]
        assert values == pytest.approx([first, first, 0, second, second], abs=1e-5), key
    assert any(any(values) for values in found.values())


@pytest.mark.parametrize(
    ("mode", "factors"),
    [
        ("token-mean", (1, 1, 1)),
        ("seq-mean-token-sum", (2, 2, 2)),  # 18 outputs of 9 sessions
        ("seq-mean-token-mean", (2 / 3, 2, 1)),  # each session's outputs have equally many tokens
    ],
)
def test_a_loss_that_averages_over_rows_weighs_sessions_alike(
    mode: str, factors: tuple[float, ...], queue: MemoryQueue
) -> None:
    trainer = played("gem_rloo", f"actor_rollout_ref.actor.loss_agg_mode={mode}")
    found = advantages(update(trainer, queue, 3).keys, queue)
    outputs = {
        number: [v for key, v in found.items() if key.startswith(f"u1_{number}_")] for number in range(3)
    }
    assert [len(values) for values in outputs.values()] == [3, 1, 2]
    for number, (advantage, factor) in enumerate(zip((0.875, -0.625, -0.25), factors, strict=True)):
        for values in outputs[number]:
            assert values == pytest.approx([advantage * factor * on for on in MASK], abs=1e-6)


def test_a_loss_that_sees_whole_rows_is_refused(queue: MemoryQueue) -> None:
    trainer = played("gem_rloo", "actor_rollout_ref.actor.policy_loss.loss_mode=gspo")
    with pytest.raises(ConfigError, match=r"loss_mode=gspo .* depends on how an episode is split into rows"):
        update(trainer, queue, 3)


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


def test_a_penalty_of_every_output_counts(queue: MemoryQueue) -> None:
    trainer = played("gem_reinforce", "algorithm.use_kl_in_reward=True")
    trainer.kl_ctrl_in_reward = get_kl_controller(trainer.config.algorithm.kl_ctrl)
    batch, _ = trainer.replay_buffer.sample(global_steps=1, partition_id="train", batch_size=3)
    for key in batch.keys:
        row = queue.rows["train"][key]
        row["old_log_probs"] = row["rollout_log_probs"]
        row["ref_log_prob"] = row["rollout_log_probs"] - 1.0  # a KL of 1 per token
    trainer._compute_advantage(batch, {})
    coefficient = trainer.config.algorithm.kl_ctrl.kl_coef
    found = advantages(batch.keys, queue)
    for uid, sessions in SESSIONS.items():
        for number, (count, reward) in enumerate(sessions):
            for output in range(count):
                left = 4 * (count - output)
                first, _, _, second, _ = found[f"{uid}_{number}_{output}"]
                assert first == pytest.approx(reward - coefficient * left, abs=1e-5)
                assert second == pytest.approx(reward - coefficient * (left - 2), abs=1e-5)


def test_several_outputs_make_as_many_updates_as_one(queue: MemoryQueue) -> None:
    trainer = played("gem_rloo")
    batch, _ = trainer.replay_buffer.sample(global_steps=1, partition_id="train", batch_size=3)
    actor, n = trainer.config.actor_rollout_ref.actor, 3
    own = int(actor.ppo_mini_batch_size)
    trainer.config.data.train_batch_size = own
    trainer.parameter_sync_step, trainer._mini_batches = 1, [(actor, own)]
    trainer.use_critic, trainer.use_reference_policy, trainer.global_steps = False, False, 1
    trainer._rows, trainer._sessions = len(batch.keys), 9
    multiple = trainer._get_required_batch_multiple(1)
    padded = -(-len(batch.keys) // multiple) * multiple
    assert (len(batch.keys), padded // (actor.ppo_mini_batch_size * n)) == (18, 1)
    trainer._rows = 9  # in the next step, each session has one output
    trainer._get_required_batch_multiple(1)
    assert actor.ppo_mini_batch_size == own


def test_rows_of_our_loop_beside_them(queue: MemoryQueue) -> None:
    trainer = played("rebn", "+gem.rows=turn", "algorithm.gamma=0.5")
    play(trainer, {8: ["3 more", "7", "1", "2"]}, samples=3)
    batch = update(trainer, queue, 4)
    rewards = [
        [0.0] * (2 * count - 1) + [reward] for session in SESSIONS.values() for count, reward in session
    ] + [[3.0, 7.0], [1.0], [2.0]]
    returns = [value for turns in rewards for value in turn_returns(turns, 0.5)]
    wanted = standardized(returns, returns, 0, 1e-8, 1e-6)
    found = advantages(sorted(batch.keys), queue)
    assert len(found) == 18
    assert [value for values in found.values() for value in (values[0], values[3])] == pytest.approx(
        wanted[:36], abs=1e-5
    )
    metrics = trainer.step_metrics(batch)
    assert metrics["critic/score/mean"] == pytest.approx(sum(map(sum, rewards)) / len(rewards))
    assert metrics["num_turns/mean"] == pytest.approx((18 * 4 + 2 * 4) / 12)


@pytest.mark.parametrize("name", ["gem_rloo", "gem_grpo", "gem_dr_grpo", "rebn"])
@pytest.mark.parametrize("penalty", [0.0, 0.1])
def test_the_outputs_of_a_session_count_once_in_verls_own_modes(name: str, penalty: float) -> None:
    """Sample 0 has three outputs, in any order, and sample 1 one; a pad fills the batch."""
    keys = ["u_0_2", "pad_0_0", "u_1_0", "u_0_0", "u_0_1"]
    mask = torch.tensor([[1, 0], [0, 0], [1, 0], [1, 0], [1, 0]])
    scores = torch.tensor([[1.0, 0], [0, 0], [0, 0], [1, 0], [1, 0]])
    data = DataProto.from_dict(
        tensors={
            "response_mask": mask,
            "token_level_scores": scores,
            "token_level_rewards": scores - penalty * mask,
        },
        non_tensors={"uid": np.array(["u", "pad", "u", "u", "u"], dtype=object)},
    )
    config = verl_config(f"algorithm.adv_estimator={name}").algorithm
    result = trainer_base.compute_advantage_for_multi_trajectories(data, keys, name, config=config)
    groups = {"group_ids": ["u", "u"]} if name != "rebn" else {}
    first, second = get_estimator(name.removeprefix("gem_"))(
        [[-penalty, -penalty, 1 - penalty], [-penalty]], **groups
    )
    found = result.batch["advantages"][:, 0].tolist()
    assert found == pytest.approx([first[2], 0, second[0], first[0], first[1]], abs=1e-6)
    assert scores[:, 0].tolist() == [1, 0, 0, 1, 1]


def test_verls_own_estimators_see_the_rows_as_always() -> None:
    seen: list[Any] = []
    joined = join_sessions(lambda *arguments, **options: seen.append((arguments, options)))
    joined("data", ["u_0_0", "u_0_1"], "rloo", gamma=1.0)
    joined("data", ["u_0_0", "u_1_0"], "gem_rloo")
    assert seen == [
        (("data", ["u_0_0", "u_0_1"], "rloo"), {"gamma": 1.0}),
        (("data", ["u_0_0", "u_1_0"], "gem_rloo"), {}),
    ]


def test_every_row_gets_the_inputs_of_its_own_episode() -> None:
    def play_turns(env: str, *contexts: list[int]) -> Episode:
        turns = [Turn(context, [7, 8], None, 1.0, "", "", "stop") for context in contexts]
        return Episode(env, 1, turns, True, False, "terminated")

    first, second = play_turns("test:Env", [1], [], [2]), play_turns("test:Other", [1])
    packed = [facts for one in (first, second) for facts in pack_facts(one, one.rows("turn"))]
    received = [packed[3], packed[1], None, packed[0], packed[2]]
    keys = ["b", "a", "pad", "a", "a"]
    outlines = unpack_outlines(received)
    mine, other = (EpisodeTurns.of(without_tokens(one), ["agent_ids"]) for one in (first, second))
    assert unpack_played(received, keys, outlines, ["agent_ids"]) == [other, mine, None, mine, mine]
    assert (mine.rewards, mine.env_id) == ([1.0] * 3, "test:Env")
    assert (other.rewards, other.env_id) == ([1.0], "test:Other")
    with pytest.raises(ValueError, match="zip"):
        unpack_played(received, keys, outlines[:1], [])
