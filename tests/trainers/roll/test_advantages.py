"""Advantages of a batch of ROLL, from the estimator to the loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gem_roll._advantages import compute_advantages, played_rows
from gem_roll._rows import object_array
from roll.distributed.scheduler.protocol import DataProto
from tensordict import TensorDict

from gem_core.errors import ConfigError
from gem_core.rollout._estimator_inputs import EpisodeTurns
from gem_core.trainers import read_estimator
from gem_core.trainers._failures import pack_outline, unpack_outline
from tests.trainers.evidence import oracle
from tests.trainers.kit.test_failures import EPISODE, FAILED


def batch(rewards: list[list[float]], *, rows: str, own: bool) -> Any:
    """Return rows with two tokens per turn; without `own` they lack the fields of our env managers."""
    packed: list[tuple[int, list[float], list[int]]] = []
    for index, turn_rewards in enumerate(rewards):
        if rows == "turn":
            packed += [(index, [reward], [turn]) for turn, reward in enumerate(turn_rewards)]
        elif rows == "joined" and len(turn_rewards) == 3:  # turn 2 continues turn 0
            packed += [(index, [turn_rewards[turn] for turn in turns], turns) for turns in ([0, 2], [1])]
        else:
            packed.append((index, turn_rewards, list(range(len(turn_rewards)))))
    length = 3 * max(len(turn_rewards) for _, turn_rewards, _ in packed) + 1
    mask = torch.zeros(len(packed), length, dtype=torch.bool)
    turn_ids = torch.full((len(packed), length), -1)
    scores = torch.zeros(len(packed), length)
    for row, (_, turn_rewards, _) in enumerate(packed):
        for turn, reward in enumerate(turn_rewards):
            mask[row, 3 * turn + 1 : 3 * turn + 3] = True
            turn_ids[row, 3 * turn + 1 : 3 * turn + 3] = turn
            scores[row, 3 * turn + 2] = reward
    if not own:  # ROLL puts the sum of all rewards on the last token
        scores = torch.zeros_like(scores)
        scores[:, -1] = torch.tensor([sum(turn_rewards) for _, turn_rewards, _ in packed])
    tensors = {"response_mask": mask, "scores": scores} | ({"gem_turn_ids": turn_ids} if own else {})
    columns = {
        "traj_id": object_array([f"t{number}" for number, _, _ in packed]),
        "traj_group_id": object_array([f"g{number // 2}" for number, _, _ in packed]),
        "step_scores": object_array([list(r) if rows == "episode" else sum(r) for _, r, _ in packed]),
    }
    if rows == "turn":
        columns["step"] = object_array([turns[0] for _, _, turns in packed])
    elif rows == "joined":
        columns["step"] = object_array([int(turns == [1]) for _, _, turns in packed])
        columns["gem_turns"] = object_array([turns for _, _, turns in packed])
    return DataProto(batch=TensorDict(tensors, batch_size=len(packed)), non_tensor_batch=columns)


REWARDS = [[0.5, 0.0, 1.0], [0.25], [0.0, -1.0], [2.0, 0.125]]


@pytest.mark.parametrize(
    ("rows", "own"),
    [("episode", False), ("turn", False), ("episode", True), ("turn", True), ("joined", True)],
)
def test_rebn_of_every_kind_of_rows(rows: str, own: bool) -> None:
    data = batch(REWARDS, rows=rows, own=own)
    result = compute_advantages(data, read_estimator("rebn", {}, gamma=0.9))
    wanted = [a for episode in oracle(REWARDS, 0.9) for a in episode]
    if rows == "joined":
        wanted[1], wanted[2] = wanted[2], wanted[1]
    mask = data.batch["response_mask"][:, 1:]
    assert result.advantages[mask].reshape(-1, 2).tolist() == [
        pytest.approx([a, a], abs=1e-5) for a in wanted
    ]
    assert not result.advantages[~mask].any()
    assert result.stats.count == 8


@pytest.mark.parametrize("rows", ["episode", "turn", "joined"])
def test_the_groups_are_rolls(rows: str) -> None:
    result = compute_advantages(batch(REWARDS, rows=rows, own=True), read_estimator("gem_rloo", {}))
    scores = [sum(episode) for episode in REWARDS]
    others = [scores[1], scores[0], scores[3], scores[2]]
    wanted = {round(score - other, 4) for score, other in zip(scores, others, strict=True)}
    assert {round(value, 4) for value in result.advantages.flatten().tolist()} - {0.0} == wanted


def test_rows_that_say_nothing_about_turns_are_rejected() -> None:
    data = batch(REWARDS, rows="episode", own=False)
    scores = data.non_tensor_batch["step_scores"]
    scores[2] = [0.0]
    with pytest.raises(ConfigError, match="row 2 has 2 runs of response tokens, but 1 step_scores"):
        compute_advantages(data, read_estimator("rebn", {}, gamma=0.9))
    del data["step_scores"]
    with pytest.raises(ConfigError, match="do not identify turns"):
        compute_advantages(data, read_estimator("rebn", {}, gamma=0.9))


@pytest.mark.parametrize("rows", ["episode", "turn"])
def test_a_placeholder_of_another_env_manager_counts_nowhere(rows: str) -> None:
    """AgentNativeStepEnvManager returns a row without a response, with a score, if an episode fails."""
    data = batch([*REWARDS, [9.0]], rows=rows, own=False)
    data.batch["response_mask"][-1] = False
    result = compute_advantages(data, read_estimator("rebn", {}, gamma=0.9))
    expected = compute_advantages(batch(REWARDS, rows=rows, own=False), read_estimator("rebn", {}, gamma=0.9))
    torch.testing.assert_close(result.advantages[:-1], expected.advantages)
    assert not result.advantages[-1].any()
    assert result.stats == expected.stats


def test_copies_train_nothing() -> None:
    data = batch(REWARDS, rows="episode", own=True)
    data.non_tensor_batch["gem_row"] = object_array([0, 1, 0, 3])
    before = data.batch["response_mask"].clone()
    from gem_roll import _pipeline

    _pipeline.mask_copies(data)
    assert not data.batch["response_mask"][2].any()
    assert torch.equal(data.batch["response_mask"][[0, 1, 3]], before[[0, 1, 3]])
    assert "gem_row" not in data.non_tensor_batch
    assert data.non_tensor_batch["traj_id"].tolist() == ["t0", "t1", "copy 2", "t3"]


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"])
def test_a_loss_that_averages_over_rows_weighs_episodes_alike(mode: str) -> None:
    """ROLL's own aggregation of split episodes, one row of them masked, has the gradient of whole ones."""
    from gem_roll import _pipeline
    from roll.utils.functionals import agg_loss

    def weights(rows: str, *, factors: bool = True) -> list[float]:
        data = batch(REWARDS, rows=rows, own=True)
        data.batch["response_mask"][-1] = False
        mask = data.batch["response_mask"][:, 1:]
        result = compute_advantages(data, read_estimator("gem_rloo", {}))
        data.batch["gem_advantages"] = result.advantages
        if factors:
            _pipeline.weigh_rows(data, mode)
        loss = data.batch["gem_advantages"] * mask
        valid = int(mask.any(1).sum())
        logps = torch.zeros(mask.shape, requires_grad=True)
        agg_loss(loss * logps.exp(), mask, mode, int(mask.sum()), valid).backward()
        assert logps.grad is not None
        return sorted(logps.grad[mask].tolist())

    whole = weights("episode")
    assert weights("joined") == pytest.approx(whole, abs=1e-6)
    assert any(whole)
    assert (weights("joined", factors=False) == pytest.approx(whole, abs=1e-6)) == (mode == "token-mean")


