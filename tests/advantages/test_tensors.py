"""The tensor form equals the definition for every layout, dtype, and mask of trainers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

from gem_core import advantages as reference  # noqa: E402
from gem_core.advantages import ReturnStats, _tensors, _turns  # noqa: E402
from gem_core.errors import ConfigError, NonFiniteReward  # noqa: E402
from tests.advantages.batches import CASE_NAMES, CASES, Rows, batch, gamma, rows  # noqa: E402
from tests.advantages.oracle import turns_of_row  # noqa: E402

MASK_DTYPES = [torch.bool, torch.int64, torch.int32, torch.uint8, torch.float32, torch.bfloat16]


def on_tokens(per_turn: list[list[float] | None], turn_ids: list[list[int]]) -> np.ndarray:
    """Return the expected token values, position by position."""
    wanted = np.zeros(np.shape(turn_ids))
    for row, ids in enumerate(turn_ids):
        for position, turn in enumerate(ids):
            if turn >= 0:
                wanted[row, position] = per_turn[row][turn]
    return wanted


def assert_close(actual: torch.Tensor, wanted: Any, tolerance: float = 1e-6) -> None:
    """Assert closeness up to a tolerance times max(1, largest magnitude)."""
    wanted = np.asarray(wanted)
    size = max(1.0, np.abs(wanted).max(initial=0))
    np.testing.assert_allclose(actual.double().numpy(), wanted, rtol=0, atol=tolerance * size)


def all_estimators(case: dict[str, Any], given: Rows, dtype: torch.dtype, explicit: bool) -> dict[str, Any]:
    rewards = torch.tensor(given.token_rewards, dtype=dtype)
    mask = torch.tensor(given.response_mask)
    ids = {"turn_ids": torch.tensor(given.turn_ids)} if explicit else {}
    groups = [episode["group"] for episode in case["episodes"]]
    discount = {"gamma": case["gamma"], **ids}
    statistics = {key: case[key] for key in ("ddof", "eps", "min_std")}
    bootstrap = torch.tensor([episode["bootstrap"] for episode in case["episodes"]])
    values = torch.tensor(given.values, dtype=torch.float64)
    return {
        "rebn": reference.rebn.tensors(rewards, mask, **discount, **statistics),
        "returns": reference.reinforce.tensors(rewards, mask, **discount),
        "grpo": reference.grpo.tensors(rewards, mask, group_ids=groups, **discount, **statistics),
        "rloo": reference.rloo.tensors(rewards, mask, group_ids=groups, **discount),
        "gae": reference.gae.tensors(
            rewards, mask, values=values, **discount, lam=case["lam"], bootstrap=bootstrap.double()
        ),
    }


@pytest.mark.parametrize("explicit", [False, True], ids=["runs of the mask", "explicit turn ids"])
@pytest.mark.parametrize("case", CASES, ids=CASE_NAMES)
def test_golden(case, explicit):
    given = rows(case["episodes"])
    if not explicit:  # contexts are never empty, so runs are turns
        assert _tensors.turn_ids_from_mask(torch.tensor(given.response_mask)).tolist() == given.turn_ids
    for dtype, tolerance in [(torch.float64, 1e-6), (torch.float32, 1e-5)]:
        if dtype == torch.float32 and not case["float32"]:
            continue
        for name, result in all_estimators(case, given, dtype, explicit).items():
            assert result.advantages.dtype == result.returns.dtype == torch.float32
            assert_close(result.advantages, on_tokens(case["expected"][name], given.turn_ids), tolerance)
            assert (result.advantages.numpy()[np.array(given.turn_ids) < 0] == 0).all()
            if name != "gae":
                assert_close(
                    result.returns, on_tokens(case["expected"]["returns"], given.turn_ids), tolerance
                )
                assert result.stats.count == case["expected"]["stats"][0]


def test_the_targets_of_gae_are_advantage_plus_value():
    case = CASES[1]
    given = rows(case["episodes"])
    result = all_estimators(case, given, torch.float64, explicit=False)["gae"]
    values = on_tokens([episode["values"] for episode in case["episodes"]], given.turn_ids)
    assert_close(result.returns, result.advantages.double().numpy() + values)


@given(batch, gamma, st.sampled_from([0, 1]), st.data())
def test_equals_the_reference_on_any_tokens(episodes, gamma, ddof, data):
    """Test rewards on all tokens of random rows, including tokens of the environment."""
    width = 24
    mask = data.draw(
        st.lists(st.lists(st.integers(0, 1), min_size=width, max_size=width), min_size=1, max_size=5)
    )
    flat = [reward for rewards in episodes for reward in rewards]
    rewards = [[flat[(7 * i + j * j) % len(flat)] for j in range(width)] for i in range(len(mask))]
    parsed = [turns_of_row(*row) for row in zip(mask, rewards, strict=True)]
    wanted = reference.rebn([[float(r) for _, r in row] for row in parsed], gamma=gamma, ddof=ddof)
    tokens = np.zeros((len(mask), width))
    for row, turns_in_row in enumerate(parsed):
        for turn, (positions, _) in enumerate(turns_in_row):
            tokens[row, positions] = wanted[row][turn]
    result = reference.rebn.tensors(torch.tensor(rewards), torch.tensor(mask), gamma=gamma, ddof=ddof)
    assert_close(result.advantages, tokens)
    ids = _tensors.turn_ids_from_mask(torch.tensor(mask))
    explicit = reference.rebn.tensors(
        torch.tensor(rewards), torch.tensor(mask), turn_ids=ids, gamma=gamma, ddof=ddof
    )
    assert torch.equal(explicit.advantages, result.advantages)
    assert explicit.stats == result.stats


def random_batch(seed: int, batch_size: int = 16, width: int = 96) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.randn(batch_size, width, generator=generator)
    mask = torch.rand(batch_size, width // 8, generator=generator).gt(0.5).repeat_interleave(8, 1)
    mask[3] = False
    return rewards, mask


@pytest.mark.parametrize("dtype", MASK_DTYPES)
def test_every_mask_dtype_gives_the_same(dtype):
    rewards, mask = random_batch(0)
    wanted, got = reference.rebn.tensors(rewards, mask), reference.rebn.tensors(rewards, mask.to(dtype))
    assert torch.equal(got.advantages, wanted.advantages)
    assert got.stats == wanted.stats


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int64])
def test_every_reward_dtype_is_summed_exactly(dtype):
    rewards, mask = random_batch(1)
    rewards = (4 * rewards).to(dtype)
    got = reference.rebn.tensors(rewards, mask, gamma=0.9)
    wanted = reference.rebn.tensors(rewards.double(), mask, gamma=0.9)
    assert_close(got.advantages, wanted.advantages.numpy())
    assert got.advantages.dtype == torch.float32
    assert got.stats.to_wire() == pytest.approx(wanted.stats.to_wire(), rel=1e-12)


def test_non_contiguous_inputs():
    rewards, mask = random_batch(2)
    wanted = reference.rebn.tensors(rewards, mask, turn_ids=_tensors.turn_ids_from_mask(mask)).advantages
    sliced = torch.zeros(16, 200)[:, 3:195:2]
    sliced.copy_(rewards)
    transposed = mask.t().contiguous().t()
    ids = _tensors.turn_ids_from_mask(mask).t().contiguous().t()
    assert not any(tensor.is_contiguous() for tensor in (sliced, transposed, ids))
    assert torch.equal(reference.rebn.tensors(sliced, transposed).advantages, wanted)
    assert torch.equal(reference.rebn.tensors(sliced, transposed, turn_ids=ids).advantages, wanted)


def test_inputs_are_left_alone_and_results_have_no_gradient():
    rewards, mask = random_batch(3)
    ids = _tensors.turn_ids_from_mask(mask)
    copies = rewards.clone(), mask.clone(), ids.clone()
    result = reference.rebn.tensors(rewards.requires_grad_(), mask, turn_ids=ids)
    assert not any(tensor.requires_grad for tensor in result[:2])
    result.advantages.zero_()
    assert torch.equal(rewards.detach(), copies[0])
    assert torch.equal(mask, copies[1])
    assert torch.equal(ids, copies[2])


def test_a_device_that_numpy_cannot_see_gives_the_same(monkeypatch):
    rewards, mask = random_batch(4)
    wanted = reference.rebn.tensors(rewards, mask, gamma=0.9)
    monkeypatch.setattr(_turns, "_is_host", lambda device: False)
    for dtype in (torch.float32, torch.float64):
        got = reference.rebn.tensors(rewards.to(dtype), mask, gamma=0.9)
        assert_close(got.advantages, wanted.advantages.numpy())
    assert torch.equal(_tensors.turn_ids_from_mask(mask) >= 0, mask)


@pytest.mark.parametrize("block", [1, 96, 500, 10**6])  # less than a row, a row, five rows, all
def test_the_size_of_the_blocks_does_not_matter(monkeypatch, block):
    rewards, mask = random_batch(8)
    monkeypatch.setattr(_turns, "BLOCK", block)
    got = _turns.TurnLayout(mask, token_rewards=rewards).rewards
    wanted = [
        float(r) for row in zip(mask.tolist(), rewards.tolist(), strict=True) for _, r in turns_of_row(*row)
    ]
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_gives_the_same():
    rewards, mask = random_batch(5)
    wanted = reference.rebn.tensors(rewards, mask, gamma=0.9)
    got = reference.rebn.tensors(rewards.cuda(), mask.cuda(), gamma=0.9)
    assert got.advantages.is_cuda
    assert_close(got.advantages.cpu(), wanted.advantages.numpy())


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (3, 0), (3, 5)])
def test_nothing_to_train_on_gives_zeros(shape):
    empty = torch.zeros(shape)
    for result in (
        reference.rebn.tensors(empty, empty),
        reference.reinforce.tensors(empty, empty),
        reference.grpo.tensors(empty, empty, group_ids=[0] * shape[0]),
        reference.rloo.tensors(empty, empty, group_ids=torch.zeros(shape[0])),
        reference.gae.tensors(empty, empty, values=empty),
        reference.rebn.tensors(empty, empty, turn_ids=torch.full(shape, -1)),
    ):
        assert torch.equal(result.advantages, empty)
        assert result.stats == ReturnStats()


def test_rewards_of_untrainable_rows_and_before_the_first_turn_count_nowhere():
    rewards = torch.tensor([[math.nan, 1.0, 2.0], [math.nan, math.inf, 5.0], [0.0, 0.0, 1.0]])
    mask = torch.tensor([[0, 1, 1], [0, 0, 0], [1, 1, 1]])
    result = reference.reinforce.tensors(rewards, mask)
    assert result.advantages.tolist() == [[0, 3, 3], [0, 0, 0], [1, 1, 1]]
    ids = torch.tensor([[-1, 0, 0], [-1, 0, 1], [0, 0, 0]])  # ids of an untrainable row are ignored
    assert torch.equal(reference.reinforce.tensors(rewards, mask, turn_ids=ids).advantages, result.advantages)


def test_turns_that_touch_need_ids():
    rewards = torch.tensor([[0.0, 1.0, 0.0, 5.0]])
    mask = torch.ones(1, 4)
    assert reference.reinforce.tensors(rewards, mask).returns.tolist() == [[6, 6, 6, 6]]
    ids = torch.tensor([[0, 0, 1, 1]], dtype=torch.int32)
    assert reference.reinforce.tensors(rewards, mask, turn_ids=ids).returns.tolist() == [[6, 6, 5, 5]]


def test_a_turn_may_be_interrupted():
    ids = torch.tensor([[0, -1, 0, -1, 1]])
    result = reference.reinforce.tensors(torch.ones(1, 5), ids >= 0, turn_ids=ids)
    assert result.returns.tolist() == [[5, 0, 5, 0, 1]]
    assert result.stats.count == 2


def test_a_masked_out_turn_counts_in_the_statistics_and_gets_no_credit():
    ids = torch.tensor([[0, 0, -1, 1], [0, -1, 1, 1]])
    rewards = torch.tensor([[0.0, 1.0, 0.0, 2.0], [3.0, 0.0, 0.0, 7.0]])
    mask = torch.tensor([[1, 1, 0, 0], [1, 0, 1, 0]])
    whole = reference.rebn.tensors(rewards, ids >= 0, turn_ids=ids)
    masked = reference.rebn.tensors(rewards, mask, turn_ids=ids)
    assert masked.stats == whole.stats
    assert torch.equal(masked.advantages, whole.advantages * mask)


def test_given_statistics_are_used():
    rewards, mask = random_batch(6)
    collected = ReturnStats(100, 2.0, 900.0)
    result = reference.rebn.tensors(rewards, mask, stats=collected, eps=0.0)
    assert result.stats is collected
    assert_close(result.advantages, ((result.returns.double() - 2.0) / 3.0 * mask).numpy())


def test_group_ids_may_be_a_tensor_or_anything_hashable():
    rewards, mask = random_batch(7)
    numbers = torch.arange(16) // 4
    wanted = reference.grpo.tensors(rewards, mask, group_ids=numbers).advantages
    assert torch.equal(
        reference.grpo.tensors(rewards, mask, group_ids=[f"uid {n}" for n in numbers.tolist()]).advantages,
        wanted,
    )
    assert torch.equal(
        reference.grpo.tensors(rewards, mask, group_ids=numbers.numpy().astype(object)).advantages, wanted
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_not_finite_is_named(bad):
    rewards, mask = torch.zeros(3, 6), torch.tensor([[1, 0, 1, 1, 0, 0]] * 3)
    rewards[2, 4] = bad
    for call in (reference.rebn.tensors, reference.reinforce.tensors):
        with pytest.raises(NonFiniteReward, match=f"row 2, turn 1: reward {bad}"):
            call(rewards, mask)


def test_a_return_that_overflows_is_named():
    rewards = torch.tensor([[0.0, 0.0, 0.0], [1.7e308, 0.0, 1.7e308]], dtype=torch.float64)
    with pytest.raises(NonFiniteReward, match="row 1"):
        reference.rebn.tensors(rewards, torch.tensor([[1, 0, 1]] * 2))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[0, -1, 2], [0, 0, -1]], "row 0: turn id 2 follows 0"),
        ([[0, -1, 1], [1, 1, -1]], "row 1: turn id 1 comes first"),
        ([[0, 1, 0], [0, 0, -1]], "row 0: turn id 0 follows 1"),
        ([[0, -1, 1], [0, -1, -1]], "row 1: token 1 is a response token without a turn id"),
    ],
)
def test_turn_ids_that_break_the_rule_are_rejected(ids, message):
    ids = torch.tensor(ids)
    mask = ids >= 0
    mask[1, :2] = True
    with pytest.raises(ConfigError, match=message):
        reference.rebn.tensors(torch.zeros(2, 3), mask, turn_ids=ids)


ESTIMATORS = {
    "rebn": reference.rebn.tensors,
    "reinforce": reference.reinforce.tensors,
    "grpo": lambda r, m: reference.grpo.tensors(r, m, group_ids=["a"] * len(m)),
    "rloo": lambda r, m: reference.rloo.tensors(r, m, group_ids=["a"] * len(m)),
    "gae": lambda r, m: reference.gae.tensors(r, m, values=r),
    "turn_ids_from_mask": lambda r, m: _tensors.turn_ids_from_mask(m),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("value", [2, -1, 0.5, math.nan, math.inf])
@pytest.mark.parametrize("inside", [True, False])  # next to a 1, or next to a 0
def test_a_mask_of_other_numbers_than_0_and_1_is_rejected(name, value, inside):
    rewards, mask = torch.zeros(3, 6), torch.tensor([[0.0, 0, 1, 1, 1, 0]] * 3)
    mask[1, 3 if inside else 0] = value
    with pytest.raises(ConfigError, match=f"row 1: response_mask holds {float(value)}: expected 1 on resp"):
        ESTIMATORS[name](rewards, mask)
    mask[1, 3 if inside else 0] = 1
    ESTIMATORS[name](rewards, mask)
    with pytest.raises(ConfigError, match="row 0: response_mask holds 2"):
        ESTIMATORS[name](rewards, mask.int() * 2)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_arrays_and_lists_are_rejected_with_what_to_pass(name):
    rewards, mask = torch.zeros(3, 6), torch.ones(3, 6)
    with pytest.raises(
        ConfigError, match=r"response_mask is a numpy.ndarray of shape \(3, 6\).*as_tensor\(r"
    ):
        ESTIMATORS[name](rewards, mask.numpy())
    with pytest.raises(
        ConfigError, match=r"response_mask is a list: .*the estimator itself, for example rebn\(turn_rewards"
    ):
        ESTIMATORS[name](rewards, mask.tolist())
    if name != "turn_ids_from_mask":
        with pytest.raises(ConfigError, match=r"(token_rewards|values) is a numpy.ndarray of shape \(3, 6\)"):
            ESTIMATORS[name](rewards.numpy(), mask)


def gdpo(rewards, mask, components, **options):
    return reference.gdpo.tensors(
        rewards, mask, group_ids=["a"] * len(mask), reward_components=components, **options
    )


NO_MEMBER = torch.distributed.GroupMember.NON_GROUP_MEMBER
"""What `torch.distributed.new_group` returns on the ranks that are not in the group."""


def nan_in_row_1():
    components = torch.ones(2, 3, 2)
    components[1, 2, 1] = math.nan
    return components


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r, m: reference.rebn.tensors(r, m, turn_ids=[[0, 0, 0]] * 2), "turn_ids is a list"),
        (lambda r, m: reference.rebn.tensors(r[:, 1:], m), r"token_rewards has shape \(2, 2\)"),
        (lambda r, m: reference.rebn.tensors(r[0], m[0]), r"response_mask has shape \(3,\)"),
        (
            lambda r, m: reference.rebn.tensors(r, m, turn_ids=torch.zeros(2, 3)),
            "turn_ids has dtype torch.float32",
        ),
        (lambda r, m: reference.rebn.tensors(r, m, turn_ids=torch.zeros(2, 2).int()), "turn_ids has shape"),
        (lambda r, m: reference.rebn.tensors(r, m, gamma=2.0), "gamma=2.0: expected"),
        (lambda r, m: reference.rebn.tensors(r, m, ddof=3), "ddof=3: expected"),
        (lambda r, m: reference.grpo.tensors(r, m, group_ids=[1, 2, 3]), "group_ids: 3 entries for 2 rows"),
        (
            lambda r, m: reference.rloo.tensors(r, m, group_ids=torch.zeros(2, 1)),
            r"group_ids is .* of shape \(2, 1\)",
        ),
        (lambda r, m: reference.gae.tensors(r, m, values=r[:1]), "values has shape"),
        (lambda r, m: reference.gae.tensors(r, m, values=r / 0), "values: not finite in row 0, turn 0"),
        (lambda r, m: reference.gae.tensors(r, m, values=r, lam=-1.0), "lam=-1.0: expected"),
        (
            lambda r, m: reference.gae.tensors(r, m, values=r, bootstrap=torch.zeros(3)),
            "bootstrap: 3 entries for 2 rows",
        ),
        (lambda r, m: gdpo(r, m, [[[1.0]] * 3] * 2), "reward_components is a list: expected a torch.Tensor"),
        (lambda r, m: gdpo(r, m, r), r"reward_components has shape \(2, 3\): expected \(rows, tokens, comp"),
        (lambda r, m: gdpo(r, m, torch.zeros(2, 2, 1)), r"reward_components has shape \(2, 2\)"),
        (lambda r, m: gdpo(r, m, nan_in_row_1()), "reward_components: not finite in row 1, turn 0"),
        (lambda r, m: gdpo(r, m, torch.ones(2, 3, 2), component_weights=[1.0]), r"\[1\.0\]: expected 2"),
        (lambda r, m: gdpo(r, m, torch.ones(2, 3, 1), component_weights=["a"]), "expected numbers"),
        (lambda r, m: gdpo(r, m, torch.ones(2, 3, 1), component_weights=[math.nan]), "finite numbers"),
        (lambda r, m: reference.rebn.tensors(r, m, None, None, 0.9), r"further arguments by name only"),
        (
            lambda r, m: reference.rebn.tensors(r, m, stats=0),
            "stats: expected ReturnStats, or a function .* not 0",
        ),
        (lambda r, m: reference.rebn.tensors(r, m, stats=(4, 0.5, 1.0)), r"stats: .* not \(4, 0.5, 1.0\)"),
        (lambda r, m: reference.rebn.tensors(r, m, stats="step"), "stats: .* not 'step'"),
        (lambda r, m: reference.rebn([[0.0, 1.0]], stats=[]), r"stats: .* not \[\]"),
        (lambda r, m: reference.rebn.tensors(r, m, stats=lambda own: own.mean), r"stats: .* not 0\.0"),
        (lambda r, m: reference.rebn.tensors(r, m, process_group="gloo"), "process_group: .* not 'gloo'"),
        (
            lambda r, m: reference.rebn.tensors(r, m, process_group=NO_MEMBER),
            "a group that this rank belongs to",
        ),
        (lambda r, m: reference.rebn.tensors(r, m, truncated=[True]), "truncated: 1 entries for 2 rows"),
        (lambda r, m: reference.rebn.tensors(r, m.tolist(), truncated=[True] * 2), "response_mask is a list"),
    ],
)
def test_wrong_arguments_are_rejected(call, message):
    with pytest.raises(ConfigError, match=message):
        call(torch.zeros(2, 3), torch.ones(2, 3))


@pytest.mark.parametrize(
    "flags", [[False, True, False], np.array([0, 1, 0]), torch.tensor([False, True, False])]
)
@pytest.mark.parametrize("name", ["rebn", "grpo", "reinforce", "reinforce_plus_plus_baseline"])
def test_truncated_rows_have_no_part_as_if_their_mask_was_0(name, flags):
    estimator = getattr(reference, name)
    rewards = torch.tensor([[0.0, 1.0, 0.0, 2.0], [0.0, 7.0, 0.0, 0.0], [3.0, 0.0, 5.0, 0.0]])
    mask = torch.tensor([[1, 1, 0, 1], [1, 1, 0, 1], [1, 0, 1, 0]])
    rest = mask.clone()
    rest[1] = 0
    options = {"group_ids": ["a", "a", "a"]} if "group_ids" in estimator.needs else {}
    found = estimator.tensors(rewards, mask, gamma=0.5, truncated=flags, **options)
    wanted = estimator.tensors(rewards, rest, gamma=0.5, **options)
    for field in ("advantages", "returns"):
        torch.testing.assert_close(getattr(found, field), getattr(wanted, field), rtol=0, atol=0)
        assert getattr(found, field)[0].any()
        assert not getattr(found, field)[1].any()
    assert found.stats == wanted.stats
    whole = estimator.tensors(rewards, mask, gamma=0.5, **options)
    assert whole.advantages[1].any()
    assert whole.stats != wanted.stats


def test_a_return_beyond_float32_is_infinite_and_its_advantage_is_not():
    rewards, mask = torch.tensor([[1e40], [-1e40]], dtype=torch.float64), torch.ones(2, 1)
    result = reference.rebn.tensors(rewards, mask)
    assert result.advantages[:, 0].tolist() == [1.0, -1.0]
    assert result.returns[:, 0].tolist() == [math.inf, -math.inf]


@pytest.mark.parametrize(
    "options", [{}, {"weight": "episode"}, {"statistics": "group", "group_ids": [1, 1, 1]}]
)
def test_squared_deviations_that_overflow_are_an_error(options):
    rewards = torch.tensor([[1e200], [-1e200], [0.0]], dtype=torch.float64)
    with pytest.raises(NonFiniteReward, match="rescale the rewards"):
        reference.rebn.tensors(rewards, torch.ones(3, 1), **options)
    with pytest.raises(NonFiniteReward, match="rescale the rewards"):
        reference.grpo.tensors(rewards, torch.ones(3, 1), group_ids=[1, 1, 1])
