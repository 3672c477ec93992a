"""The estimators for (rows, tokens) torch tensors, as in a trainer's batch. Needs torch.

    result = rebn(token_rewards, response_mask, gamma=0.9)
    loss = -(result.advantages * logprobs).sum() / response_mask.sum()

The functions with the same names in `gem_core.advantages` have the same definitions and formulas, and
document the options. A row is an episode. Its turns are the runs of ones in the response mask, or the tokens
that share a turn id; pass turn ids wherever they can travel with the batch, because two adjacent turns look
like one in the mask. The reward of a turn is the sum of `token_rewards` from its first token up to the first
token of the next turn (or the end of the row), so a reward on the last response token, a reward on the
environment's message, and a KL penalty spread over the tokens all count. A row whose mask is 0 everywhere is
padding or an episode that is not trainable: it is excluded from statistics and its advantages are zero.

Arguments differ from the numpy form as follows:

- `token_rewards` and `response_mask`, both (rows, tokens), and optionally `turn_ids` replace `turn_rewards`.
- Arguments with one entry per episode (`group_ids`, `env_ids`, `agent_ids`, `baselines`, `bootstrap`,
  `truncated`) are sequences or (rows,) tensors. All rows of a group must be in the batch, or in the batches
  of the process group.
- `values` is (rows, tokens), read at the first response token of each turn: the value of the state in which
  the response began. Other positions are ignored.
- `reward_components` is (rows, tokens, components), summed over each turn like `token_rewards`.
- `lengths` may be omitted: the mask determines it. Otherwise it is (rows, tokens), read like `values`.
- `process_group`: group of `torch.distributed` whose ranks hold the batch together; all of them must call the
  function with the same options. The advantages are those of the whole batch, wherever the episodes of a
  group, an environment, or an agent are, so an id means the same on every rank. Without such ids, ranks
  exchange three numbers, and otherwise a few numbers per turn. If one rank fails, all of them raise. None
  uses the rows of this process only.

Sums and statistics are float64, whatever the dtype of the rewards. No gradients are computed.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import ArrayLike

from gem_core import advantages as numpy_forms
from gem_core.advantages.batch import Turns
from gem_core.advantages.critic import Learns
from gem_core.advantages.inputs import IDS, PER_EPISODE, flags
from gem_core.advantages.ranks import PER_TURN, Ranks, merge, pack, unpack
from gem_core.advantages.stats import FloatArray, ReturnStats
from gem_core.advantages.turns import TurnLayout, check_tensor
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


class OnTensors:
    """An estimator for tensors, created from its numpy form.

    Args:
        estimator: A function like those of `gem_core.advantages`: it takes
            `gem_core.advantages.batch.Turns` in place of lists, and returns one array of advantages per
            episode. For a function that takes lists only, see `of_lists`.
        critic_learns: As in `gem_core.advantages.registry.Estimator`.
        collected_stats: As in that class: whether `stats` are statistics of returns over turns.

    Raises:
        ConfigError: The estimator takes `values`, but `critic_learns` is None.
    """

    def __init__(
        self,
        estimator: Callable[..., Sequence[Any]],
        *,
        critic_learns: Learns | None = None,
        collected_stats: bool = False,
    ) -> None:
        self._estimator = estimator
        self._critic_learns = critic_learns
        self._collected_stats = collected_stats
        self.__name__ = getattr(estimator, "__name__", type(estimator).__name__)
        self.__doc__ = _on_tensors(inspect.getdoc(estimator) or "")
        parameters = dict(inspect.signature(estimator).parameters)
        self._takes_stats = "stats" in parameters
        self.takes_lengths = "lengths" in parameters
        if "values" in parameters and critic_learns is None:
            raise ConfigError(
                f"{self.__name__} takes values: pass critic_learns='advantage' if the critic learns the "
                "advantage plus its value, as in gae, or 'return'"
            )
        del parameters[next(iter(parameters))]
        self._positional = list(parameters)
        rest = [name for name, p in parameters.items() if p.kind is p.VAR_KEYWORD]
        last = [parameters.pop(name) for name in rest]
        positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters["turn_ids"] = inspect.Parameter("turn_ids", keyword, default=None)
        parameters["process_group"] = inspect.Parameter("process_group", keyword, default=None)
        self.__signature__ = inspect.Signature(
            [
                inspect.Parameter("token_rewards", positional),
                inspect.Parameter("response_mask", positional),
                *parameters.values(),
                *last,
            ]
        )

    def __repr__(self) -> str:
        return f"<{self.__name__} on tensors>"

    def __call__(
        self,
        token_rewards: torch.Tensor,
        response_mask: torch.Tensor,
        *needs: Any,
        turn_ids: torch.Tensor | None = None,
        truncated: Any = None,
        process_group: ProcessGroup | None = None,
        **arguments: Any,
    ) -> Advantages:
        """Compute the advantages of a batch.

        Args:
            token_rewards: (rows, tokens), any float dtype, on the device of the mask.
            response_mask: (rows, tokens), bool or a number: 1 on response tokens, 0 elsewhere.
            needs: Further inputs that the estimator needs, such as group ids.
            turn_ids: (rows, tokens), integers: the index of the turn within its row, counted from 0 without
                gaps; -1 elsewhere. None treats every run of ones in the mask as a turn.
            truncated: (rows,), bool; True masks the row. None keeps all rows.
            process_group: See the docstring of this module.
            arguments: Options of the estimator.

        Returns:
            Advantages and the returns as (rows, tokens) tensors, and the statistics of the returns.

        Raises:
            ConfigError: An argument is not a tensor, shapes or devices differ, the mask holds values other
                than 0 and 1, turn ids have a gap, or an argument of the estimator is wrong.
            NonFiniteReward: The reward of a turn is NaN or infinite, or a return overflows; the message names
                the row and the turn. On the other ranks of the process group, the message names the rank that
                failed.
        """
        arguments |= dict(zip(self._positional, needs, strict=False))
        options = {name: arguments[name] for name in arguments.keys() - {"stats", *PER_EPISODE, *PER_TURN}}
        ids = sorted(name for name in IDS if arguments.get(name) is not None)
        ranks = Ranks(process_group, (self.__name__, sorted(options.items()), ids))
        together = process_group is not None and bool(ids or not self._takes_stats)
        stats_argument, used_stats = arguments.get("stats"), []

        def resolve(own: ReturnStats) -> ReturnStats:
            mine = stats_argument(own) if callable(stats_argument) else stats_argument or own
            used_stats.append(merge(ranks.gather(mine)))
            return used_stats[0]

        try:
            check_tensor("token_rewards", token_rewards)
            layout = TurnLayout(_masked(response_mask, truncated), turn_ids, token_rewards)
            if together:  # a group may be spread over the ranks
                if stats_argument is not None:
                    raise ConfigError(
                        f"{self.__name__}: stats cannot be combined with ids and a process group"
                    )
                part = pack(layout, arguments, with_lengths=self.takes_lengths)
                turns, given, sizes = unpack(ranks.gather(part))
                parts = self._estimator(turns, **{**arguments, **given})
                per_turn = _of_rank(parts, sizes, dist.get_rank(process_group))
                stats = ReturnStats.from_returns(turns.returns(arguments.get("gamma", 1.0)))
            else:
                if process_group is not None or stats_argument is not None:
                    arguments["stats"] = resolve
                parts = self._estimator(layout, **arguments)
                per_turn = np.concatenate(parts) if parts else np.zeros(0)
        except Exception:
            ranks.give_up()
            raise
        gs = layout.returns(arguments.get("gamma", 1.0))
        if self._critic_learns == "advantage":
            gs = per_turn + layout.per_turn("values", arguments["values"])
        if not together:
            of_turns = self._collected_stats and arguments.get("weight", "turn") == "turn"
            stats = used_stats[0] if used_stats and of_turns else ReturnStats.from_returns(gs)
        with np.errstate(over="ignore"):  # a return beyond float32 becomes infinite, a normalized one fits
            return Advantages(
                layout.spread(per_turn.astype(np.float32)), layout.spread(gs.astype(np.float32)), stats
            )


def _of_rank(parts: Sequence[FloatArray], sizes: Sequence[int], rank: int) -> FloatArray:
    """Return the advantages of the turns of a rank, given the number of episodes of each rank."""
    first = sum(sizes[:rank])
    own = parts[first : first + sizes[rank]]
    return np.concatenate(own) if own else np.zeros(0)


_ARGUMENTS = {
    "turn_rewards": """\
    token_rewards: (rows, tokens), any float dtype, on the device of the mask.
    response_mask: (rows, tokens), bool or a number: 1 on response tokens, 0 elsewhere.
    turn_ids: (rows, tokens), integers: the index of the turn within its row, counted from 0 without gaps; -1
        elsewhere. None treats every run of ones in the mask as a turn.""",
    "values": """\
    values: (rows, tokens), any float dtype, read at the first response token of each turn: the value of the
        state in which the response began.""",
    "lengths": """\
    lengths: (rows, tokens), the number of response tokens of each turn, read at its first response token.
        None counts the tokens in the mask.""",
    "reward_components": """\
    reward_components: (rows, tokens, components), any float dtype, summed over each turn.""",
}
"""Descriptions of the arguments that differ from the numpy form."""


def _on_tensors(text: str) -> str:
    """Return the docstring of a numpy form with the arguments, results, and errors of the tensor form."""
    for name, description in _ARGUMENTS.items():
        pattern = re.compile(rf"    {name}: .*?(?=\n    \S|\n\n)", re.DOTALL)
        text = pattern.sub(description.replace("\\", r"\\"), text)
    process_group = (
        "\n    process_group: Group of `torch.distributed` whose ranks hold the batch together; all of them "
        "must\n        call this function, and ids mean the same on each. None uses the rows of this process."
    )
    text = text.replace("\n\nReturns:", f"{process_group}\n\nReturns:")
    head, _, tail = text.partition("\n\nReturns:\n")
    _, _, raises = tail.partition("\n\nRaises:\n")
    result = "    Advantages and the returns as (rows, tokens) tensors, and the statistics of the returns."
    return f"{head}\n\nReturns:\n{result}\n\nRaises:\n{raises}"


def of_lists(
    estimator: Callable[..., Sequence[ArrayLike]], *, critic_learns: Learns | None = None
) -> OnTensors:
    """Return the form for tensors of an estimator that takes lists.

    The estimator sees only the rows that have turns, so padding and failed episodes do not count.

    Args:
        estimator: Takes one array of turn rewards per episode, and as keyword arguments its needs and
            options; returns one sequence of advantages per episode.
        critic_learns: As in `gem_core.advantages.registry.Estimator`.
    """

    @functools.wraps(estimator)
    def on_turns(turns: Turns, **arguments: Any) -> list[FloatArray]:
        return turns.call(estimator, arguments)

    return OnTensors(on_turns, critic_learns=critic_learns)


dr_grpo = OnTensors(numpy_forms.dr_grpo)
gae = OnTensors(numpy_forms.gae, critic_learns="advantage")
gdpo = OnTensors(numpy_forms.gdpo)
gigpo = OnTensors(numpy_forms.gigpo)
grpo = OnTensors(numpy_forms.grpo)
maxrl = OnTensors(numpy_forms.maxrl)
mt_grpo = OnTensors(numpy_forms.mt_grpo)
opo = OnTensors(numpy_forms.opo)
rae = OnTensors(numpy_forms.rae)
rebn = OnTensors(numpy_forms.rebn, collected_stats=True)
reinforce = OnTensors(numpy_forms.reinforce)
reinforce_plus_plus = OnTensors(numpy_forms.reinforce_plus_plus)
reinforce_plus_plus_baseline = OnTensors(numpy_forms.reinforce_plus_plus_baseline)
remax = OnTensors(numpy_forms.remax)
rloo = OnTensors(numpy_forms.rloo)


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