def test_the_advantages_replace_rolls_own_and_are_clipped() -> None:
    data = batch(REWARDS, rows="episode", own=True)
    mask = data.batch["response_mask"]
    mask[1] = False  # a filter of ROLL
    data.batch["response_mask"] = mask
    shape = mask[:, 1:].shape
    data.batch["gem_advantages"], data.batch["gem_returns"] = torch.full(shape, 3.0), torch.ones(shape)
    data.batch["advantages"] = torch.full(shape, 7.0)
    from gem_roll import _pipeline

    _pipeline.use_advantages(data, 2.0)
    assert torch.equal(data.batch["advantages"], 2.0 * mask[:, 1:])
    assert torch.equal(data.batch["raw_advantages"], 3.0 * mask[:, 1:])
    assert not {"gem_advantages", "gem_returns"} & set(data.batch.keys())


def test_an_array_of_objects_keeps_lists() -> None:
    kept = object_array([[1.0, 2.0], [3.0, 4.0]])
    assert (kept.shape, kept.dtype, kept[1]) == ((2,), np.dtype(object), [3.0, 4.0])


def test_every_row_of_an_episode_gets_what_its_outline_says() -> None:
    played = pack_outline(EPISODE, ["agent_ids"])
    rows = played_rows(["", played, pack_outline(FAILED), ""], ["e", "e", "f", "other"], ["agent_ids"])
    assert rows[0] == rows[1] == EpisodeTurns.of(unpack_outline(played), ["agent_ids"])
    assert rows[0] is not None
    assert rows[0].rewards == [1.5]
    assert rows[0].agent_id
    assert rows[2] == EpisodeTurns.of(FAILED, ["agent_ids"])
    assert rows[3] is None
    with pytest.raises(ValueError, match="zip"):
        played_rows([played], ["e", "e"], [])
