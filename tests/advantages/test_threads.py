"""Returns of episodes with side threads, against values by hand and exact gradients of random episodes."""

from __future__ import annotations

import itertools
import math
from random import Random
from typing import Any

import numpy as np
import pytest

from gem_core import advantages
from gem_core.advantages import Threads, get_estimator, with_threads
from gem_core.errors import ConfigError, NonFiniteReward

SUB_AGENT = Threads((0, 1, 1, 0), {1: (0, 0, False)})
COMPACTION = Threads((0, 1, 0), {1: (0, 2, False)})
REJECTED = Threads((1, 2, 0), {1: (None, 1, False), 2: (None, 2, False)})
BACKGROUND = Threads((0, 1, 0, 1, 0), {1: (0, 2, True)})
PARALLEL = Threads((0, 1, 2, 0), {1: (0, 0, False), 2: (0, 0, False)})
APART = Threads((0, 1, 2, 0), {1: (0, 0, True), 2: (0, 0, True)})


@pytest.mark.parametrize(
    ("threads", "rewards", "returns", "score"),
    [
        # The sub-agent's last turn goes on with the reward of its caller, and its caller's next turn.
        (SUB_AGENT, [1, 2, 4, 8], [1 + (2 + 0.5 * 4) + 0.5 * 8, 2 + 0.5 * (4 + 5), 4 + 1 + 0.5 * 8, 8], 9),
        # A summary takes no time of the turns around it.
        (COMPACTION, [1, 2, 4], [1 + 2 + 0.5 * 4, 2 + 4, 4], 5),
        # Each attempt earns what its replacement earns; the first turn of the episode is the last attempt.
        (REJECTED, [1, 2, 4], [1 + 2 + 4, 2 + 4, 4], 7),
        # Turn 2 collects the result, so its reward counts; turn 3 of the thread comes after it.
        (BACKGROUND, [1, 2, 4, 8, 16], [1 + 6 + 0.5 * (4 + 8), 2 + 0.5 * (8 + 12), 4 + 8, 8 + 12, 16], 13),
        # The first of two sub-agents may help or hinder the second one, whose reward counts in full.
        (PARALLEL, [1, 2, 4, 8], [1 + 2 + 4 + 0.5 * 8, 2 + 1 + 4 + 0.5 * 8, 4 + 1 + 0.5 * 8, 8], 11),
        (APART, [1, 2, 4, 8], [1 + 2 + 4 + 0.5 * 8, 2 + 1 + 0.5 * 8, 4 + 1 + 0.5 * 8, 8], 11),
        (Threads((0, 0, 0)), [1, 2, 4], [1 + 1 + 1, 2 + 2, 4], 3),
        # Only side threads: a crash came before the first turn of the main thread.
        (Threads((1, 1), {1: (None, None, False)}), [1, 2], [1 + 1, 2], 2),
    ],
)  # fmt: skip
def test_returns_by_hand(threads: Threads, rewards: list[int], returns: list[float], score: float) -> None:
    found, total = threads.returns(np.array(rewards, float), 0.5)
    assert found.tolist() == returns
    assert total == score
    flat = with_threads([rewards, [1.0, 2.0]], [threads, None])
    assert [one.tolist() for one in advantages.returns(flat, 0.5)] == [returns, [2.0, 2.0]]
    assert flat.scores(0.5).tolist() == [score, 2.0]


@pytest.mark.parametrize("threads", [SUB_AGENT, COMPACTION, REJECTED, BACKGROUND, PARALLEL, APART])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_every_reward_counts_once_in_the_score(threads: Threads, gamma: float) -> None:
    turn_weights, score_weights = threads.coefficients(gamma)
    assert (score_weights <= 1).all()
    assert (score_weights > 0).all() or gamma == 0.0
    if gamma == 1.0:
        assert score_weights.tolist() == [1.0] * len(threads.of)
    assert (np.diag(turn_weights) == 1).all()
    assert (turn_weights <= 1).all()


