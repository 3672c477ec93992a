"""The estimators on (rows, tokens) tensors, for the batch of a trainer. Needs torch.

    result = rebn(token_rewards, response_mask, gamma=0.9)
    loss = -(result.advantages * logprobs).sum() / response_mask.sum()

The definitions are those of `gem_core.advantages.reference`. All functions share these arguments:

- `token_rewards`: (rows, tokens), any float dtype. A turn's reward is the sum over its first token
  up to the next turn's first token (or the end of the row), so a reward on the last response token,
  one on the environment's message and a KL penalty spread over the tokens all count.
- `response_mask`: (rows, tokens), bool or number, not 0 on response tokens. A row without any is
  not trainable: out of the statistics, all zero.
- `turn_ids`: (rows, tokens), -1 off-response, counted from 0 in each row; None takes each run of
  response tokens as a turn. Give them wherever they can travel: two turns that touch look like one.
- `gamma`: discount per turn.
- `process_group`: merges the statistics over its ranks, which all must make the call; None stays
  in this process.

Sums and statistics are float64 whatever the dtype of the rewards. Nothing here has a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from gem_core.advantages import reference
from gem_core.advantages.stats import FloatArray, ReturnStats
from gem_core.advantages.turns import IntArray, TurnLayout, to_numpy
from gem_core.errors import ConfigError, NonFiniteReward

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class Advantages(NamedTuple):
    """What every estimator returns; tensors lie on the device of the mask."""

    advantages: torch.Tensor
    """float32 (rows, tokens): the turn's credit on its response tokens, exactly 0 elsewhere."""
    returns: torch.Tensor
    """float32 (rows, tokens): the turn's return, or for `gae` the critic's target; 0 elsewhere."""
    stats: ReturnStats
    """Statistics of the returns over turns, as used or, where unused, for the metrics."""


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
    """Return batch normalisation; see `reference.rebn`.

    Args:
        token_rewards: As above, like the other arguments not listed here.
        response_mask: As above.
        turn_ids: As above.
        gamma: As above.
        ddof: 0 for the population standard deviation, 1 for the sample's.
        eps: Added to the standard deviation.
        min_std: Returns count as equal when ``std <= min_std * max(1, |mean|)``; they give 0.
        stats: Statistics of the turns that this process collected for the update, in the place of
            those of the batch, which may lack what a sampler dropped or repeat what it copied.
        process_group: As above; what is merged is `stats` where it is given.

    Raises:
        NonFiniteReward: A turn's reward is NaN or infinite (names row and turn), here or on
            another rank of the process group.
        ConfigError: Shapes, turn ids or an option are wrong.
    """
    try:  # a failure must not leave the other ranks waiting
        layout, gs = _returns(token_rewards, response_mask, turn_ids, gamma)
        own = ReturnStats.from_returns(gs) if stats is None else stats
    except Exception:
        _merge(None, process_group, response_mask.device)
        raise
    merged = _merge(own, process_group, response_mask.device)
    (credit,) = reference.normalize([gs], merged, ddof=ddof, eps=eps, min_std=min_std)
    return _spread(layout, credit, gs, merged)


def reinforce(
    token_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    *,
    turn_ids: torch.Tensor | None = None,
    gamma: float = 1.0,
) -> Advantages:
    """REINFORCE without a baseline; see `reference.reinforce`."""
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
    """Group relative advantage of whole episodes, one per row; see `reference.grpo`.

    `group_ids` has one entry per row (a tensor, or a sequence of anything hashable); a group must
    lie within one process.
    """
    layout, gs = _returns(token_rewards, response_mask, turn_ids, gamma)
    scores, groups = _scores(layout, gs, group_ids)
    credit = reference.grpo_scores(scores, groups, ddof=ddof, eps=eps, min_std=min_std)
    return _spread(layout, _per_turn(layout, credit), gs, ReturnStats.from_returns(gs))


