"""Two gloo ranks with half a batch each compute the same as one process with the whole batch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

import torch.multiprocessing as mp  # noqa: E402

from gem_core.advantages import tensors  # noqa: E402
from gem_core.advantages.stats import ReturnStats  # noqa: E402
from gem_core.errors import GemError  # noqa: E402

WORLD = 2


def whole_batch():
    generator = torch.Generator().manual_seed(0)
    rewards = 1e3 + torch.randn(8, 40, generator=generator)
    mask = torch.rand(8, 10, generator=generator).gt(0.4).repeat_interleave(4, 1)
    mask[0] = False  # rank 0 has fewer turns
    return rewards, mask


def worker(rank, folder):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    try:
        group = dist.group.WORLD
        rewards, mask = (tensor.chunk(WORLD)[rank] for tensor in whole_batch())
        results = {"merged": tensors.rebn(rewards, mask, gamma=0.9, ddof=1, process_group=group)}
        collected = ReturnStats(10 + rank, float(rank), 50.0)
        results["collected"] = tensors.rebn(rewards, mask, stats=collected, process_group=group).stats
        results["no turns here"] = tensors.rebn(rewards, mask & bool(rank), process_group=group).stats
        spoilt = rewards.clone()
        if rank == 1:
            spoilt[-1, -1] = float("nan")
            mask[-1, -1] = True
        try:
            tensors.rebn(spoilt, mask, process_group=group)
        except GemError as error:
            results["error"] = f"{type(error).__name__}: {error}"
        try:
            tensors.rebn(rewards, mask.numpy() if rank else mask, process_group=group)
        except GemError as error:
            results["no tensor"] = f"{type(error).__name__}: {error}"
        torch.save(results, f"{folder}/{rank}.pt")
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gloo")
    mp.start_processes(worker, args=(str(folder),), nprocs=WORLD, start_method="fork")  # torch is imported
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(WORLD)]


def test_two_ranks_equal_one_process(ranks):
    one = tensors.rebn(*whole_batch(), gamma=0.9, ddof=1)
    both = torch.cat([rank["merged"].advantages for rank in ranks])
    torch.testing.assert_close(both, one.advantages, rtol=0, atol=1e-6)
    assert ranks[0]["merged"].stats == ranks[1]["merged"].stats
    assert ranks[0]["merged"].stats.to_wire() == pytest.approx(one.stats.to_wire(), rel=1e-12)


def test_statistics_of_the_collected_turns_are_merged_in_their_place(ranks):
    wanted = ReturnStats(10, 0.0, 50.0).merge(ReturnStats(11, 1.0, 50.0))
    assert ranks[0]["collected"] == ranks[1]["collected"] == wanted


def test_a_rank_without_turns_participates(ranks):
    rewards, mask = whole_batch()
    wanted = tensors.rebn(rewards[4:], mask[4:]).stats
    assert ranks[0]["no turns here"] == ranks[1]["no turns here"] == wanted


def test_a_failure_on_one_rank_stops_all(ranks):
    assert ranks[0]["error"].startswith("NonFiniteReward: rank 1 ")
    assert ranks[1]["error"].startswith("NonFiniteReward: row 3, turn ")
    assert ranks[0]["no tensor"].startswith("NonFiniteReward: rank 1 ")
    assert ranks[1]["no tensor"].startswith("ConfigError: response_mask is a numpy.ndarray")
