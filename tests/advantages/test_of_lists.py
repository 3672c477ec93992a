"""An estimator that takes lists works on tensors and on several rows of an episode."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

from gem_core import advantages  # noqa: E402
from gem_core.advantages import Estimator  # noqa: E402
from gem_core.advantages._rows import by_episode  # noqa: E402
from gem_core.errors import ConfigError  # noqa: E402

MASK = torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0], [1, 0, 1, 0]])
REWARDS = torch.tensor([[0.0, 1.0, 0.0, 2.0], [9.0, 9.0, 9.0, 9.0], [3.0, 0.0, 4.0, 0.0]])
VALUES = torch.tensor([[0.5, 9.0, 9.0, 0.25], [9.0, 9.0, 9.0, 9.0], [1.0, 9.0, 2.0, 9.0]])


def everything(
    turn_rewards: Any,
    *,
    gamma: float = 1.0,
    group_ids: Any,
    baselines: Any,
    values: Any,
    lengths: Any,
    state_keys: Any,
    reward_components: Any,
    factor: float = 1.0,
) -> list[list[float]]:
    """Combine all inputs, as plain lists."""
    result = []
    for index, rewards in enumerate(turn_rewards):
        peers = [sum(turn_rewards[n]) for n, g in enumerate(group_ids) if g == group_ids[index]]
        result.append(
            [
                factor * reward
                + 10 * len(peers)
                + 100 * baselines[index]
                - values[index][turn]
                + 1000 * lengths[index][turn]
                + 1e4 * (state_keys[index][turn] == state_keys[0][0])
                + 1e5 * float(np.sum(reward_components[index][turn]))
                for turn, reward in enumerate(rewards)
            ]
        )
    return result


ROWS: dict[str, Any] = {
    "group_ids": torch.tensor([7, 7, 7]),
    "baselines": [0.5, 9.0, 0.25],
    "values": VALUES,
    "state_keys": [["s", "t"], [], ["s", "s"]],
    "reward_components": torch.stack([REWARDS, REWARDS / 2], 2),
}
WANTED = everything(
    [[1.0, 2.0], [3.0, 4.0]],
    group_ids=[7, 7],
    baselines=[0.5, 0.25],
    values=[[0.5, 0.25], [1.0, 2.0]],
    lengths=[[2, 1], [1, 1]],
    state_keys=[["s", "t"], ["s", "s"]],
    reward_components=[[[1.0, 0.5], [2.0, 1.0]], [[3.0, 1.5], [4.0, 2.0]]],
    factor=2.0,
)


def flat(result: Any) -> list[float]:
    """Return the values on the first token of each turn."""
    return [float(result[0, 0]), float(result[0, 3]), float(result[2, 0]), float(result[2, 2])]


def test_every_input_reaches_the_estimator_as_lists_of_the_rows_with_turns() -> None:
    own = Estimator(everything, critic_learns="return")
    assert (set(own.needs), own.options) == ({"lengths", *ROWS}, ("factor",))
    result = own.tensors(REWARDS, MASK, factor=2.0, gamma=0.5, **ROWS)
    assert flat(result.advantages) == pytest.approx(
        [value for row_values in WANTED for value in row_values], rel=1e-5
    )
    assert not result.advantages[MASK == 0].any()
    assert flat(result.returns) == [2.0, 2.0, 5.0, 4.0]
    assert result.advantages[0, 1] == result.advantages[0, 0]


def test_several_rows_of_an_episode() -> None:
    def weighted(turn_rewards: Any, *, gamma: float = 1.0, group_ids: Any, lengths: Any) -> Any:
        return [
            [10 * len(group_ids) + length * reward for reward, length in zip(*one, strict=True)]
            for one in zip(turn_rewards, lengths, strict=True)
        ]

    form = Estimator(weighted)
    mask = torch.tensor([[1, 1], [1, 0], [0, 0], [1, 1]])
    found = by_episode(
        form, mask * 1.5, mask, episodes=["a", "b", "b", "a"], turns=[1, 0, 1, 0], group_ids=[1, 1, 1, 1]
    )
    assert found.advantages[:, 0].tolist() == [20 + 2 * 3, 20 + 1.5, 0, 20 + 2 * 3]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([[1.0, 2.0]], r"odd returned advantages for \[2\] turns: expected one per turn, \[2, 2\]"),
        ([[1.0], [1.0, 2.0]], r"for \[1, 2\] turns"),
        ([[1.0, float("nan")], [0.0, 0.0]], "odd: an advantage of episode 0 is not finite"),
        ([1.0, 2.0], "the advantages of odd: episode 0 has shape"),
        ([["x", "y"], [0.0, 0.0]], "expected one number per turn"),
    ],
)
def test_a_result_that_is_not_one_number_per_turn_is_an_error(result: Any, message: str) -> None:
    def odd(turn_rewards: Any, *, gamma: float = 1.0) -> Any:
        return result

    with pytest.raises(ConfigError, match=message):
        Estimator(odd).tensors(REWARDS, MASK)


@functools.wraps(advantages.gae)
def wrapped_gae(*args: Any, **kwargs: Any) -> Any:
    return advantages.gae(*args, **kwargs)


@pytest.mark.parametrize("wrapper", [wrapped_gae, functools.partial(advantages.gae)])
def test_a_wrapper_of_gae_gives_the_critic_the_targets_of_gae(wrapper: Any) -> None:
    wanted = advantages.gae.tensors(REWARDS, MASK, values=VALUES, gamma=0.5, lam=0.5)
    assert not torch.equal(wanted.returns, advantages.reinforce.tensors(REWARDS, MASK, gamma=0.5).returns)
    own = Estimator(wrapper, critic_learns="advantage")
    found = own.tensors(REWARDS, MASK, values=VALUES, gamma=0.5, lam=0.5)
    torch.testing.assert_close(found.returns, wanted.returns)
    torch.testing.assert_close(found.advantages, wanted.advantages)
    learns_returns = Estimator(wrapper, critic_learns="return")
    from_returns = learns_returns.tensors(REWARDS, MASK, values=VALUES, gamma=0.5)
    torch.testing.assert_close(
        from_returns.returns, advantages.reinforce.tensors(REWARDS, MASK, gamma=0.5).returns
    )
    with pytest.raises(ConfigError, match="critic_learns=None: expected advantage or return with the need"):
        Estimator(wrapper)


def test_a_wrapper_of_rebn_reports_the_statistics_that_it_used() -> None:
    @functools.wraps(advantages.rebn)
    def own(*args: Any, **kwargs: Any) -> Any:
        return advantages.rebn(*args, **kwargs)

    stats = advantages.ReturnStats(9, 1.0, 4.0)
    form = Estimator(own, collected_stats=True).tensors
    assert (
        form(REWARDS, MASK, stats=stats).stats
        == advantages.rebn.tensors(REWARDS, MASK, stats=stats).stats
        == stats
    )
