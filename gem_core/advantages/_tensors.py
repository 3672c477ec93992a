"""How estimators work on the (rows, tokens) torch tensors of a trainer's batch. Needs torch.

    result = rebn.tensors(token_rewards, response_mask, gamma=0.9)
    loss = -(result.advantages * logprobs).sum() / response_mask.sum()

A row is an episode. Its turns are the runs of ones in the response mask, or the tokens that share a turn id;
pass turn ids wherever they can travel with the batch, because two adjacent turns look like one in the mask.
The reward of a turn is the sum of `token_rewards` from its first token up to the first token of the next turn
(or the end of the row), so a reward on the last response token, a reward on the environment's message, and a
KL penalty spread over the tokens all count. A row whose mask is 0 everywhere is padding or an episode that is
not trainable: it is excluded from statistics and its advantages are zero.

Arguments differ from the numpy form as follows:

- `token_rewards` and `response_mask`, both (rows, tokens), and optionally `turn_ids` replace `turn_rewards`.
- Arguments with one entry per episode (`group_ids`, `env_ids`, `agent_ids`, `baselines`, `bootstrap`,
  `truncated`, `threads`) are sequences or (rows,) tensors. All rows of a group must be in the batch, or in
  the batches of the process group.
- `values` is (rows, tokens), read at the first response token of each turn: the value of the state in which
  the response began. Other positions are ignored.
- `reward_components` is (rows, tokens, components), summed over each turn like `token_rewards`.
- `lengths` may be omitted: the mask determines it. Otherwise it is (rows, tokens), read like `values`.
- `process_group`: the advantages are those of the whole batch, wherever the episodes of a group, an
  environment, or an agent are, so an id means the same on every rank. Without such ids, ranks exchange three
  numbers, and otherwise a few numbers per turn. If one rank fails, all of them raise.

Sums and statistics are float64, whatever the dtype of the rewards. No gradients are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from gem_core.advantages._batch import Turns, chosen
from gem_core.advantages._declaration import Declaration
from gem_core.advantages._inputs import IDS, PER_EPISODE, flags
from gem_core.advantages._ranks import PER_TURN, Ranks, pack, unpack
from gem_core.advantages._stats import FloatArray, ReturnStats
from gem_core.advantages._turns import TurnLayout, check_tensor
from gem_core.errors import ConfigError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class Advantages(NamedTuple):
    """Result of an estimator; the tensors are on the device of the mask."""

    advantages: torch.Tensor
    """float32 (rows, tokens): the advantage of a turn on its response tokens, exactly 0 elsewhere."""
    returns: torch.Tensor
    """float32 (rows, tokens): the return of a turn, or with a critic its target; 0 elsewhere."""
    stats: ReturnStats
    """Statistics of the returns over turns; `rebn` normalizes by them, other estimators only report them."""


def compute(
    estimator: Declaration[..., Any],
    token_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    turn_ids: torch.Tensor | None,
    process_group: ProcessGroup | None,
    arguments: dict[str, Any],
) -> Advantages:
    """Compute the advantages of a batch; see `Estimator.tensors`, which calls this function.

    Args:
        estimator: The estimator. One that takes lists sees only the rows that have turns.
        token_rewards: (rows, tokens).
        response_mask: (rows, tokens).
        turn_ids: (rows, tokens), or None.
        process_group: The ranks that hold the batch together, or None.
        arguments: Needs and options of the estimator.
    """
    if not (process_group is None or isinstance(process_group, dist.ProcessGroup)):
        raise ConfigError(f"process_group: expected a group that this rank belongs to, not {process_group!r}")
    arguments = dict(arguments)
    truncated, threads = arguments.pop("truncated", None), arguments.pop("threads", None)
    options = {name: arguments[name] for name in arguments.keys() - {"stats", *PER_EPISODE, *PER_TURN}}
    ids = sorted(name for name in IDS if arguments.get(name) is not None)
    ranks = Ranks(process_group, (estimator.name, sorted(options.items()), ids))
    together = process_group is not None and bool(ids or not estimator.uses_stats)
    stats_argument, used_stats = arguments.get("stats"), []

    def resolve(own: ReturnStats) -> ReturnStats:
        used_stats.append(ReturnStats().merge(*ranks.gather(chosen(stats_argument, own))))
        return used_stats[0]

    try:
        check_tensor("token_rewards", token_rewards)
        layout = TurnLayout(_masked(response_mask, truncated), turn_ids, token_rewards)
        if threads is not None:
            layout.set_threads(threads)
        if together:  # a group may be spread over the ranks
            if stats_argument is not None:
                raise ConfigError(f"{estimator.name}: stats cannot be combined with ids and a process group")
            part = pack(layout, arguments, with_lengths="lengths" in estimator.needs)
            turns, given, sizes = unpack(ranks.gather(part))
            parts = _call(estimator, turns, {**arguments, **given})
            per_turn = _rank_part(parts, sizes, dist.get_rank(process_group))
            stats = ReturnStats.from_returns(turns.returns(arguments.get("gamma", 1.0)))
        else:
            if process_group is not None or stats_argument is not None:
                arguments["stats"] = resolve
            parts = _call(estimator, layout, arguments)
            per_turn = np.concatenate(parts) if parts else np.zeros(0)
    except Exception:
        ranks.give_up()
        raise
    gs = layout.returns(arguments.get("gamma", 1.0))
    if estimator.critic_learns == "advantage":
        gs = per_turn + layout.per_turn("values", arguments["values"])
    if not together:
        weighs_turns = estimator.collected_stats and arguments.get("weight", "turn") == "turn"
        stats = used_stats[0] if used_stats and weighs_turns else ReturnStats.from_returns(gs)
    with np.errstate(over="ignore"):  # a return beyond float32 becomes infinite, a normalized one fits
        return Advantages(
            layout.spread(per_turn.astype(np.float32)), layout.spread(gs.astype(np.float32)), stats
        )


def _call(estimator: Declaration[..., Any], turns: Turns, arguments: dict[str, Any]) -> Sequence[FloatArray]:
    if estimator.takes_turns:
        advantages: Sequence[FloatArray] = estimator(turns, **arguments)
        return advantages
    return turns.call(estimator, arguments)


def _rank_part(parts: Sequence[FloatArray], sizes: Sequence[int], rank: int) -> FloatArray:
    """Return the advantages of the turns of a rank, given the number of episodes of each rank."""
    first = sum(sizes[:rank])
    own = parts[first : first + sizes[rank]]
    return np.concatenate(own) if own else np.zeros(0)


def turn_ids_from_mask(response_mask: torch.Tensor) -> torch.Tensor:
    """Number the runs of ones in each row of the mask.

    Args:
        response_mask: (rows, tokens), bool or a number: 1 on response tokens, 0 elsewhere.

    Returns:
        int32 (rows, tokens): the index of the run within its row, counted from 0; -1 elsewhere.

    Raises:
        ConfigError: The mask is not a tensor of two dimensions, or holds values other than 0 and 1.
    """
    layout = TurnLayout(response_mask)
    return layout.spread(layout.columns.astype(np.int32), fill=-1)


def _masked(response_mask: torch.Tensor, truncated: Any) -> torch.Tensor:
    """Return the mask with 0 in the truncated rows."""
    if truncated is None:
        return response_mask
    check_tensor("response_mask", response_mask)
    rows = torch.tensor(flags("truncated", truncated, len(response_mask), "row"), dtype=torch.bool)
    return response_mask.masked_fill(rows[:, None].to(response_mask.device), 0)