@pytest.mark.parametrize(
    ("of", "links", "message"),
    [
        ((0, 1), {}, "thread 1 has no link"),
        ((0, 0), {1: (0, 0, False)}, "thread 1 has a link, but no turn"),
        ((0, 1), {0: (0, 0, False), 1: (0, 0, False)}, "thread 0 has a link"),
        ((0, 1), {1: (2, 0, False)}, "thread 1: called_by=2: expected the index of a turn"),
        ((0, 1), {1: (0, -1, False)}, "thread 1: returns_to=-1"),
        ((0, 1, 1), {1: (0, 2, False)}, "thread 1: returns_to=2"),
        ((0, 1, 0), {1: (2, 2, False)}, "thread 1: called_by=2, but it begins at turn 1"),
        ((0, 1, 2), {1: (0, 2, False), 2: (0, 1, False)}, "leads back to it"),
    ],
)  # fmt: skip
def test_impossible_threads_are_rejected(of: tuple[int, ...], links: dict[int, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Threads(of, links)


def test_a_thread_within_a_thread() -> None:
    """Turn 0 calls a sub-agent, whose turn 1 calls turn 2; turns 3 and 4 go on in the two threads above."""
    threads = Threads((0, 1, 2, 1, 0), {1: (0, 0, False), 2: (1, 1, False)})
    found, score = threads.returns(np.array([1.0, 2, 4, 8, 16]), 0.5)
    inside = 2 + 4 + 0.5 * 8
    after_sub_agent = 1 + 0.5 * 16
    assert found.tolist() == [
        1 + inside + 0.5 * 16, inside + 0.5 * after_sub_agent,
        4 + 2 + 0.5 * (8 + after_sub_agent), 8 + after_sub_agent, 16,
    ]  # fmt: skip
    assert score == 1 + inside + 0.5 * 16


@pytest.mark.once
@pytest.mark.parametrize("seed", range(40))
def test_the_expected_gradient_is_exact(seed: int) -> None:
    """Random episodes with two actions per turn, in which a reward may depend on all actions before it."""
    random = Random(seed)
    threads = random_threads(random)
    size = len(threads.of)
    counts = [influences(threads, turn) for turn in range(size)]
    logits = [random.uniform(-1, 1) for _ in range(size)]
    chances = [1 / (1 + math.exp(-logit)) for logit in logits]
    tables = [
        {key: random.uniform(-1, 1) for key in itertools.product((0, 1), repeat=len(c))} for c in counts
    ]
    exact, expected, cut = np.zeros(size), np.zeros(size), np.zeros(size)
    for actions in itertools.product((0, 1), repeat=size):
        chance = math.prod(p if on else 1 - p for p, on in zip(chances, actions, strict=True))
        rewards = [table[tuple(actions[k] for k in c)] for table, c in zip(tables, counts, strict=True)]
        score = np.array(actions) - np.array(chances)  # the gradient of the log-probability of each action
        exact += chance * sum(rewards) * score
        expected += chance * advantages.reinforce(with_threads([rewards], [threads]))[0] * score
        cut += chance * np.array(rewards) * score
    np.testing.assert_allclose(expected, exact, atol=1e-12)
    assert np.abs(exact).max() > 1e-3
    assert size == 1 or not np.allclose(cut, exact, atol=1e-6)


def random_table(random: Random, size: int) -> dict[tuple[int, ...], float]:
    return {key: random.uniform(-1, 1) for key in itertools.product((0, 1), repeat=size)}


def random_threads(random: Random) -> Threads:
    """Return the threads of an episode: sub-agents, summaries, and background agents."""
    of, links, thread = [0], {}, 0
    for _ in range(random.randrange(4)):
        caller = len(of) - 1 if of[-1] == 0 else max(turn for turn, one in enumerate(of) if one == 0)
        thread += 1
        turns = random.choice([1, 1, 2])
        kind = random.choice(["sub-agent", "summary", "background"])
        start = len(of)
        of += [thread] * turns
        if kind == "sub-agent":
            links[thread] = (caller, caller, False)
            continue
        of.append(0)
        links[thread] = (caller, len(of) - 1, False)
        if kind == "background" and random.random() < 0.5:
            of[start + turns - 1 : start + turns + 1] = [0, thread]  # the last turn comes after the next one
            if turns == 1:
                of[start : start + 2] = [thread, 0]
            else:
                links[thread] = (caller, start + turns - 1, False)
    if of[-1] != 0 or random.random() < 0.5:
        of.append(0)
    return Threads(tuple(of), links)


def influences(threads: Threads, turn: int) -> list[int]:
    """Return the turns on whose actions the reward of a turn may depend: those sampled before it is paid.

    A turn that waits for a thread is paid when the thread returns.
    """
    last = turn
    for thread, (called_by, returns_to, _) in threads.links.items():
        if called_by == returns_to == turn or returns_to == turn:
            last = max(last, *(k for k, one in enumerate(threads.of) if one == thread))
    return list(range(last + 1))


@pytest.mark.parametrize("seed", range(10))
def test_independent_threads_leave_out_what_they_do_not_influence(seed: int) -> None:
    """The gradient stays exact if the rewards in each of two threads depend on that thread only."""
    random = Random(seed)
    threads = Threads((0, 1, 2, 1, 2, 0), {1: (0, 0, True), 2: (0, 0, True)})
    counts = [[0, 1, 2, 3, 4], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4], [0, 1, 2, 3, 4, 5]]
    chances = [random.uniform(0.2, 0.8) for _ in range(6)]
    tables = [
        {key: random.uniform(-1, 1) for key in itertools.product((0, 1), repeat=len(c))} for c in counts
    ]
    exact, expected, shared = np.zeros(6), np.zeros(6), np.zeros(6)
    together = Threads(threads.of, {thread: (*link[:2], False) for thread, link in threads.links.items()})
    moments = np.zeros((2, 6))
    for actions in itertools.product((0, 1), repeat=6):
        chance = math.prod(p if on else 1 - p for p, on in zip(chances, actions, strict=True))
        rewards = [table[tuple(actions[k] for k in c)] for table, c in zip(tables, counts, strict=True)]
        score = np.array(actions) - np.array(chances)
        exact += chance * sum(rewards) * score
        apart, both = (advantages.reinforce(with_threads([rewards], [one]))[0] for one in (threads, together))
        expected += chance * apart * score
        shared += chance * both * score
        moments += chance * np.square([apart * score, both * score])
    np.testing.assert_allclose(expected, exact, atol=1e-12)
    np.testing.assert_allclose(shared, exact, atol=1e-12)
    assert moments[0].sum() < moments[1].sum()


GROUPS = {"group_ids": ["g", "g", "g"]}
REWARDS = [[1.0, 2, 4, 8], [3.0, 1.0], [2.0]]


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "maxrl"])
def test_an_episode_counts_once_whatever_its_threads(name: str) -> None:
    estimator = get_estimator(name)
    found = estimator(with_threads(REWARDS, [SUB_AGENT, None, None]), **GROUPS)
    wanted = estimator([[15.0], [4.0], [2.0]], **GROUPS)
    assert [one.tolist() for one in found] == [
        pytest.approx([float(episode[0])] * len(turns))
        for episode, turns in zip(wanted, REWARDS, strict=True)
    ]


