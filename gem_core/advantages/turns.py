"""Turns in (rows, tokens) tensors: where they are, what they earned, and back to tokens.

Only three steps touch every token, and they run where the tensors are: find where turns begin, sum
rewards, spread credits. What lies between works on one number per turn, in numpy float64 on the
host, and is the code that the reference form runs too.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from gem_core.advantages.stats import FloatArray
from gem_core.errors import ConfigError, NonFiniteReward

IntArray: TypeAlias = NDArray[np.int64]


class TurnLayout:
    """The turns of a batch of rows, in row-major order.

    A row is cut into segments: maximal stretches of tokens with the same turn id (off-response is
    such a stretch too). A turn owns its own segments and everything up to the next turn's start.

    Args:
        response_mask: (rows, tokens), bool or number; not 0 on response tokens. A row that is 0
            everywhere (an untrainable episode, a pad) has no turns.
        turn_ids: (rows, tokens), integers: -1 off-response, in each row counted from 0 without a
            gap. Tokens of a turn on which the mask is 0 are spread no credit, and the turn still
            counts. None: a turn is a run of response tokens.

    Attributes:
        shape: Of the mask.
        rows: int64 (turns,), the row of each turn.
        columns: int64 (turns,), its number within the row.

    Raises:
        ConfigError: Shapes do not fit, or turn ids break the rule; names the row.
    """

    def __init__(self, response_mask: torch.Tensor, turn_ids: torch.Tensor | None = None) -> None:
        if response_mask.ndim != 2:
            raise ConfigError(
                f"response_mask has shape {tuple(response_mask.shape)}; expected (rows, tokens)"
            )
        mask = response_mask.detach()
        self._mask = (mask if mask.dtype == torch.bool else mask != 0).contiguous()
        self._hidden: torch.Tensor | None = None
        self.shape = self._mask.shape
        labels = self._mask if turn_ids is None else self._check_ids(turn_ids)

        begins = torch.ones(self.shape, dtype=torch.bool, device=labels.device)
        torch.ne(labels[:, 1:], labels[:, :-1], out=begins[:, 1:])
        starts = begins.view(-1).nonzero().squeeze(1)
        ids = to_numpy(labels.view(-1)[starts])
        self._starts = to_numpy(starts)
        segment_rows = self._starts // max(self.shape[1], 1)
        if turn_ids is None:
            self._on = opens = ids
        else:
            self._on = ids >= 0
            opens = _opens_turn(ids, self._on, segment_rows)

        self.rows: IntArray = segment_rows[opens]
        turns_of_row = np.bincount(self.rows, minlength=self.shape[0])
        turns_before = np.cumsum(turns_of_row) - turns_of_row
        self.columns: IntArray = np.arange(len(self.rows)) - turns_before[self.rows]
        self._first_tokens: IntArray = self._starts[opens]
        # The turn each segment belongs to; -1 for what stands before the first turn of a row.
        owner = np.cumsum(opens) - 1
        if len(self.rows):
            owner[(owner >= 0) & (self.rows[owner] != segment_rows)] = -1
        self._owner: IntArray = owner

    def __len__(self) -> int:
        return len(self.rows)

    def sum_rewards(self, token_rewards: torch.Tensor) -> FloatArray:
        """Reward of each turn: the sum over its first token up to the next turn's first token.

        Rewards before the first turn of a row, and those of rows without turns, belong to nobody.

        Raises:
            NonFiniteReward: A sum is NaN or infinite; names the row and the turn.
        """
        self._check_tokens("token_rewards", token_rewards)
        sums = _segment_sums(token_rewards.detach().reshape(-1), self._starts)
        owned = self._owner >= 0
        rewards: FloatArray = np.bincount(self._owner[owned], sums[owned], len(self)).astype(np.float64)
        if not (finite := np.isfinite(rewards)).all():
            turn = int(finite.argmin())
            raise NonFiniteReward(
                f"row {self.rows[turn]}, turn {self.columns[turn]}: reward {rewards[turn]} is not finite"
            )
        return rewards

    def at_first_tokens(self, name: str, tokens: torch.Tensor) -> FloatArray:
        """The value of a (rows, tokens) tensor at the first token of each turn."""
        self._check_tokens(name, tokens)
        first = torch.from_numpy(self._first_tokens).to(tokens.device)
        return to_numpy(tokens.detach().reshape(-1)[first].double())

    def suffix_sums(self, values: FloatArray, factor: float) -> FloatArray:
        """``s_t = x_t + factor * s_(t+1)`` within each row, in log2(turns) passes over all turns."""
        sums = np.array(values, dtype=np.float64)
        step, longest = 1, int(self.columns.max(initial=-1)) + 1
        with np.errstate(over="ignore", invalid="ignore"):
            while step < longest:  # sums[t] covers the rewards of turns t .. t + step - 1
                same_row = self.rows[step:] == self.rows[:-step]
                sums[:-step] += np.where(same_row, factor * sums[step:], 0.0)
                step, factor = 2 * step, factor * factor
        if not (finite := np.isfinite(sums)).all():
            raise NonFiniteReward(
                f"row {self.rows[int(finite.argmin())]}: its return does not fit in float64; "
                "rescale the rewards"
            )
        return sums

    def following(self, values: FloatArray, last: FloatArray) -> FloatArray:
        """The value of the next turn in the row; after the last one `last`, one entry per row."""
        shifted = last[self.rows]
        same_row = self.rows[1:] == self.rows[:-1]
        shifted[:-1][same_row] = values[1:][same_row]
        return shifted

    def spread(self, values: NDArray[Any], fill: float = 0) -> torch.Tensor:
        """Copy one number per turn to its response tokens; `fill` elsewhere.

        Returns:
            (rows, tokens) on the device of the mask, in the dtype of `values`.
        """
        of_segment = np.full(len(self._owner), fill, dtype=values.dtype)
        of_segment[self._on] = values[self._owner[self._on]]
        lengths = np.diff(self._starts, append=self._mask.numel())
        tokens = _repeat(of_segment, lengths, self._mask.device).view(self.shape)
        return tokens if self._hidden is None else tokens.masked_fill_(self._hidden, fill)

    def _check_tokens(self, name: str, tokens: torch.Tensor) -> None:
        if tokens.shape != self.shape or tokens.device != self._mask.device:
            raise ConfigError(
                f"{name} has shape {tuple(tokens.shape)} on {tokens.device}, but response_mask has shape "
                f"{tuple(self.shape)} on {self._mask.device}"
            )

    def _check_ids(self, turn_ids: torch.Tensor) -> torch.Tensor:
        """Turn ids with -1 in rows without response tokens; notes which turn tokens are masked out."""
        self._check_tokens("turn_ids", turn_ids)
        if turn_ids.is_floating_point() or turn_ids.is_complex() or turn_ids.dtype == torch.bool:
            raise ConfigError(f"turn_ids has dtype {turn_ids.dtype}; expected integers")
        labels = turn_ids.detach().masked_fill(~self._mask.any(1, keepdim=True), -1)
        in_turn = labels >= 0
        if (stray := self._mask & ~in_turn).any():
            row, token = stray.nonzero()[0].tolist()
            raise ConfigError(f"row {row}: token {token} is a response token without a turn id")
        hidden = in_turn & ~self._mask
        self._hidden = hidden if bool(hidden.any()) else None
        return labels.clamp_(min=-1).contiguous()


def _opens_turn(ids: NDArray[Any], on: NDArray[np.bool_], rows: IntArray) -> NDArray[np.bool_]:
    """Which segments begin a turn: those whose id is one more than the last one in the row."""
    ids_on, rows_on = ids[on].astype(np.int64), rows[on]
    previous = np.full(len(ids_on), -1, dtype=np.int64)
    same_row = rows_on[1:] == rows_on[:-1]
    previous[1:][same_row] = ids_on[:-1][same_row]
    step = ids_on - previous
    if (wrong := (step != 0) & (step != 1)).any():
        at = int(wrong.argmax())
        before = f"follows {previous[at]}" if previous[at] >= 0 else "comes first"
        raise ConfigError(
            f"row {rows_on[at]}: turn id {ids_on[at]} {before}; turn ids count from 0 without a gap, "
            "and are -1 off-response"
        )
    opens = np.zeros(len(ids), dtype=np.bool_)
    opens[on] = step == 1
    return opens


# numpy's segmented sum and repeat are 6 to 10 times as fast as torch's on the CPU, where both share
# memory; elsewhere torch's keep the tokens on the device.


def _is_host(device: torch.device) -> bool:
    return device.type == "cpu"


def _segment_sums(values: torch.Tensor, starts: IntArray) -> FloatArray:
    """float64 sums of the segments that begin at `starts` (the first at 0) and cover `values`."""
    if _is_host(values.device):
        if values.dtype in (torch.bfloat16, torch.float16):
            values = values.float()
        with np.errstate(over="ignore", invalid="ignore"):
            sums: FloatArray = np.add.reduceat(values.numpy(), starts, dtype=np.float64)
        return sums
    offsets = torch.from_numpy(np.append(starts, values.numel())).to(values.device)
    return to_numpy(torch.segment_reduce(values.double(), "sum", offsets=offsets))


def _repeat(values: NDArray[Any], lengths: IntArray, device: torch.device) -> torch.Tensor:
    """Each value as often as its length says."""
    if _is_host(device):
        return torch.from_numpy(np.repeat(values, lengths))
    return torch.repeat_interleave(
        torch.from_numpy(values).to(device),
        torch.from_numpy(lengths).to(device),
        output_size=int(lengths.sum()),
    )


def to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """A numpy array on the host."""
    array: NDArray[Any] = tensor.cpu().numpy()
    return array
