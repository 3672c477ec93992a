"""The estimators on (rows, tokens) torch tensors, for the batch of a trainer. Needs torch.

    result = rebn(token_rewards, response_mask, gamma=0.9)
    loss = -(result.advantages * logprobs).sum() / response_mask.sum()

Definitions and formulas are in `gem_core.advantages.reference`. A row is an episode. Its turns are the
runs of ones in the response mask, or the tokens that share a turn id; pass turn ids wherever they can
travel with the batch, because two adjacent turns look like one in the mask. The reward of a turn is the
sum of `token_rewards` from its first token up to the first token of the next turn (or the end of the
row), so a reward on the last response token, a reward on the environment's message and a KL penalty
spread over the tokens all count. A row whose mask is 0 everywhere is padding or an episode that is not
trainable: it is excluded from statistics and its advantages are zero.

Sums and statistics are float64, whatever the dtype of the rewards. No gradients are computed.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from gem_core.advantages import reference
from gem_core.advantages.stats import FloatArray, ReturnStats
from gem_core.advantages.turns import IntArray, TurnLayout, check_tensor, to_numpy
from gem_core.errors import ConfigError, NonFiniteReward

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class Advantages(NamedTuple):
    """Result of an estimator; the tensors are on the device of the mask."""

    advantages: torch.Tensor
    """float32 (rows, tokens): the advantage of a turn on its response tokens, exactly 0 elsewhere."""
    returns: torch.Tensor
    """float32 (rows, tokens): the return of a turn (for `gae`, the critic's target); 0 elsewhere."""
    stats: ReturnStats
    """Statistics of the returns over turns; `rebn` normalizes by them, other estimators only report them."""


def rebn(
    token_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    *,
    turn_ids: torch.Tensor | None = None,
    gamma: float = 1.0,
    ddof: int = 0,
    eps: float = 1e-8,
    min_std: float = 1e-6,
    stats: ReturnStats | None = None,
    process_group: ProcessGroup | None = None,
) -> Advantages:
    """Compute ReBN (return batch normalization) by the formula of `reference.rebn`.

    Args:
        token_rewards: (rows, tokens), any float dtype, on the device of the mask.
        response_mask: (rows, tokens), bool or a number: 1 on response tokens, 0 elsewhere.
        turn_ids: (rows, tokens), integers: the index of the turn within its row, counted from 0 without
            gaps; -1 elsewhere. None treats every run of ones in the mask as a turn.
        gamma: Discount per turn, from 0 to 1.
        ddof: 0 for the population standard deviation, 1 for the sample standard deviation.
        eps: Constant added to the standard deviation.
        min_std: Returns count as equal if ``std <= min_std * max(1, |mean|)``; the advantage is then 0.
        stats: Statistics of the turns that this process collected for the update. They replace statistics of
            the batch, which may lack turns that a sampler dropped or contain rows that it copied. None
            computes them from the batch.
        process_group: Group of `torch.distributed` over whose ranks the statistics are merged; all of its
            ranks must call this function. None uses the statistics of this process only.

    Returns:
        Advantages and the returns as (rows, tokens) tensors, and the statistics of the returns.

    Raises:
        ConfigError: An argument is not a tensor, shapes or devices differ, the mask holds values other than 0
            and 1, turn ids have a gap, or an option is out of range.
        NonFiniteReward: The reward of a turn is NaN or infinite, or a return overflows; the message names
            the row and the turn. On the other ranks of the process group the message names the
            rank that failed.
    """
    device = response_mask.device if isinstance(response_mask, torch.Tensor) else torch.device("cpu")
    try:  # a failure must not leave the other ranks waiting
        layout, gs = _returns(token_rewards, response_mask, turn_ids, gamma)
        own = ReturnStats.from_returns(gs) if stats is None else stats
    except Exception:
        _merge(None, process_group, device)
        raise
    merged = _merge(own, process_group, device)
    (advantages,) = reference.normalize([gs], merged, ddof=ddof, eps=eps, min_std=min_std)
    return _spread(layout, advantages, gs, merged)


def reinforce(
    token_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    *,
    turn_ids: torch.Tensor | None = None,
    gamma: float = 1.0,
) -> Advantages:
    """Compute REINFORCE advantages without a baseline by the formula of `reference.reinforce`.

    Args:
        token_rewards: (rows, tokens), any float dtype, on the device of the mask.
        response_mask: (rows, tokens), bool or a number: 1 on response tokens, 0 elsewhere.
        turn_ids: (rows, tokens), integers: the index of the turn within its row, counted from 0 without
            gaps; -1 elsewhere. None treats every run of ones in the mask as a turn.
        gamma: Discount per turn, from 0 to 1.

    Returns:
        Advantages and the returns as (rows, tokens) tensors, and the statistics of the returns.

    Raises:
        ConfigError: An argument is not a tensor, shapes or devices differ, the mask holds values other than 0
            and 1, turn ids have a gap, or an option is out of range.
        NonFiniteReward: The reward of a turn is NaN or infinite, or a return overflows; the message names
            the row and the turn.
    """
    layout, gs = _returns(token_rewards, response_mask, turn_ids, gamma)
    return _spread(layout, gs, gs, ReturnStats.from_returns(gs))


def grpo(
    token_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    group_ids: torch.Tensor | Sequence[Hashable],
    *,
    turn_ids: torch.Tensor | None = None,
    gamma: float = 1.0,
    ddof: int = 0,
    eps: float = 1e-8,
    min_std: float = 1e-6,
) -> Advantages:
    """Compute group relative advantages by the formula of `reference.grpo`; a row is a whole episode.

    Args:
        token_rewards: (rows, tokens), any float dtype, on the device of the mask.
        response_mask: (rows, tokens), bool or a number: 1 on response tokens, 0 elsewhere.
        group_ids: (rows,), a tensor or a sequence of hashable ids. Rows of the same task and seed share an
            id. All rows of a group must be in this batch.
        turn_ids: (rows, tokens), integers: the index of the turn within its row, counted from 0 without
            gaps; -1 elsewhere. None treats every run of ones in the mask as a turn.
        gamma: Discount per turn, from 0 to 1.
        ddof: 0 for the population standard deviation of a group, 1 for the sample standard deviation.
        eps: Constant added to the standard deviation.
        min_std: The scores of a group count as equal if ``std <= min_std * max(1, |mean|)``;
            their advantage is then 0.

    Returns:
        Advantages and the returns as (rows, tokens) tensors, and the statistics of the returns.

    Raises:
        ConfigError: An argument is not a tensor, shapes or devices differ, the mask holds values other than 0
            and 1, turn ids have a gap, group ids do not match the rows, or an option is out of range.
        NonFiniteReward: The reward of a turn is NaN or infinite, or a return overflows; the message names
            the row and the turn.
    """
    layout, gs = _returns(token_rewards, response_mask, turn_ids, gamma)
    scores, groups = _scores(layout, gs, group_ids)
    advantages = reference.grpo_scores(scores, groups, ddof=ddof, eps=eps, min_std=min_std)
    return _spread(layout, _per_turn(layout, advantages), gs, ReturnStats.from_returns(gs))


def rloo(
    token_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    group_ids: torch.Tensor | Sequence[Hashable],
    *,
    turn_ids: torch.Tensor | None = None,
    gamma: float = 1.0,
) -> Advantages:
    """Compute leave-one-out advantages by the formula of `reference.rloo`; a row is a whole episode.

    Args:
        token_rewards: (rows, tokens), any float dtype, on the device of the mask.
        response_mask: (rows, tokens), bool or a number: 1 on response tokens, 0 elsewhere.
        group_ids: (rows,), a tensor or a sequence of hashable ids. Rows of the same task and seed share an
            id. All rows of a group must be in this batch.
        turn_ids: (rows, tokens), integers: the index of the turn within its row, counted from 0 without
            gaps; -1 elsewhere. None treats every run of ones in the mask as a turn.
        gamma: Discount per turn, from 0 to 1.

    Returns:
        Advantages and the returns as (rows, tokens) tensors, and the statistics of the returns.

    Raises:
        ConfigError: An argument is not a tensor, shapes or devices differ, the mask holds values other than 0
            and 1, turn ids have a gap, group ids do not match the rows, or an option is out of range.
        NonFiniteReward: The reward of a turn is NaN or infinite, or a return overflows; the message names
            the row and the turn.
    """
    layout, gs = _returns(token_rewards, response_mask, turn_ids, gamma)
    advantages = reference.rloo_scores(*_scores(layout, gs, group_ids))
    return _spread(layout, _per_turn(layout, advantages), gs, ReturnStats.from_returns(gs))


def gae(
    token_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    values: torch.Tensor,
    *,
    turn_ids: torch.Tensor | None = None,
    gamma: float = 1.0,
    lam: float = 0.95,
    bootstrap: torch.Tensor | None = None,
) -> Advantages:
    """Compute generalized advantage estimates over turns by the formula of `reference.gae`, not normalized.

    Args:
        token_rewards: (rows, tokens), any float dtype, on the device of the mask.
        response_mask: (rows, tokens), bool or a number: 1 on response tokens, 0 elsewhere.
        values: (rows, tokens), any float dtype. The value of a turn is read at its first response token: V
            of the state in which the response began. Other positions are ignored.
        turn_ids: (rows, tokens), integers: the index of the turn within its row, counted from 0 without
            gaps; -1 elsewhere. None treats every run of ones in the mask as a turn.
        gamma: Discount per turn, from 0 to 1.
        lam: Lambda, from 0 (one-step temporal difference) to 1 (Monte Carlo return minus the value).
        bootstrap: (rows,), any float dtype: the value after the last turn, 0 in terminated rows. None means
            0 in all rows.

    Returns:
        Advantages and the critic's targets ``A + V`` as (rows, tokens) tensors, and the statistics of the
        targets.

    Raises:
        ConfigError: An argument is not a tensor, shapes or devices differ, the mask holds values other than 0
            and 1, turn ids have a gap, an option is out of range, or a value is not finite.
        NonFiniteReward: The reward of a turn is NaN or infinite, or a return overflows; the message names
            the row and the turn.
    """
    reference.check_fraction("gamma", gamma)
    reference.check_fraction("lam", lam)
    layout = TurnLayout(response_mask, turn_ids)
    rewards = layout.sum_rewards(token_rewards)
    value = layout.at_first_tokens("values", values)
    last = np.zeros(layout.shape[0])
    if bootstrap is not None:
        check_tensor("bootstrap", bootstrap)
        if bootstrap.shape != layout.shape[:1]:
            raise ConfigError(f"bootstrap has shape {tuple(bootstrap.shape)}; expected ({layout.shape[0]},)")
        last = to_numpy(bootstrap.detach().double())
    reference.check_values(np.append(value, last[layout.rows]), "batch")
    advantages = layout.suffix_sums(rewards + gamma * layout.following(value, last) - value, gamma * lam)
    target = advantages + value
    return _spread(layout, advantages, target, ReturnStats.from_returns(target))


def turn_ids_from_mask(response_mask: torch.Tensor) -> torch.Tensor:
    """Number the runs of ones in each row of the mask.

    Args:
        response_mask: (rows, tokens), bool or a number: 1 on response tokens, 0 elsewhere.

    Returns:
        int64 (rows, tokens): the index of the run within its row, counted from 0; -1 elsewhere.

    Raises:
        ConfigError: The mask is not a tensor of two dimensions, or holds values other than 0 and 1.
    """
    layout = TurnLayout(response_mask)
    return layout.spread(layout.columns, fill=-1)


def _returns(
    token_rewards: torch.Tensor, response_mask: torch.Tensor, turn_ids: torch.Tensor | None, gamma: float
) -> tuple[TurnLayout, FloatArray]:
    reference.check_fraction("gamma", gamma)
    layout = TurnLayout(response_mask, turn_ids)
    return layout, layout.suffix_sums(layout.sum_rewards(token_rewards), gamma)


def _spread(layout: TurnLayout, advantages: FloatArray, gs: FloatArray, stats: ReturnStats) -> Advantages:
    with np.errstate(over="ignore"):  # a return beyond float32 becomes infinite, a normalized one fits
        tokens = layout.spread(advantages.astype(np.float32)), layout.spread(gs.astype(np.float32))
    return Advantages(*tokens, stats)


def _scores(
    layout: TurnLayout, gs: FloatArray, group_ids: torch.Tensor | Sequence[Hashable]
) -> tuple[FloatArray, IntArray]:
    """Compute the score ``G_0`` and the group index of every row that has turns, in the order of rows."""
    if isinstance(group_ids, torch.Tensor) and group_ids.ndim != 1:
        raise ConfigError(f"group_ids has shape {tuple(group_ids.shape)}; expected ({layout.shape[0]},)")
    ids = group_ids.tolist() if isinstance(group_ids, torch.Tensor) else list(group_ids)
    if len(ids) != layout.shape[0]:
        raise ConfigError(f"{len(ids)} group ids for {layout.shape[0]} rows")
    first = layout.columns == 0
    return gs[first], reference.number_groups([ids[row] for row in layout.rows[first]])


def _per_turn(layout: TurnLayout, advantages: FloatArray) -> FloatArray:
    """Repeat the advantage of every row that has turns on each of its turns."""
    repeated: FloatArray = advantages[np.cumsum(layout.columns == 0) - 1]
    return repeated


def _merge(own: ReturnStats | None, process_group: ProcessGroup | None, device: torch.device) -> ReturnStats:
    """Merge the statistics of all ranks. A failed rank passes None, so the others do not wait for it."""
    if process_group is None:
        return own or ReturnStats()
    import torch.distributed as dist

    if "nccl" not in dist.get_backend(process_group):
        device = torch.device("cpu")
    wire = (math.nan,) * 3 if own is None else own.to_wire()
    sent = torch.tensor(wire, dtype=torch.float64, device=device)
    gathered = [torch.empty_like(sent) for _ in range(dist.get_world_size(process_group))]
    dist.all_gather(gathered, sent, group=process_group)
    wires = [part.tolist() for part in gathered]
    failed = [rank for rank, (count, _, _) in enumerate(wires) if math.isnan(count)]
    if failed and own is not None:
        raise NonFiniteReward(
            f"rank {failed[0]} of the process group could not compute its returns: see its error"
        )
    return ReturnStats().merge(*(ReturnStats.from_wire(w) for r, w in enumerate(wires) if r not in failed))
