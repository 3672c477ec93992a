"""Each turn is a row, with the facts that the learner cannot know."""

from __future__ import annotations

import asyncio
import json
import pickle
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gem_oat._collect import collect
from gem_oat._rows import draw_turns, pack_turns, turn_values
from gem_oat._tasks import Progress, task_order, task_prompts
from torch.utils.data import DistributedSampler

from gem_core._tasks import TRAIN_SEEDS, count_items, evaluation_tasks
from gem_core.advantages import grpo
from gem_core.errors import ConfigError, NonFiniteReward
from gem_core.rollout import Episode, Thread, Turn
from gem_core.tasks import EVAL_SEEDS, EnvChoice, TaskRow
from gem_core.trainers import read_estimator
from tests.advantages.oracle import turn_returns
from tests.trainers.items import KINDS, check_epochs, check_eval_tasks, source_of

GAMMA = 0.9


def episode(rewards: list[float], *, group: int = 0, trainable: bool = True, cut: bool = False) -> Episode:
    turns = [
        Turn(
            [5, n],
            [7, n, 8],
            [-0.5, -0.6, -0.7],
            reward,
            "",
            "move",
            "length" if cut else "stop",
            {"big": "x"},
        )
        for n, reward in enumerate(rewards)
    ]
    error = None if trainable else "failed"
    return Episode("t", 3, turns, True, False, "terminated", error, trainable, metadata={"group": group})


def test_rebn_gets_returns_and_the_statistics_of_all_turns() -> None:
    episodes = [episode([0.0, 1.0]), episode([9.0], trainable=False), episode([-1.0, 0.5, 0.25])]
    values, stats = turn_values(episodes, read_estimator("rebn", {}, gamma=GAMMA))
    wanted = [list(map(float, turn_returns(r, GAMMA))) for r in ([0.0, 1.0], [-1.0, 0.5, 0.25])]
    assert values == [pytest.approx(gs) for gs in wanted]
    flat = [g for gs in wanted for g in gs]
    assert (stats.count, stats.mean) == (5, pytest.approx(np.mean(flat)))
    assert stats.std() == pytest.approx(np.std(flat))


def test_grpo_is_computed_where_the_group_is() -> None:
    episodes = [episode([1.0], group=1), episode([0.0, 0.0], group=1), episode([2.0], group=2)]
    values, _ = turn_values(episodes, read_estimator("grpo", {"eps": 1e-3}, gamma=GAMMA))
    wanted = grpo([[1.0], [0.0, 0.0], [2.0]], group_ids=[1, 1, 2], gamma=GAMMA, eps=1e-3)
    assert values == [pytest.approx(list(credit)) for credit in wanted]


def test_a_reward_that_is_not_finite_names_the_episode() -> None:
    with pytest.raises(NonFiniteReward, match=r"episode 1 .*turn 0"):
        turn_values([episode([0.0]), episode([float("nan")])], read_estimator("rebn", {}, gamma=GAMMA))


def test_threads_reach_the_estimators() -> None:
    """A sub-agent of turn 0 with turns 1 and 2: by hand, as in docs/concepts/episodes.md."""
    called, plain = episode([0.0, 0.1, 0.2, 1.0]), episode([0.5, 0.0])
    called.threads = {1: Thread(called_by=0, returns_to=0)}
    for turn in called.turns[1:3]:
        turn.thread = 1
    values, stats = turn_values([called, plain], read_estimator("rebn", {}, gamma=0.5))
    assert values == [pytest.approx([0.7, 0.45, 0.7, 1.0]), pytest.approx([0.5, 0.0])]
    assert stats.mean == pytest.approx(3.35 / 6)
    values, _ = turn_values([called, plain], read_estimator("rloo", {}, gamma=0.5))
    assert values == [pytest.approx([0.2] * 4), pytest.approx([-0.2] * 2)]
    with pytest.raises(ConfigError, match=r"gae: .* has side threads, but the values of Oat's critic"):
        turn_values([called], read_estimator("gae", {}, gamma=0.5, supplies=("values",)))


def test_a_critic_gets_all_turns_with_their_rewards() -> None:
    episodes = [episode([0.0, 1.0]), episode([9.0], trainable=False), episode([-1.0], cut=True)]
    choice = read_estimator("gae", {}, gamma=GAMMA, supplies=("values",))
    values, stats = turn_values(episodes, choice)
    packed = pack_turns(episodes, values, stats, mask_cut=True, info={"a": 1.0})
    assert [[row.rewards for row in rows] for rows in packed] == [[0.0, 1.0], [-1.0]]
    assert [[row.done for row in rows] for rows in packed] == [[False, True], [True]]
    assert [row.loss_mask for rows in packed for row in rows] == [True, True, False]
    packed[0][0].info["advantages"] = 1.0  # as Oat does
    assert packed[0][1].info == {"a": 1.0}
    assert stats.count == 3


