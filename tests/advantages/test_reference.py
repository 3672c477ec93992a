"""Properties of the numpy definitions; their values are checked in test_golden.py."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gem_core import advantages
from gem_core.advantages import ReturnStats, gae, grpo, normalize, rebn, reinforce, returns, rloo, to_tokens
from gem_core.errors import ConfigError, NonFiniteReward
from tests.advantages.batches import batch, gamma


def flat(arrays):
    return np.concatenate(arrays) if arrays else np.zeros(0)


def spread_out(episodes, discount):
    """Return whether the returns differ by far more than the min_std rule, so that rounding is irrelevant."""
    stats = ReturnStats.from_returns(returns(episodes, discount))
    return stats.std() > 1e-4 * max(1.0, abs(stats.mean))


@given(batch, gamma, st.randoms(use_true_random=False))
def test_order_of_episodes_does_not_matter(episodes, gamma, random):
    assume(spread_out(episodes, gamma))
    order = list(range(len(episodes)))
    random.shuffle(order)
    before, after = rebn(episodes, gamma=gamma), rebn([episodes[n] for n in order], gamma=gamma)
    for place, number in enumerate(order):
        np.testing.assert_allclose(after[place], before[number], atol=1e-9)


@given(batch, gamma)
def test_duplicating_the_batch_changes_nothing_with_the_population_deviation(episodes, gamma):
    assume(spread_out(episodes, gamma))
    twice = rebn(episodes + episodes, gamma=gamma)
    np.testing.assert_allclose(flat(twice[: len(episodes)]), flat(rebn(episodes, gamma=gamma)), atol=1e-9)


@given(batch, gamma, st.floats(0.01, 1e4))
def test_scaling_rewards_changes_nothing(episodes, gamma, factor):
    scaled = [[factor * reward for reward in rewards] for rewards in episodes]
    assume(spread_out(episodes, gamma))
    assume(spread_out(scaled, gamma))
    options = {"gamma": gamma, "eps": 0.0}
    np.testing.assert_allclose(flat(rebn(scaled, **options)), flat(rebn(episodes, **options)), atol=1e-7)


@given(batch, gamma)
def test_flipping_the_sign_of_rewards_flips_advantages(episodes, gamma):
    flipped = rebn([[-reward for reward in rewards] for rewards in episodes], gamma=gamma)
    np.testing.assert_allclose(flat(flipped), -flat(rebn(episodes, gamma=gamma)), atol=1e-9)


@given(batch, st.floats(-100, 100))
def test_shifting_every_return_by_the_same_amount_changes_nothing(episodes, shift):
    # With gamma 1 a shift of the last reward of every episode shifts each of its returns alike.
    shifted = [[*rewards[:-1], rewards[-1] + shift] for rewards in episodes]
    assume(spread_out(episodes, 1.0))
    assume(spread_out(shifted, 1.0))
    np.testing.assert_allclose(flat(rebn(shifted)), flat(rebn(episodes)), atol=1e-6)
    # With gamma 0 a return is the reward.
    shifted = [[reward + shift for reward in rewards] for rewards in episodes]
    assume(spread_out(episodes, 0.0))
    assume(spread_out(shifted, 0.0))
    np.testing.assert_allclose(flat(rebn(shifted, gamma=0.0)), flat(rebn(episodes, gamma=0.0)), atol=1e-6)


@given(batch, gamma, st.sampled_from([0, 1]))
def test_advantages_have_mean_zero_and_deviation_one(episodes, gamma, ddof):
    assume(spread_out(episodes, gamma))
    values = flat(rebn(episodes, gamma=gamma, ddof=ddof))
    assert np.mean(values) == pytest.approx(0, abs=1e-9)
    assert np.std(values, ddof=ddof) == pytest.approx(1, abs=1e-3)


@given(batch)
def test_gamma_zero_and_one(episodes):
    for rewards, now, total in zip(episodes, returns(episodes, 0.0), returns(episodes, 1.0), strict=True):
        assert now.tolist() == rewards
        assert total[0] == pytest.approx(math.fsum(rewards), abs=1e-9)


@given(batch, gamma)
def test_gae_with_lambda_one_and_no_critic_is_reinforce(episodes, gamma):
    zeros = [[0.0] * len(rewards) for rewards in episodes]
    np.testing.assert_allclose(
        flat(gae(episodes, values=zeros, gamma=gamma, lam=1.0)),
        flat(reinforce(episodes, gamma=gamma)),
        atol=1e-9,
    )


@given(batch, st.randoms(use_true_random=False))
def test_group_credits_sum_to_zero_over_the_episodes_of_a_group(episodes, random):
    groups = [random.choice("ab") for _ in episodes]
    for estimator in (grpo, rloo):
        credits = estimator(episodes, group_ids=groups)
        for group in set(groups):
            total = sum(c[0] for c, g in zip(credits, groups, strict=True) if g == group)
            assert total == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("reward", [-0.1, 0.0, 1 / 3, 1e6 / 7])
@pytest.mark.parametrize("ddof", [0, 1])
def test_equal_returns_give_exactly_zero(reward, ddof):
    episodes = [[reward]] * 7
    for credits in (rebn(episodes, ddof=ddof), grpo(episodes, group_ids=[*"aaabbbb"], ddof=ddof)):
        assert flat(credits).tolist() == [0.0] * 7


def test_one_turn_gives_zero():
    assert rebn([[5.0]])[0].tolist() == rebn([[5.0]], ddof=1)[0].tolist() == [0.0]
    assert grpo([[5.0]], group_ids=["a"])[0].tolist() == rloo([[5.0]], group_ids=["a"])[0].tolist() == [0.0]


def test_parts_compose_to_rebn_over_two_ranks():
    here, there = [[0.0, 1.0], [0.5]], [[-0.1], [0.2, 0.2, 0.9]]
    local = returns(here, 0.9)
    wire = ReturnStats.from_returns(returns(there, 0.9)).to_wire()
    stats = ReturnStats.from_returns(local).merge(ReturnStats.from_wire(wire))
    together = rebn(here + there, gamma=0.9)
    np.testing.assert_allclose(flat(normalize(local, stats)), flat(together[:2]), rtol=1e-12)
    np.testing.assert_allclose(flat(rebn(here, gamma=0.9, stats=stats)), flat(together[:2]), rtol=1e-12)


def test_to_tokens_copies_and_is_zero_elsewhere():
    tokens = to_tokens([[0.5, -1.0], []], [[-1, 0, 0, -1, 1, -1], [-1, -1]])
    assert [row.tolist() for row in tokens] == [[0, 0.5, 0.5, 0, -1.0, 0], [0, 0]]


def test_to_tokens_rejects_ids_without_a_turn():
    with pytest.raises(
        ConfigError, match="episode 0: turn ids from -1 to 2: expected -1 or an index of its 2 turns"
    ):
        to_tokens([[0.5, -1.0]], [[-1, 0, 2]])
    with pytest.raises(ConfigError, match="1 episodes"):
        to_tokens([[0.5]], [])


def test_an_episode_without_turns_is_in_no_statistics():
    first, second = rebn([[1.0], [0.0]])
    with_empty = rebn([[1.0], [], [0.0]])
    assert [episode.tolist() for episode in with_empty] == [first.tolist(), [], second.tolist()]
    assert [len(e) for e in grpo([[1.0], [], [0.0]], group_ids=["a", "a", "a"])] == [1, 0, 1]
    assert rebn([]) == returns([]) == gae([], values=[]) == []
    assert grpo([], group_ids=[]) == rloo([], group_ids=[]) == []


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("estimator", ["returns", "rebn", "reinforce", "grpo", "rloo", "gae"])
def test_a_reward_that_is_not_finite_is_named(estimator, bad):
    groups = {"group_ids": ["a", "a"]}
    needs = {"grpo": groups, "rloo": groups, "gae": {"values": [[0.0], [0.0, 0.0]]}}.get(estimator, {})
    with pytest.raises(NonFiniteReward, match=f"episode 1, turn 1: reward {bad}"):
        getattr(advantages, estimator)([[0.0], [0.0, bad]], **needs)


def test_a_return_that_overflows_is_named():
    with pytest.raises(NonFiniteReward, match="episode 1"):
        returns([[0.0], [1.7e308, 1.7e308]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rebn([[1.0]], gamma=1.5), "gamma=1.5: expected"),
        (lambda: rebn([[1.0]], gamma=math.nan), "gamma=nan: expected"),
        (lambda: rebn([[1.0]], ddof=2), "ddof=2: expected"),
        (lambda: rebn([1.0, 2.0]), "episode 0 has shape"),
        (lambda: grpo([[1.0]], group_ids=["a", "b"]), "group_ids: 2 entries for 1 episodes"),
        (lambda: gae([[1.0]], values=[[1.0]], lam=-0.1), "lam=-0.1: expected"),
        (lambda: gae([[1.0]], values=[[1.0, 2.0]]), "values: episode 0 has 2 entries for 1 turns"),
        (lambda: gae([[1.0]], values=[[math.nan]]), "values: not finite in episode 0, turn 0"),
        (lambda: gae([[1.0]], values=[[1.0]], bootstrap=[]), "bootstrap: 0 entries for 1 episodes"),
    ],
)
def test_wrong_arguments_are_rejected(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


TAKES_EPISODES = {
    "returns": returns,
    "normalize": lambda episodes: normalize(episodes, ReturnStats(2, 0.0, 1.0)),
    "statistics": ReturnStats.from_returns,
    "rebn": rebn,
    "reinforce": reinforce,
    "grpo": lambda episodes: grpo(episodes, group_ids=["a"] * len(episodes)),
    "rloo": lambda episodes: rloo(episodes, group_ids=["a"] * len(episodes)),
    "gae": lambda episodes: gae(episodes, values=[[0.0]] * len(episodes)),
    "gae, values": lambda episodes: gae([[0.0]] * len(episodes), values=episodes),
}


@pytest.mark.parametrize("name", TAKES_EPISODES)
@pytest.mark.parametrize(
    ("episodes", "message"),
    [
        (np.zeros((2, 3)), r"a numpy.ndarray of shape \(2, 3\)"),
        (np.zeros((1, 2, 3)), r"shape \(1, 2, 3\)"),
        (list(np.zeros((2, 1, 3))), r"episode 0 has shape \(1, 3\)"),
        ([0.0, 1.0], r"episode 0 has shape \(\)"),
        (["a", "b"], "episode 0 is a str: expected one number per turn"),
        ([[0.0], [None, []]], "episode 1 is a list: expected one number per turn"),
        ("ab", "is a str: expected a list"),
        ({0: [1.0]}, "is a dict: expected a list"),
    ],
)
def test_what_is_not_a_list_of_episodes_is_rejected(name, episodes, message):
    if name == "statistics":  # one array may hold the turns of all episodes
        message = message.replace("a numpy.ndarray of", "episode 0 has")
    with pytest.raises(ConfigError, match=message):
        TAKES_EPISODES[name](episodes)


@pytest.mark.parametrize("name", TAKES_EPISODES)
def test_tensors_are_rejected_with_the_function_that_takes_them(name):
    torch = pytest.importorskip("torch", reason="needs the extra 'train'")
    tokens = torch.tensor([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    for episodes in (tokens, list(tokens), tokens.numpy()):
        wanted = r"of shape|has shape" if name == "statistics" else r"of shape \(.*the method `tensors` of"
        with pytest.raises(ConfigError, match=wanted) as caught:
            TAKES_EPISODES[name](episodes)
        assert "rebn.tensors(token_rewards, response_mask)" in str(caught.value)
