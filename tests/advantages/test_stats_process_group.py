"""Two gloo ranks with parts of a batch compute the same as one process with the whole batch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

import torch.multiprocessing as mp  # noqa: E402

from gem_core import advantages  # noqa: E402
from gem_core.advantages import (  # noqa: E402
    Estimator,
    ReturnStats,
)
from gem_core.errors import GemError  # noqa: E402

WORLD = 2


def whole_batch():
    generator = torch.Generator().manual_seed(0)
    rewards = 1e3 + torch.randn(8, 40, generator=generator)
    mask = torch.rand(8, 10, generator=generator).gt(0.4).repeat_interleave(4, 1)
    mask[0] = False  # rank 0 has fewer turns
    return rewards, mask


SPLIT = [3, 5]
"""Rows of each rank, so that both groups and an environment are on both ranks."""
GROUPS = ["a", "b", "a", "b", "a", "b", "b", "a"]
COMMON = {"gamma": 0.9}
CALLS = {
    "grpo": {"group_ids": GROUPS},
    "dr_grpo": {"group_ids": GROUPS},
    "rloo": {"group_ids": torch.tensor([1, 2, 1, 2, 1, 2, 2, 1])},
    "opo": {"group_ids": GROUPS},
    "maxrl": {"group_ids": GROUPS},
    "mt_grpo": {"group_ids": GROUPS},
    "gigpo": {"group_ids": GROUPS, "state_keys": [["s", "t", "u", "v"]] * 8},
    "gdpo": {"group_ids": GROUPS, "reward_components": torch.rand(8, 40, 2, generator=torch.manual_seed(1))},
    "rae": {"agent_ids": [("game", group) for group in GROUPS]},
    "remax": {"baselines": [0.5 * row for row in range(8)]},
    "gae": {"values": torch.rand(8, 40, generator=torch.manual_seed(2)), "lam": 0.5},
    "reinforce": {},
    "reinforce_plus_plus": {"ddof": 1},
    "reinforce_plus_plus_baseline": {"group_ids": GROUPS},
    "rebn": {"statistics": "env", "env_ids": GROUPS},
    "rebn, by group": {"statistics": "group", "group_ids": GROUPS, "weight": "episode"},
    "rebn, by episode": {"weight": "episode"},
}
"""Arguments of each estimator for the whole batch of four turns per row."""
ONE_RANK = ("reinforce_plus_plus", "grpo", "rebn, by group")
"""Estimators that are also called with a group of one rank."""


def four_turns():
    rewards = torch.rand(8, 40, generator=torch.manual_seed(3))
    mask = torch.ones(8, 40, dtype=torch.bool)
    mask[:, ::10] = False
    mask[5] = False  # padding
    return rewards, mask


def part_of(value, rank):
    """Return the rows of a rank."""
    if isinstance(value, list | torch.Tensor) and len(value) == sum(SPLIT):
        return value[sum(SPLIT[:rank]) :][: SPLIT[rank]]
    return value


def run(name, rank=None, **options):
    arguments = {**COMMON, **CALLS[name], **options}
    inputs = four_turns()
    if rank is not None:
        arguments = {key: part_of(value, rank) for key, value in arguments.items()}
        inputs = [part_of(tensor, rank) for tensor in inputs]
    return getattr(advantages, name.partition(",")[0]).tensors(*inputs, **arguments)


def listed(turn_rewards, *, group_ids, gamma=1.0):
    """An estimator that takes lists: the number of episodes of the group, minus the first reward."""
    return [
        [group_ids.count(group) - gamma * rewards[0]] * len(rewards)
        for rewards, group in zip(turn_rewards, group_ids, strict=True)
    ]


def worker(rank, folder):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    try:
        group = dist.group.WORLD
        rewards, mask = (tensor.chunk(WORLD)[rank] for tensor in whole_batch())
        results = {"merged": advantages.rebn.tensors(rewards, mask, gamma=0.9, ddof=1, process_group=group)}
        collected = ReturnStats(10 + rank, float(rank), 50.0)
        results["collected"] = advantages.rebn.tensors(
            rewards, mask, stats=collected, process_group=group
        ).stats
        results["no turns here"] = advantages.rebn.tensors(
            rewards, mask & bool(rank), process_group=group
        ).stats
        spoilt = rewards.clone()
        if rank == 1:
            spoilt[-1, -1] = float("nan")
            mask[-1, -1] = True
        try:
            advantages.rebn.tensors(spoilt, mask, process_group=group)
        except GemError as error:
            results["error"] = f"{type(error).__name__}: {error}"
        try:
            advantages.rebn.tensors(rewards, mask.numpy() if rank else mask, process_group=group)
        except GemError as error:
            results["no tensor"] = f"{type(error).__name__}: {error}"
        for name in CALLS:
            results[name] = run(name, rank, process_group=group)
        alone = [dist.new_group([member]) for member in range(WORLD)][rank]
        for name in ONE_RANK:
            results[f"{name} alone"] = run(name, rank, process_group=alone)
        mine = [part_of(tensor, rank) for tensor in four_turns()]
        results["listed"] = Estimator(listed).tensors(
            *mine, group_ids=part_of(GROUPS, rank), process_group=group
        )
        wide = torch.rand(SPLIT[rank], 40, 2 + rank, generator=torch.manual_seed(4))
        wrong = {
            "other options": {"gamma": 0.5 + rank / 4},
            "an id is missing": {"group_ids": [None, *"abcd"] if rank else [*"abc"]},
            "too few ids": {"group_ids": ["a"] if rank else [*"abc"]},
            "statistics": {"stats": ReturnStats(2, 0.0, 1.0)},
        }
        for name, options in wrong.items():
            try:
                run("reinforce_plus_plus_baseline", rank, process_group=group, **options)
            except GemError as error:
                results[name] = f"{type(error).__name__}: {error}"
        try:
            advantages.gdpo.tensors(
                *mine, group_ids=part_of(GROUPS, rank), reward_components=wide, process_group=group
            )
        except GemError as error:
            results["components"] = f"{type(error).__name__}: {error}"
        try:
            advantages.rebn.tensors(*mine, process_group=group, **({"env_ids": [*"abcde"]} if rank else {}))
        except GemError as error:
            results["ids on one rank"] = f"{type(error).__name__}: {error}"
        torch.save(results, f"{folder}/{rank}.pt")
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gloo")
    mp.start_processes(worker, args=(str(folder),), nprocs=WORLD, start_method="fork")  # torch is imported
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(WORLD)]


def test_two_ranks_equal_one_process(ranks):
    one = advantages.rebn.tensors(*whole_batch(), gamma=0.9, ddof=1)
    both = torch.cat([rank["merged"].advantages for rank in ranks])
    torch.testing.assert_close(both, one.advantages, rtol=0, atol=1e-6)
    assert ranks[0]["merged"].stats == ranks[1]["merged"].stats
    assert ranks[0]["merged"].stats.to_wire() == pytest.approx(one.stats.to_wire(), rel=1e-12)


def test_statistics_of_the_collected_turns_are_merged_in_their_place(ranks):
    wanted = ReturnStats(10, 0.0, 50.0).merge(ReturnStats(11, 1.0, 50.0))
    assert ranks[0]["collected"] == ranks[1]["collected"] == wanted


def test_a_rank_without_turns_participates(ranks):
    rewards, mask = whole_batch()
    wanted = advantages.rebn.tensors(rewards[4:], mask[4:]).stats
    assert ranks[0]["no turns here"] == ranks[1]["no turns here"] == wanted


def test_a_failure_on_one_rank_stops_all(ranks):
    assert ranks[0]["error"].startswith("NonFiniteReward: rank 1 ")
    assert ranks[1]["error"].startswith("NonFiniteReward: row 3, turn ")
    assert ranks[0]["no tensor"].startswith("NonFiniteReward: rank 1 ")
    assert ranks[1]["no tensor"].startswith("ConfigError: response_mask is a numpy.ndarray")


@pytest.mark.parametrize("name", CALLS)
def test_groups_that_are_split_over_ranks_equal_one_process(ranks, name):
    one = run(name)
    for field in ("advantages", "returns"):
        both = torch.cat([getattr(rank[name], field) for rank in ranks])
        assert both.any()
        torch.testing.assert_close(both, getattr(one, field), rtol=0, atol=1e-6)
    local = torch.cat([run(name, rank).advantages for rank in range(WORLD)])
    alone = name in ("reinforce", "gae", "remax")
    assert torch.allclose(local, one.advantages, atol=1e-3) == alone  # the ranks need each other


@pytest.mark.parametrize("name", ONE_RANK)
def test_a_group_of_some_ranks_does_not_wait_for_the_others(ranks, name):
    for rank in range(WORLD):
        found, wanted = ranks[rank][f"{name} alone"], run(name, rank)
        torch.testing.assert_close(found.advantages, wanted.advantages, rtol=0, atol=1e-6)
        assert found.advantages.any()
        assert found.stats.to_wire() == pytest.approx(wanted.stats.to_wire())


def test_an_estimator_of_lists_sees_the_episodes_of_all_ranks(ranks):
    rewards, mask = four_turns()
    one = Estimator(listed).tensors(rewards, mask, group_ids=GROUPS)
    torch.testing.assert_close(torch.cat([rank["listed"].advantages for rank in ranks]), one.advantages)
    first = rewards[0, 1:11].double().sum()
    assert one.advantages[0, 1] == pytest.approx(4 - float(first), abs=1e-6)
    assert one.advantages[1, 1] == pytest.approx(3 - float(rewards[1, 1:11].double().sum()), abs=1e-6)


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        (
            "other options",
            ["ranks 0 and 1 of the process group differ", "ranks 0 and 1 of the process group differ"],
        ),
        ("an id is missing", ["rank 1 of the process group could not", "row 0 has the id None"]),
        ("too few ids", ["rank 1 of the process group could not", "group_ids: 1 entries for 5 rows"]),
        ("statistics", ["stats cannot be combined with ids", "stats cannot be combined with ids"]),
        ("ids on one rank", ["ranks 0 and 1 of the process group differ"] * 2),
        ("components", ["reward_components: the ranks of the process group have different numbers"] * 2),
    ],
)
def test_a_mistake_on_one_rank_is_an_error_on_all(ranks, name, messages):
    for rank, message in zip(ranks, messages, strict=True):
        assert message in rank[name]
