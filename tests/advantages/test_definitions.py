"""Every estimator against its definition in plain loops, in both forms, and the properties they share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from gem_core import advantages
from gem_core.advantages import get_estimator
from gem_core.advantages._batch import as_turns
from gem_core.errors import ConfigError
from tests.advantages.builtin import BUILTIN

ROWS = 24
EPS = 1e-8
DTYPES = ("float64", "float32", "bfloat16")
"""Types of the rewards, values, and reward components of a trainer's batch."""


def batch(seed: int = 0) -> dict[str, Any]:
    """Return a ragged batch with every need; all rewards are positive, for maxrl."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 7, ROWS).tolist()
    components = [random.uniform(0, 1, (size, 2)).round(3) for size in sizes]
    return {
        "rewards": [array.sum(1) for array in components],
        "reward_components": components,
        "group_ids": [f"group {row // 4}" for row in range(ROWS - 1)] + ["alone"],
        "env_ids": [f"env {row // 12}" for row in range(ROWS)],
        "agent_ids": [f"agent {row % 2}" for row in range(ROWS)],
        "baselines": random.uniform(0, 2, ROWS).round(3).tolist(),
        "values": [random.uniform(-1, 1, size).round(3) for size in sizes],
        "lengths": [random.integers(1, 6, size) for size in sizes],
        "state_keys": [[f"state {key}" for key in random.integers(0, 3, size)] for size in sizes],
    }


def returns(rewards: Any, gamma: float) -> list[float]:
    return [sum(gamma ** (k - t) * rewards[k] for k in range(t, len(rewards))) for t in range(len(rewards))]


def mean(values: Any, weights: Any = None) -> float:
    weights = [1] * len(values) if weights is None else weights
    return math.fsum(v * w for v, w in zip(values, weights, strict=True)) / math.fsum(weights)


def scaled(value: float, values: Any, weights: Any = None) -> float:
    """Return (value - mean) / (std + eps), 0 if all values are equal."""
    center = mean(values, weights)
    std = math.sqrt(mean([(v - center) ** 2 for v in values], weights))
    return (value - center) / (std + EPS) if std > 1e-6 * max(1, abs(center)) else 0.0


def defined(name: str, data: dict[str, Any], gamma: float, **options: Any) -> list[list[float]]:
    """Return the advantages by the definition, without any code of gem_core."""
    rewards, groups = data["rewards"], data["group_ids"]
    gs = [returns(episode, gamma) for episode in rewards]
    scores = [episode[0] for episode in gs]
    every = [g for episode in gs for g in episode]
    tokens = [n for episode in data["lengths"] for n in episode]
    rows = range(len(rewards))

    def peers(row: int, ids: Any = groups, itself: bool = True) -> list[int]:
        return [other for other in rows if ids[other] == ids[row] and (itself or other != row)]

    def group_of(row: int, values: Any = scores) -> list[float]:
        return [values[other] for other in peers(row)]

    def repeated(values: Any) -> list[list[float]]:
        return [[value] * len(rewards[row]) for row, value in enumerate(values)]

    if name == "reinforce":
        return gs
    if name == "rebn":
        keys = {"env": data["env_ids"], "group": groups}.get(
            options.get("statistics"), ["all"] * len(rewards)
        )
        result = []
        for row in rows:
            pool = [(g, 1 / len(gs[o])) for o in peers(row, keys) for g in gs[o]]
            weights = [w for _, w in pool] if options.get("weight") == "episode" else None
            result.append([scaled(g, [x for x, _ in pool], weights) for g in gs[row]])
        return result
    if name == "reinforce_plus_plus":
        return [[scaled(g, every, tokens) for g in episode] for episode in gs]
    if name == "grpo":
        return repeated([scaled(scores[row], group_of(row)) for row in rows])
    if name == "dr_grpo":
        return repeated([scores[row] - mean(group_of(row)) for row in rows])
    if name == "rloo":
        others = [[scores[other] for other in peers(row, itself=False)] for row in rows]
        return repeated([scores[row] - mean(others[row]) if others[row] else 0.0 for row in rows])
    if name == "opo":
        sizes = [sum(episode) for episode in data["lengths"]]
        return repeated([scores[row] - mean(group_of(row), group_of(row, sizes)) for row in rows])
    if name == "maxrl":
        return repeated([scores[row] / mean(group_of(row)) - 1 for row in rows])
    if name == "reinforce_plus_plus_baseline":
        centered = repeated([scores[row] - mean(group_of(row)) for row in rows])
        flat = [value for episode in centered for value in episode]
        return [[scaled(value, flat, tokens) for value in episode] for episode in centered]
    if name == "gdpo":
        sums = [0.0] * len(rewards)
        for index in range(2):
            parts = [returns(episode[:, index], gamma)[0] for episode in data["reward_components"]]
            weight = options.get("component_weights", [1, 1])[index]
            sums = [sums[row] + weight * scaled(parts[row], group_of(row, parts)) for row in rows]
        return repeated([scaled(sums[row], sums) for row in rows])
    if name == "mt_grpo":
        result = []
        for row in rows:
            own: list[float] = []
            for turn in range(len(rewards[row])):
                alive = [other for other in peers(row) if len(rewards[other]) > turn]
                if options.get("compared") == "return":
                    own.append(gs[row][turn] - sum(gs[other][turn] for other in alive) / len(peers(row)))
                else:
                    own.append(scaled(rewards[row][turn], [rewards[other][turn] for other in alive]))
            result.append(own if options.get("compared") == "return" else returns(own, gamma))
        return result
    if name == "gigpo":
        totals = [sum(episode) for episode in rewards]

        def relative(value: float, values: list[float]) -> float:
            return value - mean(values) if options.get("normalization") == "mean" else scaled(value, values)

        result = []
        for row in rows:
            episode = relative(totals[row], group_of(row, totals))
            result.append([])
            for turn, key in enumerate(data["state_keys"][row]):
                pool = [
                    gs[other][k]
                    for other in peers(row)
                    for k, other_key in enumerate(data["state_keys"][other])
                    if other_key == key
                ]
                weight = options.get("step_weight", 1.0)
                result[-1].append(episode + weight * relative(gs[row][turn], pool))
        return result
    if name == "remax":
        return [[g - data["baselines"][row] for g in gs[row]] for row in rows]
    if name == "rae":
        totals = [sum(episode) for episode in rewards]
        known = options.get("role_baselines")
        result = []
        for row in rows:
            others = [totals[other] for other in peers(row, data["agent_ids"], itself=False)]
            base = mean(others) if known is None else known.get(data["agent_ids"][row], 0.0)
            turns = len(rewards[row])
            result.append([gamma ** (turns - 1 - t) * (totals[row] - base) for t in range(turns)])
        return result
    assert name == "gae", f"write the definition of {name!r} in plain loops here, without code of gem_core"
    result = []
    for row in rows:
        v = [*data["values"][row], 0.0]
        deltas = [r + gamma * v[t + 1] - v[t] for t, r in enumerate(rewards[row])]
        result.append(returns(deltas, gamma * options.get("lam", 0.95)))
    return result


CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in BUILTIN),
    ("rebn", {"statistics": "env"}),
    ("rebn", {"statistics": "group", "weight": "episode"}),
    ("rebn", {"weight": "episode"}),
    ("mt_grpo", {"compared": "return"}),
    ("gigpo", {"normalization": "mean", "step_weight": 0.5}),
    ("gdpo", {"component_weights": [1.0, 0.25]}),
    ("rae", {"role_baselines": {"agent 0": 0.5}}),
    ("gae", {"lam": 0.5}),
]


def needs_of(name: str, data: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    return {need: data[need] for need in get_estimator(name).needs_with(options)}


def numpy_form(name: str, data: dict[str, Any], gamma: float = 1.0, **options: Any) -> Any:
    needs = needs_of(name, data, options)
    return get_estimator(name)(data["rewards"], gamma=gamma, **needs, **options)


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_the_numpy_form_is_the_definition(name: str, options: dict[str, Any], gamma: float) -> None:
    data = batch()
    results = numpy_form(name, data, gamma, **options)
    for result, expected in zip(results, defined(name, data, gamma, **options), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-9)


def on_tokens(
    data: dict[str, Any], masked: set[int], device: str = "cpu", dtype: str = "float64"
) -> dict[str, Any]:
    """Return the batch as tensors; each turn is a context token and its response tokens."""
    torch = pytest.importorskip("torch", reason="needs the extra 'train'")
    width = 1 + max(int(sum(lengths)) + len(lengths) for lengths in data["lengths"])
    rewards, values = torch.zeros(ROWS, width, dtype=torch.float64), torch.full((ROWS, width), 7.0).double()
    components = torch.zeros(ROWS, width, 2, dtype=torch.float64)
    ids = torch.full((ROWS, width), -1)
    for row, lengths in enumerate(data["lengths"]):
        at = 0
        for turn, length in enumerate(lengths.tolist()):
            ids[row, at + 1 : at + 1 + length] = turn
            rewards[row, at + length] = float(data["rewards"][row][turn])
            components[row, at + length] = torch.from_numpy(data["reward_components"][row][turn])
            values[row, at + 1] = float(data["values"][row][turn])
            at += 1 + length
    for row in masked:
        ids[row] = -1
    floats = {"rewards": rewards, "values": values, "reward_components": components}
    tensors = {name: tensor.to(device, getattr(torch, dtype)) for name, tensor in floats.items()}
    return {**data, "lengths": None, "ids": ids.to(device), **tensors}


def without(data: dict[str, Any], rows: set[int]) -> dict[str, Any]:
    return {name: [item for row, item in enumerate(items) if row not in rows] for name, items in data.items()}


def compare_with_tensors(name: str, options: dict[str, Any], device: str, dtype: str = "float32") -> None:
    """Compare both forms on numbers that the dtype can represent."""
    data, masked = rounded(batch(1), dtype), {3, 10}
    tokens = on_tokens(data, masked, device, dtype)
    result = get_estimator(name).tensors(
        tokens["rewards"],
        tokens["ids"] >= 0,
        turn_ids=tokens["ids"],
        gamma=0.9,
        **needs_of(name, tokens, options),
        **options,
    )
    kept = without(data, masked)
    expected = iter(numpy_form(name, kept, 0.9, **options))
    size = max(1.0, float(result.advantages.abs().max()))
    for row in range(ROWS):
        turns = [] if row in masked else next(expected)
        ids = tokens["ids"][row].cpu().numpy()
        spread = np.append(turns, 0.0)[ids]
        np.testing.assert_allclose(result.advantages[row].cpu().numpy(), spread, rtol=0, atol=1e-6 * size)


def rounded(data: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Return the data with the token numbers rounded to a dtype of torch."""
    torch = pytest.importorskip("torch", reason="needs the extra 'train'")

    def to_dtype(array: Any) -> Any:
        return torch.as_tensor(array).to(getattr(torch, dtype)).double().numpy()

    return data | {key: list(map(to_dtype, data[key])) for key in ("rewards", "reward_components", "values")}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "options"), CASES)
