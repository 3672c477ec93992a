"""Turns in (rows, tokens) tensors: find them, sum their rewards, and copy numbers per turn to tokens.

Only these three steps access every token, and they run on the device of the tensors. The steps in between
work on one number per turn, in float64 on the host, with the same code as the numpy form.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gem_core.advantages._batch import IntArray, Turns
from gem_core.advantages._inputs import describe, entries
from gem_core.advantages._stats import FloatArray
from gem_core.errors import ConfigError


class TurnLayout(Turns):
    """The turns of a batch of rows, in row-major order. A row is an episode.

    A row is divided into segments, which are runs of tokens with the same mask and turn id. A turn covers the
    segments from its first token up to the first token of the next turn. Finding segments, summing over them,
    and repeating a number over them accesses every token; all other work is per segment.

    Args:
        response_mask: (rows, tokens), bool or a number: 1 on response tokens, 0 elsewhere. A row that is 0
            everywhere (an episode that is not trainable, padding) has no turns.
        turn_ids: (rows, tokens), integers: the index of the turn within its row, counted from 0 without
            gaps; -1 elsewhere. Tokens of a turn whose mask is 0 get no advantage, but the turn still counts.
            None treats every run of response tokens as a turn.
        token_rewards: (rows, tokens), any float dtype. The reward of a turn is the sum from its first token
            up to the next turn's first token; rewards before the first turn of a row and rewards in rows
            without turns are ignored. None means 0 everywhere.

    Attributes:
        shape: Shape of the mask.

    Raises:
        ConfigError: An argument is not a tensor, shapes do not match, the mask holds values other than 0
            and 1, or turn ids have a gap; the message names the row.
        NonFiniteReward: The reward of a turn is NaN or infinite; the message names the row and the turn.
    """

    noun = "row"

    def __init__(
        self,
        response_mask: torch.Tensor,
        turn_ids: torch.Tensor | None = None,
        token_rewards: torch.Tensor | None = None,
    ) -> None:
        check_tensor("response_mask", response_mask)
        if response_mask.ndim != 2:
            raise ConfigError(
                f"response_mask has shape {tuple(response_mask.shape)}: expected (rows, tokens)"
            )
        self.shape = response_mask.shape
        self._device = response_mask.device
        labels = [response_mask.detach().contiguous()]
        if turn_ids is not None:
            self._check_tokens("turn_ids", turn_ids)
            if turn_ids.is_floating_point() or turn_ids.is_complex() or turn_ids.dtype == torch.bool:
                raise ConfigError(f"turn_ids has dtype {turn_ids.dtype}: expected integers")
            labels.append(turn_ids.detach().contiguous())

        self._starts = _segment_starts(labels)
        rows = self._starts // max(self.shape[1], 1)
        begins_row = np.diff(rows, prepend=-1) > 0
        mask = _take(labels[0], self._starts)  # has every value of the mask: a new value begins a segment
        response = mask == 1
        if (other := ~response & (mask != 0)).any():
            at = int(other.argmax())
            raise ConfigError(_wrong_mask(mask[at], int(rows[at])))
        if turn_ids is None:
            shown, opens = response, response.copy()
            opens[1:] &= ~response[:-1] | begins_row[1:]
        else:
            ids = _take(labels[1], self._starts)
            trainable = np.bincount(rows[response], minlength=self.shape[0]) > 0
            in_turn = (ids >= 0) & trainable[rows]
            shown = in_turn & response
            if (stray := response & ~in_turn).any():
                row, token = divmod(int(self._starts[stray][0]), self.shape[1])
                raise ConfigError(f"row {row}: token {token} is a response token without a turn id")
            opens = _opens_turn(ids, in_turn, rows)

        first = np.flatnonzero(opens)
        self._first_tokens: IntArray = self._starts[first]
        # Rewards are summed from the first token of a turn or row up to the next such token.
        spans = np.flatnonzero(opens | begins_row)
        self._span_starts: IntArray = self._starts[spans]
        self._span_is_turn = opens[spans]
        # The turn whose value each segment gets; -1 for no turn.
        self._turn_of_segment: IntArray = np.where(shown, np.cumsum(opens) - 1, -1)
        rewards = np.zeros(len(first))
        if token_rewards is not None:
            rewards = self._sum("token_rewards", token_rewards)
        super().__init__(rewards, rows[first], self.shape[0])

    def per_turn(self, name: str, data: Any) -> FloatArray:
        """Return the value of a (rows, tokens) tensor at the first token of each turn."""
        self._check_tokens(name, data)
        values = _take(data.detach().contiguous(), self._first_tokens).astype(np.float64)
        return self.check_finite(name, values)

    def components(self, name: str, data: Any) -> FloatArray:
        """Return the sums over each turn of a (rows, tokens, components) tensor."""
        check_tensor(name, data)
        if data.ndim != 3:
            raise ConfigError(f"{name} has shape {tuple(data.shape)}: expected (rows, tokens, components)")
        sums = [self._sum(name, component) for component in data.unbind(2)]
        return self.check_finite(name, np.stack(sums, axis=1) if sums else np.zeros((len(self), 0)))

    def turn_keys(self, name: str, data: Any) -> list[Hashable]:
        """Return the key of each turn; the keys of rows without turns are ignored."""
        played = set(self.rows[self.starts].tolist())
        rows = enumerate(entries(name, data, self.episodes, self.noun))
        return super().turn_keys(name, [keys if row in played else () for row, keys in rows])

    def lengths(self, data: Any) -> FloatArray:
        """Return the number of response tokens of each turn.

        Args:
            data: (rows, tokens), the number at the first token of each turn. None counts the tokens in the
                mask.
        """
        if data is not None:
            return self.per_turn("lengths", data)
        tokens = np.diff(self._starts, append=self.shape.numel()).astype(np.float64)
        counted = self._turn_of_segment >= 0
        lengths = np.bincount(self._turn_of_segment[counted], tokens[counted], minlength=len(self))
        return np.asarray(lengths, dtype=np.float64)

    def spread(self, values: NDArray[Any], fill: float = 0) -> torch.Tensor:
        """Copy one number per turn to its response tokens; `fill` elsewhere.

        Returns:
            (rows, tokens) on the device of the mask, in the dtype of `values`.
        """
        segment_values = np.append(values, np.array(fill, values.dtype))[self._turn_of_segment]
        lengths = np.diff(self._starts, append=self.shape.numel())
        return _repeat(segment_values, lengths, self._device).view(self.shape)

    def _sum(self, name: str, token_rewards: torch.Tensor) -> FloatArray:
        """Return the sum over each turn, from its first token up to the next turn's first token."""
        self._check_tokens(name, token_rewards)
        sums = _segment_sums(token_rewards.detach().reshape(-1), self._span_starts, self.shape[1])
        turn_sums: FloatArray = sums[self._span_is_turn]
        return turn_sums

    def _check_tokens(self, name: str, tokens: torch.Tensor) -> None:
        check_tensor(name, tokens)
        if tokens.shape != self.shape or tokens.device != self._device:
            raise ConfigError(
                f"{name} has shape {tuple(tokens.shape)} on {tokens.device}, but response_mask has shape "
                f"{tuple(self.shape)} on {self._device}"
            )