@pytest.mark.parametrize("sharing", [1, 2])
def test_a_resumed_run_continues_with_the_tasks_of_each_actor(sharing: int) -> None:
    """Each actor begins after the tasks that it has started, whatever the number of its learners."""
    args: Any = SimpleNamespace(
        learners=4, num_gpus_per_actor=sharing, rollout_batch_size_per_device=3, max_train=72
    )
    actors = args.learners // sharing
    fresh = [task_order(args, rank, 72, Progress(0, [0] * actors, {})) for rank in range(4)]
    assert sorted(number for order in fresh for number in order) == list(range(72))
    assert fresh == [list(DistributedSampler(range(72), 4, rank, shuffle=False)) for rank in range(4)]

    def stream(orders: list[list[int]], actor: int) -> list[int]:
        mine = orders[actor * sharing : (actor + 1) * sharing]
        steps = range(0, len(mine[0]), 3)
        return [number for step in steps for order in mine for number in order[step : step + 3]]

    started = [5, 1, 6, 4][:actors]
    resumed = [task_order(args, rank, 72, Progress(2, started, {})) for rank in range(4)]
    for actor, count in enumerate(started):
        rest = stream(resumed, actor)
        assert len(rest) == 4 * 3 * sharing
        assert rest == stream(fresh, actor)[count : count + len(rest)]
    with pytest.raises(ConfigError, match="--max-train=72: the checkpoint has all these turns"):
        task_order(args, 0, 72, Progress(6, started, {}))


def test_rows_of_all_turns_are_drawn_without_preference() -> None:
    episodes = [episode([0.0, 1.0, 2.0]), episode([3.0], trainable=False), episode([4.0], cut=True)]
    values, stats = turn_values(episodes, read_estimator("reinforce", {}, gamma=0.0))
    drawn = [0] * 5
    for seed in range(300):
        packed = pack_turns(episodes, values, stats, mask_cut=True, info={"a": 1.0})
        rows = draw_turns(packed, 2, Random(seed))
        assert len(rows) == 2
        for row in rows:
            drawn[int(row.rewards[-1])] += 1
            assert row.rewards[:-1] == [0.0, 0.0]
            assert row.loss_mask == (row.rewards[-1] != 4.0)
            assert row.prompt_ids[-1] == row.response_ids[1]
    assert drawn[3] == 0
    assert min(drawn[0], drawn[1], drawn[2], drawn[4]) > 110


def test_collected_data_is_sent_once() -> None:
    episodes = [episode([0.0, 1.0]), episode([3.0], trainable=False)]
    values, stats = turn_values(episodes, read_estimator("rebn", {}, gamma=GAMMA))
    rows = draw_turns(pack_turns(episodes, values, stats, mask_cut=False, info={}), 1, Random(0))
    (row,) = pickle.loads(pickle.dumps(rows))
    assert row.collected.stats == stats
    assert [e.trainable for e in row.collected.episodes] == [True, False]
    assert row.collected.episodes[0].turns[0].response_ids == []  # an outline
    assert "collected" not in repr(row)


def test_tasks_come_from_the_mix_and_are_never_evaluation_tasks() -> None:
    sources = [EnvChoice("game:GuessTheNumber-v0-easy"), EnvChoice("game:Mastermind-v0-easy", {}, 3.0)]
    data = task_prompts(sources, 40, seed=1)
    assert len(data) == 40
    assert data[3] == task_prompts(sources, 40, seed=1)[3] != task_prompts(sources, 40, seed=2)[3]
    made = [json.loads(data[index][1]) for index in range(40)]
    assert {task["seed"] in TRAIN_SEEDS for task in made} == {True}
    assert 20 < sum(task["env_id"] == "game:Mastermind-v0-easy" for task in made) < 40
    for_eval = evaluation_tasks(sources, 5, repeat=2)
    first, second = EVAL_SEEDS[:2]
    assert [task["seed"] for task in for_eval] == [first, first, second, second] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_plays_every_item_once(tmp_path: Path, kind: str) -> None:
    """Check Oat's prompts, of which an actor plays as many tasks as a step's turns require."""
    source = source_of(kind, tmp_path)
    items = count_items(source, "train")
    assert items
    data = task_prompts([source], 8 * items, seed=3)
    waiting: list[TaskRow] = []
    begun: list[TaskRow] = []

    async def play(task: TaskRow, sample: int) -> Episode:
        if sample == 0:
            begun.append(task)
        return episode([0.0] * (1 + task["index"] % 3))

    for first in range(0, len(data), 8):  # a step
        waiting += [json.loads(data[index][1]) for index in range(first, first + 8)]
        asyncio.run(collect(waiting, play, turns=8, at_once=3, group_size=2))
        if len(begun) >= 2 * items:
            break
    check_epochs(source, begun[: 2 * items])
    check_eval_tasks(source, evaluation_tasks([source], 1000, repeat=1))