def test_other_estimators_with_threads() -> None:
    turns = with_threads(REWARDS, [SUB_AGENT, None, None])
    gs = [value for one in advantages.returns(turns, 0.5) for value in one]
    found = [value for one in get_estimator("rebn")(turns, gamma=0.5) for value in one]
    assert found == pytest.approx((np.array(gs) - np.mean(gs)) / np.std(gs))
    lengths = [[1, 2, 3, 4], [5, 6], [7]]
    (first, *_), scores = get_estimator("opo")(turns, lengths=lengths, **GROUPS), np.array([15.0, 4.0, 2.0])
    assert first.tolist() == pytest.approx([15 - scores @ [10, 11, 7] / 28] * 4)
    parts = [[[reward, 0.0] for reward in one] for one in REWARDS]
    gdpo = get_estimator("gdpo")
    got = gdpo(turns, reward_components=parts, gamma=0.5, **GROUPS)
    whole = gdpo(
        [[9.0], [3.5], [2.0]], reward_components=[[[9.0, 0.0]], [[3.5, 0.0]], [[2.0, 0.0]]], **GROUPS
    )
    assert [float(one[0]) for one in got] == pytest.approx([float(one[0]) for one in whole])


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("gae", {"values": REWARDS}),
        ("mt_grpo", GROUPS),
        ("gigpo", {**GROUPS, "state_keys": REWARDS}),
        ("rae", {"agent_ids": ["a", "a", "a"]}),
    ],
)
def test_estimators_that_are_not_defined_with_threads_say_so(name: str, given: dict[str, Any]) -> None:
    if name == "gigpo":
        given["state_keys"] = [[f"{reward}" for reward in one] for one in REWARDS]
    estimator = get_estimator(name)
    assert len(estimator(with_threads(REWARDS, [None] * 3), **given)) == 3
    with pytest.raises(ConfigError, match=f"{name}: episode 0 has side threads, but .*; use an estimator of"):
        estimator(with_threads(REWARDS, [SUB_AGENT, None, None]), **given)