def test_the_torch_form_equals_the_numpy_form_with_masked_rows(
    name: str, options: dict[str, Any], dtype: str
) -> None:
    compare_with_tensors(name, options, "cpu", dtype)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_the_torch_form_equals_the_numpy_form_on_cuda(name: str, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra 'train'")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    for dtype in DTYPES:
        compare_with_tensors(name, options, "cuda", dtype)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("name", "options"), CASES)
def test_advantages_do_not_depend_on_the_rows(name: str, options: dict[str, Any], seed: int) -> None:
    """Cut the episodes into random rows, shuffle these, and put pads between them."""
    torch = pytest.importorskip("torch", reason="needs the extra 'train'")
    from gem_core.advantages._rows import by_episode

    data, random = batch(seed), np.random.default_rng(seed)
    rows: list[tuple[int, list[int]]] = []
    for episode in range(ROWS):
        turns = random.permutation(len(data["rewards"][episode])).tolist()
        cuts = np.flatnonzero(random.random(len(turns) - 1) < 0.4) + 1
        rows += [(episode, list(part)) for part in np.split(turns, cuts)]
    rows += [(episode, []) for episode in random.integers(0, ROWS, 5)]
    rows = [rows[at] for at in random.permutation(len(rows))]
    assert len(rows) > ROWS + 5
    assert max(len(turns) for _, turns in rows) > 1

    width = 2 + max(sum(int(data["lengths"][episode][turn]) + 1 for turn in turns) for episode, turns in rows)
    rewards = torch.zeros(len(rows), width, dtype=torch.float64)
    values, components = torch.zeros_like(rewards), torch.zeros(len(rows), width, 2, dtype=torch.float64)
    turn_ids = torch.full((len(rows), width), -1)
    per_row = {need: [] for need in ("group_ids", "env_ids", "agent_ids", "baselines", "state_keys")}
    for at, (episode, turns) in enumerate(rows):
        start = 2
        for index, turn in enumerate(turns):
            end = start + int(data["lengths"][episode][turn])
            turn_ids[at, start:end] = index
            rewards[at, end - 1] = float(data["rewards"][episode][turn])
            values[at, start] = float(data["values"][episode][turn])
            components[at, end - 1] = torch.from_numpy(data["reward_components"][episode][turn])
            start = end + int(random.integers(0, 2))  # 0: the next turn is adjacent
        for need, entries in per_row.items():
            value = data[need][episode]
            entries.append([value[turn] for turn in turns] if need == "state_keys" else value)
    given = {**per_row, "values": values, "reward_components": components}
    needs = [need for need in get_estimator(name).needs_with(options) if need != "lengths"]
    result = by_episode(
        get_estimator(name),
        rewards,
        turn_ids >= 0,
        episodes=[episode for episode, _ in rows],
        turns=[turns for _, turns in rows],
        turn_ids=turn_ids,
        gamma=0.9,
        **{need: given[need] for need in needs},
        **options,
    )
    expected = numpy_form(name, data, 0.9, **options)
    for at, (episode, turns) in enumerate(rows):
        for index, turn in enumerate(turns):
            found = result.advantages[at][turn_ids[at] == index]
            assert found.tolist() == pytest.approx([expected[episode][turn]] * len(found), abs=1e-5)
    assert not result.advantages[turn_ids < 0].any()


