"""Exact values and gradients, against finite differences, long Monte Carlo runs, and the real environment."""

from __future__ import annotations

import numpy as np
import pytest

import gem_core
from gem_core.errors import ConfigError
from gem_lab.exam import ActionOutcome, TableTask
from gem_lab.exam._episodes import draw_starts, join_paths, paths_from, sample
from gem_lab.exam._exact import expected_return, gradient, policies_at, solve
from gem_lab.exam._tasks import chain, get_task, list_tasks

TASKS = list_tasks()


def perturbed(task: TableTask) -> np.ndarray:
    """Logits without the symmetries of the initial policy."""
    noise = np.random.default_rng(1).normal(size=task.shape)
    return np.where(task.allowed, task.logits + noise, 0.0)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_the_gradient_agrees_with_finite_differences(name: str, gamma: float) -> None:
    task = get_task(name)
    logits, step = perturbed(task), 1e-5
    exact = gradient(task, task.policy(logits), gamma, "discounted")
    entries = np.argwhere(task.allowed)
    chosen = np.random.default_rng(0).permutation(len(entries))[:12]
    for row, action in entries[chosen]:
        ends = []
        for side in (step, -step):
            moved = logits.copy()
            moved[row, action] += side
            ends.append(expected_return(task, task.policy(moved), gamma))
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(exact[row, action], abs=1e-8)


def test_without_discount_all_references_are_one_gradient() -> None:
    task = get_task("slippery")
    policy = task.policy(perturbed(task))
    exact = gradient(task, policy)
    np.testing.assert_allclose(gradient(task, policy, 1.0, "discounted"), exact)
    np.testing.assert_allclose(gradient(task, policy, 1.0, "per turn"), exact)
    assert not np.allclose(gradient(task, policy, 0.9, "per turn"), gradient(task, policy, 0.9, "discounted"))


@pytest.mark.parametrize("name", TASKS)
def test_values_and_gradient_agree_with_long_play(name: str) -> None:
    task, random = get_task(name), np.random.default_rng(0)
    policy = task.policy(perturbed(task))
    count = 2000 if task.limit > 16 else 40_000
    episodes = sample(task, policy, draw_starts(task, count, 1, random), random)
    gamma = 0.9
    solution = solve(task, policy, gamma)
    returns = episodes.returns(gamma)
    first = np.cumsum(episodes.lengths) - episodes.lengths
    error = returns[first].std() / np.sqrt(count)
    assert returns[first].mean() == pytest.approx(solution.expected_return, abs=4 * error)
    scores = -policy[episodes.rows]
    scores[np.arange(len(scores)), episodes.actions] += 1
    sums = np.zeros((count, *task.shape))
    np.add.at(sums, (episodes.episode_of, episodes.rows), scores * returns[:, None])
    errors = sums.std(0) / np.sqrt(count)
    assert (np.abs(sums.mean(0) - gradient(task, policy, gamma, "per turn")) <= 5 * errors + 1e-12).all()


def test_exact_advantages_have_mean_zero_and_sum_to_the_return() -> None:
    task = get_task("stop")
    policy = task.policy()
    solution = solve(task, policy)
    means = (solution.advantages * policy[task.rows]).sum(-1)
    np.testing.assert_allclose(means[solution.visits > 0], 0, atol=1e-12)


def test_the_credit_of_a_bifurcation_is_known() -> None:
    task = get_task("bifurcation")
    solution = solve(task, task.policy())
    size = np.abs(solution.advantages).max(-1)
    for turn in range(task.limit):
        reached = solution.visits[turn] > 0
        if turn in (2, 5):
            good = [task.states[state] == (turn, True) for state in np.flatnonzero(reached)]
            assert (size[turn][reached][good] > 0.1).all()
        else:
            np.testing.assert_allclose(size[turn][reached], 0, atol=1e-12)


def test_the_table_plays_by_the_rules_of_guess_the_number() -> None:
    task = get_task("guess")
    states = {state: index for index, state in enumerate(task.states)}
    random = np.random.default_rng(0)
    games = 0
    for seed in range(60):
        env = gem_core.make("game:GuessTheNumber-v0", min_number=1, max_number=7, max_turns=3)
        env.reset(seed)
        number, low, high = env.unwrapped.number, 1, 7
        for turn in range(task.limit):
            guess = int(random.integers(low, high + 1))
            at = states[turn, low, high, number], task.actions.index(guess)
            _, reward, terminated, truncated, _ = env.step(f"\\boxed{{{guess}}}")
            assert reward == pytest.approx(task.reward[at][0])
            assert (terminated or truncated) == (task.next_state[at][0] == -1)
            if terminated or truncated:
                games += 1
                break
            low, high = (guess + 1, high) if guess < number else (low, guess - 1)
            assert task.states[task.next_state[at][0]] == (turn + 1, low, high, number)
    assert games == 60


def test_enumerated_episodes_have_total_probability_1() -> None:
    task = get_task("stop")
    policy = task.policy()
    paths = paths_from(task, policy, 0)
    assert paths is not None
    assert sum(path.probability for path in paths) == pytest.approx(1.0)
    episodes = join_paths(task, policy, paths)
    returns = np.bincount(episodes.episode_of, episodes.rewards)
    weights = [path.probability for path in paths]
    assert np.dot(returns, weights) == pytest.approx(expected_return(task, policy))
    assert paths_from(chain(8, dense=False), chain(8, dense=False).policy(), 0, most=50) is None


def test_stages_make_half_of_the_improvement() -> None:
    task = get_task("tool")
    first, half, late = (expected_return(task, p) for p in policies_at(task, ["initial", "halfway", "late"]))
    assert first == expected_return(task, task.policy())
    assert first < half < late
    assert half - first == pytest.approx(0.5 * (late - first) / 0.9, rel=0.15)


def test_truncated_episodes_are_marked() -> None:
    task, random = get_task("truncation"), np.random.default_rng(0)
    episodes = sample(task, task.policy(), draw_starts(task, 200, 1, random), random)
    totals = np.bincount(episodes.episode_of, episodes.rewards)
    assert (episodes.lengths[episodes.truncated] == task.limit).all()
    np.testing.assert_array_equal(totals == 0, episodes.truncated)


def test_wrong_tables_are_errors() -> None:
    with pytest.raises(ConfigError, match=r"sum to 0\.5: expected 1"):
        TableTask.from_outcomes("x", {("s", "a"): [ActionOutcome(0.5)]}, {"s": 1.0}, limit=1)
    with pytest.raises(ConfigError, match="leads to 'gone', which has no outcomes"):
        TableTask.from_outcomes("x", {("s", "a"): [ActionOutcome(1.0, 0.0, "gone")]}, {"s": 1.0}, limit=1)
    with pytest.raises(ConfigError, match="the first state 'other'"):
        TableTask.from_outcomes("x", {("s", "a"): [ActionOutcome(1.0)]}, {"other": 1.0}, limit=1)
    outcomes = {("s", "a"): [ActionOutcome(1.0, 0.0, "t")], ("t", "b"): [ActionOutcome(1.0)]}
    with pytest.raises(ConfigError, match="other actions than another state of its row"):
        TableTask.from_outcomes("x", outcomes, {"s": 1.0}, limit=2, row=lambda state: 0)