def test_threads_belong_to_the_episodes() -> None:
    with pytest.raises(ConfigError, match="threads: 2 entries for 3 episodes"):
        with_threads(REWARDS, [SUB_AGENT, None])
    with pytest.raises(ConfigError, match="threads: episode 1 has threads of 4 turns, but 2 turns"):
        with_threads(REWARDS, [None, SUB_AGENT, None])
    with pytest.raises(NonFiniteReward, match="episode 0: the return overflows"):
        advantages.returns(with_threads([[1e308, 1e308, 1e308, 1.0]], [SUB_AGENT]))
    masked = with_threads(REWARDS, [SUB_AGENT, None, None], truncated=[True, False, False])
    assert [one.tolist() for one in advantages.reinforce(masked)] == [[0.0] * 4, [4.0, 1.0], [2.0]]


@pytest.mark.parametrize("name", ["rebn", "rloo", "reinforce", "opo", "gdpo"])
def test_rows_of_episodes_with_threads(name: str) -> None:
    """The sub-agent has a row of its own, between the turns of its caller."""
    torch = pytest.importorskip("torch", reason="needs the extra 'train'")
    from gem_core.advantages._rows import by_episode

    estimator = get_estimator(name)
    mask = torch.tensor([[1, 0, 1, 0], [1, 0, 1, 1], [1, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
    rewards = torch.tensor([[2.0, 0, 4, 0], [3, 0, 1, 0], [1, 0, 8, 0], [0, 0, 2, 0], [7, 7, 7, 7]])
    lengths = [[1.0, 1, 1, 1], [1, 2], [1]]
    given: dict[str, Any] = {need: GROUPS["group_ids"] for need in estimator.needs if need == "group_ids"}
    rows: dict[str, Any] = {need: ["g"] * 5 for need in given}
    if "lengths" in estimator.needs:
        given["lengths"] = lengths
    if name == "gdpo":
        given["reward_components"] = [[[reward] for reward in one] for one in REWARDS]
        rows["reward_components"] = rewards[..., None]
    wanted = estimator(with_threads(REWARDS, [SUB_AGENT, None, None]), gamma=0.5, **given)
    found = by_episode(
        estimator, rewards, mask, episodes=["a", "b", "a", "c", "pad"],
        turns=[[1, 2], [0, 1], [0, 3], [0], []],
        threads=[SUB_AGENT, None, SUB_AGENT, None, None], gamma=0.5, **rows,
    ).advantages  # fmt: skip
    assert found[0].tolist() == pytest.approx([wanted[0][1], 0, wanted[0][2], 0])
    assert found[2].tolist() == pytest.approx([wanted[0][0], 0, wanted[0][3], 0])
    assert found[1].tolist() == pytest.approx([wanted[1][0], 0, wanted[1][1], wanted[1][1]])
    assert found[3, 2] == pytest.approx(float(wanted[2][0]))
    with pytest.raises(ConfigError, match="threads: rows 0 and 2 of episode 'a' have"):
        by_episode(
            estimator, rewards, mask, episodes=["a", "b", "a", "c", "pad"],
            turns=[[1, 2], [0, 1], [0, 3], [0], []],
        threads=[SUB_AGENT, None, None, None, None], **rows,
        )  # fmt: skip


def test_a_batch_on_several_ranks_keeps_its_threads() -> None:
    pytest.importorskip("torch", reason="needs the extra 'train'")
    from gem_core.advantages._ranks import pack, unpack

    parts = [
        pack(with_threads(*part), {}, with_lengths=False)
        for part in ([[[1.0], [1.0, 2, 4, 8]], [None, SUB_AGENT]], [[[1.0, 2, 4]], [COMPACTION]])
    ]
    turns, _, sizes = unpack(parts)
    assert (sizes, turns.threads) == ([2, 1], {1: SUB_AGENT, 2: COMPACTION})
    assert turns.scores(0.5).tolist() == [1.0, 9.0, 5.0]