@pytest.mark.parametrize(("name", "options"), CASES)
def test_the_order_of_the_episodes_does_not_matter(name: str, options: dict[str, Any]) -> None:
    data = batch(3)
    order = np.random.default_rng(0).permutation(ROWS).tolist()
    plain = numpy_form(name, data, 0.9, **options)
    shuffled = numpy_form(
        name, {key: [items[at] for at in order] for key, items in data.items()}, 0.9, **options
    )
    for at, result in zip(order, shuffled, strict=True):
        np.testing.assert_allclose(result, plain[at], atol=1e-9)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_masked_truncated_episodes_get_0_and_influence_no_other(name: str, options: dict[str, Any]) -> None:
    data, cut = batch(4), {1, 5, 20}
    results = numpy_form(name, data, 0.9, truncated=[row in cut for row in range(ROWS)], **options)
    others = iter(numpy_form(name, without(data, cut), 0.9, **options))
    for row, result in enumerate(results):
        expected = np.zeros(len(data["rewards"][row])) if row in cut else next(others)
        np.testing.assert_allclose(result, expected, atol=1e-12)


GROUPED = [
    "dr_grpo",
    "gdpo",
    "gigpo",
    "grpo",
    "maxrl",
    "mt_grpo",
    "opo",
    "reinforce_plus_plus_baseline",
    "rloo",
]


