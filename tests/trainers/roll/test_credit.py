"""Advantages of a batch of ROLL, and what happens to them on the way to its loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gem_roll.credit import assign_credit
from gem_roll.rows import column
from roll.distributed.scheduler.protocol import DataProto
from tensordict import TensorDict

from gem_core.errors import ConfigError
from tests.trainers.evidence import oracle


def batch(rewards: list[list[float]], *, by_step: bool, own: bool) -> Any:
    """Rows of two tokens a turn; `own` leaves out what only our env managers say."""
    rows: list[tuple[int, list[float], list[int]]] = []
    for number, of_turns in enumerate(rewards):
        if by_step:
            rows += [(number, [reward], [turn]) for turn, reward in enumerate(of_turns)]
        else:
            rows.append((number, of_turns, list(range(len(of_turns)))))
    length = 3 * max(len(of_turns) for _, of_turns, _ in rows) + 1
    mask = torch.zeros(len(rows), length, dtype=torch.bool)
    turn_ids = torch.full((len(rows), length), -1)
    scores = torch.zeros(len(rows), length)
    for row, (_, of_turns, _) in enumerate(rows):
        for turn, reward in enumerate(of_turns):
            mask[row, 3 * turn + 1 : 3 * turn + 3] = True
            turn_ids[row, 3 * turn + 1 : 3 * turn + 3] = turn
            scores[row, 3 * turn + 2] = reward
    if not own:  # ROLL puts the sum of all on the last token
        scores = torch.zeros_like(scores)
        scores[:, -1] = torch.tensor([sum(of_turns) for _, of_turns, _ in rows])
    tensors = {"response_mask": mask, "scores": scores} | ({"gem_turn_ids": turn_ids} if own else {})
    columns = {
        "traj_id": column([f"t{number}" for number, _, _ in rows]),
        "traj_group_id": column([f"g{number // 2}" for number, _, _ in rows]),
        "step_scores": column([r[0] if by_step else list(r) for _, r, _ in rows]),
    }
    if by_step:
        columns["step"] = column([turns[0] for _, _, turns in rows])
    return DataProto(batch=TensorDict(tensors, batch_size=len(rows)), non_tensor_batch=columns)


REWARDS = [[0.5, 0.0, 1.0], [0.25], [0.0, -1.0], [2.0, 0.125]]


@pytest.mark.parametrize("by_step", [False, True])
@pytest.mark.parametrize("own", [False, True], ids=["of-roll", "ours"])
def test_rebn_of_the_rows_of_either_layout(by_step: bool, own: bool) -> None:
    data = batch(REWARDS, by_step=by_step, own=own)
    credit = assign_credit(data, "rebn", 0.9, {})
    wanted = [a for episode in oracle(REWARDS, 0.9) for a in episode]
    mask = data.batch["response_mask"][:, 1:]
    assert credit.advantages[mask].reshape(-1, 2).tolist() == [
        pytest.approx([a, a], abs=1e-5) for a in wanted
    ]
    assert not credit.advantages[~mask].any()
    assert credit.stats.count == 8


@pytest.mark.parametrize("by_step", [False, True])
def test_the_groups_are_rolls(by_step: bool) -> None:
    credit = assign_credit(batch(REWARDS, by_step=by_step, own=True), "gem_rloo", 1.0, {})
    scores = [sum(episode) for episode in REWARDS]
    others = [scores[1], scores[0], scores[3], scores[2]]
    wanted = {round(score - other, 4) for score, other in zip(scores, others, strict=True)}
    assert {round(value, 4) for value in credit.advantages.flatten().tolist()} - {0.0} == wanted


def test_rows_that_say_nothing_about_turns_are_refused() -> None:
    data = batch(REWARDS, by_step=False, own=False)
    scores = data.non_tensor_batch["step_scores"]
    scores[2] = [0.0]
    with pytest.raises(ConfigError, match="row 2 has 2 runs of response tokens, but 1 step_scores"):
        assign_credit(data, "rebn", 0.9, {})
    del data["step_scores"]
    with pytest.raises(ConfigError, match="say nothing about turns"):
        assign_credit(data, "rebn", 0.9, {})


def test_copies_train_nothing() -> None:
    data = batch(REWARDS, by_step=False, own=True)
    data.non_tensor_batch["gem_row"] = column([0, 1, 0, 3])
    before = data.batch["response_mask"].clone()
    from gem_roll import pipeline

    pipeline.mask_copies(data)
    assert not data.batch["response_mask"][2].any()
    assert torch.equal(data.batch["response_mask"][[0, 1, 3]], before[[0, 1, 3]])
    assert "gem_row" not in data.non_tensor_batch


def test_credit_takes_the_place_of_rolls_own_and_is_clipped() -> None:
    data = batch(REWARDS, by_step=False, own=True)
    mask = data.batch["response_mask"]
    mask[1] = False  # a filter of ROLL's
    data.batch["response_mask"] = mask
    shape = mask[:, 1:].shape
    data.batch["gem_advantages"], data.batch["gem_returns"] = torch.full(shape, 3.0), torch.ones(shape)
    data.batch["advantages"] = torch.full(shape, 7.0)
    from gem_roll import pipeline

    pipeline.use_credit(data, 2.0)
    assert torch.equal(data.batch["advantages"], 2.0 * mask[:, 1:])
    assert torch.equal(data.batch["raw_advantages"], 3.0 * mask[:, 1:])
    assert not {"gem_advantages", "gem_returns"} & set(data.batch.keys())


def test_a_column_keeps_lists() -> None:
    kept = column([[1.0, 2.0], [3.0, 4.0]])
    assert (kept.shape, kept.dtype, kept[1]) == ((2,), np.dtype(object), [3.0, 4.0])