def check_tensor(name: str, value: object) -> None:
    """Raise a ConfigError unless `value` is a tensor."""
    if not isinstance(value, torch.Tensor):
        raise ConfigError(
            f"{name} is {describe(value)}: expected a torch.Tensor, such as torch.as_tensor({name}). Lists "
            "of turn rewards go to the estimator itself, for example rebn(turn_rewards)."
        )


def _wrong_mask(value: object, row: int) -> str:
    return f"row {row}: response_mask holds {value}: expected 1 on response tokens and 0 elsewhere"


def _opens_turn(ids: NDArray[Any], mask: NDArray[np.bool_], rows: IntArray) -> NDArray[np.bool_]:
    """Return which segments begin a turn: those whose id is one more than the previous id in the row."""
    ids_on, rows_on = ids[mask].astype(np.int64), rows[mask]
    previous = np.full(len(ids_on), -1, dtype=np.int64)
    same_row = rows_on[1:] == rows_on[:-1]
    previous[1:][same_row] = ids_on[:-1][same_row]
    step = ids_on - previous
    if (wrong := (step != 0) & (step != 1)).any():
        at = int(wrong.argmax())
        before = f"follows {previous[at]}" if previous[at] >= 0 else "comes first"
        raise ConfigError(
            f"row {rows_on[at]}: turn id {ids_on[at]} {before}; turn ids count from 0 without a gap, "
            "and are -1 elsewhere"
        )
    opens = np.zeros(len(ids), dtype=np.bool_)
    opens[mask] = step == 1
    return opens