@pytest.mark.parametrize("name", GROUPED)
def test_groups_of_one_and_of_equal_rewards_get_0(name: str) -> None:
    data = batch(5)
    alone = {
        **data,
        "group_ids": list(range(ROWS)),
        "state_keys": [range(len(k)) for k in data["state_keys"]],
    }
    assert [np.abs(result).max() < 1e-9 for result in numpy_form(name, alone, 0.9)] == [True] * ROWS
    equal = {key: [items[0]] * ROWS for key, items in data.items()}
    equal["state_keys"] = [range(len(data["rewards"][0]))] * ROWS
    assert [np.abs(result).max() < 1e-9 for result in numpy_form(name, equal, 0.9)] == [True] * ROWS


NORMALIZED = [
    pytest.param(name, options, id=f"{name} {options}")
    for name, options in CASES
    if "min_std" in get_estimator(name).options
    and options.get("compared") != "return"
    and options.get("normalization") != "mean"
]


@pytest.mark.parametrize(("name", "options"), NORMALIZED)
def test_the_options_of_the_standard_deviation_have_an_effect(name: str, options: dict[str, Any]) -> None:
    data = batch(8)

    def largest(**further: Any) -> float:
        result = numpy_form(name, data, 0.9, **options, **further)
        return float(max(np.abs(episode).max() for episode in result))

    assert largest(min_std=1e6) == 0.0
    assert 0.0 < largest(eps=10.0, min_std=0.0) < largest(eps=1.0, min_std=0.0) < largest()
    assert largest(ddof=1) != pytest.approx(largest(ddof=0), rel=1e-6)
    assert largest(ddof=0) == largest()