def rloo(
    token_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    group_ids: torch.Tensor | Sequence[Hashable],
    *,
    turn_ids: torch.Tensor | None = None,
    gamma: float = 1.0,
) -> Advantages:
    """Leave-one-out baseline of whole episodes, one per row; see `reference.rloo`, `grpo`."""
    layout, gs = _returns(token_rewards, response_mask, turn_ids, gamma)
    credit = reference.rloo_scores(*_scores(layout, gs, group_ids))
    return _spread(layout, _per_turn(layout, credit), gs, ReturnStats.from_returns(gs))


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
    """Generalised advantage estimation over turns; see `reference.gae`.

    Args:
        token_rewards: As above, like the other arguments not listed here.
        response_mask: As above.
        values: (rows, tokens). The value of a turn is read at its first response token: V of the
            state in which that response was begun. Other positions are not looked at.
        turn_ids: As above.
        gamma: As above.
        lam: 1 is Monte Carlo minus baseline, 0 one-step temporal difference.
        bootstrap: (rows,), value after the last turn: 0 in terminated rows. None means 0 in all.

    Returns:
        Advantages, not normalised, and as `returns` the critic's targets ``A + V``.
    """
    reference.check_fraction("gamma", gamma)
    reference.check_fraction("lam", lam)
    layout = TurnLayout(response_mask, turn_ids)
    rewards = layout.sum_rewards(token_rewards)
    value = layout.at_first_tokens("values", values)
    last = np.zeros(layout.shape[0])
    if bootstrap is not None:
        if bootstrap.shape != layout.shape[:1]:
            raise ConfigError(f"bootstrap has shape {tuple(bootstrap.shape)}; expected ({layout.shape[0]},)")
        last = to_numpy(bootstrap.detach().double())
    reference.check_values(np.append(value, last[layout.rows]), "batch")
    credit = layout.suffix_sums(rewards + gamma * layout.following(value, last) - value, gamma * lam)
    target = credit + value
    return _spread(layout, credit, target, ReturnStats.from_returns(target))


def turn_ids_from_mask(response_mask: torch.Tensor) -> torch.Tensor:
    """int64 (rows, tokens): the number of the run of response tokens within its row, -1 elsewhere."""
    layout = TurnLayout(response_mask)
    return layout.spread(layout.columns, fill=-1)


def _returns(
    token_rewards: torch.Tensor, response_mask: torch.Tensor, turn_ids: torch.Tensor | None, gamma: float
) -> tuple[TurnLayout, FloatArray]:
    reference.check_fraction("gamma", gamma)
    layout = TurnLayout(response_mask, turn_ids)
    return layout, layout.suffix_sums(layout.sum_rewards(token_rewards), gamma)


def _spread(layout: TurnLayout, credit: FloatArray, gs: FloatArray, stats: ReturnStats) -> Advantages:
    with np.errstate(over="ignore"):  # a return beyond float32 is infinite; normalised, it fits
        tokens = layout.spread(credit.astype(np.float32)), layout.spread(gs.astype(np.float32))
    return Advantages(*tokens, stats)


def _scores(
    layout: TurnLayout, gs: FloatArray, group_ids: torch.Tensor | Sequence[Hashable]
) -> tuple[FloatArray, IntArray]:
    """Return from the start and group number of each row that has turns, in the order of rows."""
    if isinstance(group_ids, torch.Tensor) and group_ids.ndim != 1:
        raise ConfigError(f"group_ids has shape {tuple(group_ids.shape)}; expected ({layout.shape[0]},)")
    ids = group_ids.tolist() if isinstance(group_ids, torch.Tensor) else list(group_ids)
    if len(ids) != layout.shape[0]:
        raise ConfigError(f"{len(ids)} group ids for {layout.shape[0]} rows")
    first = layout.columns == 0
    return gs[first], reference.number_groups([ids[row] for row in layout.rows[first]])


def _per_turn(layout: TurnLayout, credit: FloatArray) -> FloatArray:
    """The credit of each row with turns, repeated on its turns."""
    repeated: FloatArray = credit[np.cumsum(layout.columns == 0) - 1]
    return repeated


def _merge(own: ReturnStats | None, process_group: ProcessGroup | None, device: torch.device) -> ReturnStats:
    """Statistics over all ranks. A rank that failed takes part with None, so that no other one waits."""
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