# Passes over all tokens. On the CPU, numpy shares the memory of the tensors; one numpy thread finds, sums and
# repeats segments of (1024, 4096) tokens in 8 ms, two torch threads need 60 ms (AMD EPYC, 2 cores). On other
# devices, torch keeps the tokens on the device.

BLOCK = 1 << 18
"""Maximum number of values to cast at a time: 2 MiB of float64."""


def _is_host(device: torch.device) -> bool:
    return device.type == "cpu"


def to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a numpy array on the host; bfloat16, which numpy lacks, becomes float32."""
    array: NDArray[Any] = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).cpu().numpy()
    return array


def _segment_starts(labels: list[torch.Tensor]) -> IntArray:
    """Return the flat positions where a row begins or one of the (rows, tokens) labels changes."""
    if _is_host(labels[0].device):
        rows, length = labels[0].shape
        step = max(BLOCK // max(length, 1), 1)
        begins, differs = np.ones((2, min(rows, step), length), dtype=np.bool_)
        positions = []
        arrays = [to_numpy(label) for label in labels]
        for first in range(0, rows, step):
            blocks = [array[first : first + step] for array in arrays]
            marks, other = begins[: len(blocks[0]), 1:], differs[: len(blocks[0]), 1:]
            np.not_equal(blocks[0][:, 1:], blocks[0][:, :-1], out=marks)
            for block in blocks[1:]:
                np.not_equal(block[:, 1:], block[:, :-1], out=other)
                np.logical_or(marks, other, out=marks)
            positions.append(np.flatnonzero(begins[: len(blocks[0])]) + first * length)
        return np.concatenate([*positions, np.zeros(0, dtype=np.intp)])
    begin = torch.ones_like(labels[0], dtype=torch.bool)
    begin[:, 1:] = torch.stack([label[:, 1:] != label[:, :-1] for label in labels]).any(0)
    return to_numpy(begin.view(-1).nonzero().squeeze(1))


def _take(tokens: torch.Tensor, positions: IntArray) -> NDArray[Any]:
    """Return the values at flat positions."""
    if _is_host(tokens.device):
        return to_numpy(tokens).reshape(-1)[positions]
    return to_numpy(tokens.view(-1)[torch.from_numpy(positions).to(tokens.device)])


def _segment_sums(values: torch.Tensor, starts: IntArray, row_length: int) -> FloatArray:
    """Return the float64 sums of the segments that begin at `starts` (the first at 0) and cover `values`."""
    if not _is_host(values.device):
        offsets = torch.from_numpy(np.append(starts, values.numel())).to(values.device)
        return to_numpy(torch.segment_reduce(values.double(), "sum", offsets=offsets))
    array = to_numpy(values)
    sums = np.zeros(len(starts))
    # reduceat is slow if it has to cast, so blocks of whole rows that fit the cache are cast first.
    block = np.empty(min(len(array), max(BLOCK // max(row_length, 1), 1) * row_length))
    first = 0
    with np.errstate(over="ignore", invalid="ignore"):
        for begin in range(0, len(array), max(len(block), 1)):
            part = array[begin : begin + len(block)]
            last = int(np.searchsorted(starts, begin + len(part)))
            np.copyto(block[: len(part)], part)
            np.add.reduceat(block[: len(part)], starts[first:last] - begin, out=sums[first:last])
            first = last
    return sums


def _repeat(values: NDArray[Any], lengths: IntArray, device: torch.device) -> torch.Tensor:
    """Repeat each value by its length."""
    if _is_host(device):
        return torch.from_numpy(np.repeat(values, lengths))
    index = torch.from_numpy(lengths).to(device)
    return torch.from_numpy(values).to(device).repeat_interleave(index, output_size=int(lengths.sum()))