def test_a_group_that_failed_completely_gets_0_beside_one_that_did_not() -> None:
    rewards, groups = [[0.0, 0.0], [0.0], [1.0], [0.0]], ["failed", "failed", "mixed", "mixed"]
    wanted = [[0.0, 0.0], [0.0], [1.0], [-1.0]]
    with np.errstate(all="raise"):
        found = advantages.maxrl(rewards, group_ids=groups)
    assert [episode_values.tolist() for episode_values in found] == wanted
    torch = pytest.importorskip("torch", reason="needs the extra 'train'")

    table = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    result = advantages.maxrl.tensors(table, torch.ones(4, 2), group_ids=groups)
    assert result.advantages.tolist() == [[0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [-1.0, -1.0]]


@pytest.mark.parametrize("name", ["dr_grpo", "grpo", "rloo"])
def test_the_advantages_of_a_group_sum_to_0(name: str) -> None:
    data = batch(6)
    first = [float(result[0]) for result in numpy_form(name, data)]
    for group in set(data["group_ids"]):
        assert math.fsum(
            a for a, g in zip(first, data["group_ids"], strict=True) if g == group
        ) == pytest.approx(0, abs=1e-9)


def test_small_cases_by_hand() -> None:
    rewards, pair = [[1.0, 0.0], [0.0]], ["a", "a"]
    assert advantages.mt_grpo(rewards, group_ids=pair, compared="return")[0].tolist() == [0.5, 0.0]
    np.testing.assert_allclose(advantages.mt_grpo(rewards, group_ids=pair)[0], [1.0, 0.0], atol=1e-6)
    assert advantages.opo(rewards, group_ids=pair, lengths=[[1, 2], [1]])[0].tolist() == [0.25, 0.25]
    assert advantages.maxrl(rewards, group_ids=pair)[1].tolist() == [-1.0]
    assert advantages.dr_grpo(rewards, group_ids=pair)[1].tolist() == [-0.5]
    assert advantages.remax(rewards, baselines=[0.25, 0.25])[0].tolist() == [0.75, -0.25]
    assert advantages.rae(rewards, agent_ids=["x", "y"])[0].tolist() == [0.0, 0.0]
    assert advantages.update_role_baselines({"x": 1.0}, rewards, ["x", "y"], decay=0.5) == {
        "x": 1.0,
        "y": 0.0,
    }


BROKEN_COMPONENTS = [[[1.0, 2.0]], [[3.0, 4.0], [5.0, math.nan]]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: advantages.rebn([[1.0]], statistics="env"), "statistics='env' needs env_ids"),
        (lambda: advantages.rebn([[1.0]], weight="token"), "weight='token': expected"),
        (
            lambda: advantages.rebn([[1.0]], statistics="env", env_ids=["a"], stats=advantages.ReturnStats()),
            "cannot be combined with stats",
        ),
        (lambda: advantages.opo([[1.0]], group_ids=["a"]), "lengths: missing"),
        (lambda: advantages.opo([[1.0]], group_ids=["a"], lengths=[[0]]), "at least one response token"),
        (lambda: advantages.maxrl([[-1.0]], group_ids=["a"]), "maxrl: episode 0 has the return -1.0"),
        (
            lambda: advantages.gigpo([[1.0]], group_ids=["a"], state_keys=[["s", "t"]]),
            "state_keys: episode 0: 2 entries",
        ),
        (
            lambda: advantages.gdpo([[1.0]], group_ids=["a"], reward_components=[[1.0]]),
            "reward_components: expected one array of shape",
        ),
        (lambda: advantages.remax([[1.0]], baselines=[math.inf]), "baselines: expected a sequence of finite"),
        (
            lambda: advantages.gdpo([[1.0]], group_ids=["a"], reward_components=[]),
            "reward_components: 0 entries for 1 episodes",
        ),
        (
            lambda: advantages.gdpo(
                [[1.0], [2.0, 3.0]], group_ids=["a", "a"], reward_components=BROKEN_COMPONENTS
            ),
            "reward_components: not finite in episode 1, turn 1",
        ),
        (lambda: advantages.grpo([[1.0]], group_ids=["a"], truncated=[]), "truncated: 0 entries for 1"),
        (lambda: advantages.rebn(as_turns([[1.0]]), truncated=[True]), "truncated: expected None with flat"),
    ],
)
def test_wrong_arguments(call: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()
