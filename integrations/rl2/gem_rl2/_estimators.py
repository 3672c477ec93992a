"""``adv.estimator=rebn`` and gem_core's other estimators, behind RL2's `compute_advantages`.

They work on the rows of any environment file, gem_rl2's or your own. Turns are numbered along each trajectory
before RL2 packs its action tokens together. The numbers are packed as an additional tensor, so turns that
become adjacent stay distinct. RL2's own code around the estimator still runs: its KL penalties, packing, and
timing.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gem_chat._failures import nothing_trainable
from gem_core.advantages._tensors import Advantages, turn_ids_from_mask
from gem_core.rollout import Episode
from gem_core.trainers._baselines import subtract_baselines
from gem_core.trainers._estimators import TurnLog
from gem_rl2 import _SUPPORTED
from gem_rl2._options import choose_estimator
from gem_rl2._upstream import Upstream

TURN_IDS = "gem_turn_ids"
_log_turns = TurnLog(logging.getLogger(__name__))


@dataclass(frozen=True)
class AdvantageHook:
    """Replaces the `compute_advantages` that RL2's trainer looks up.

    Attributes:
        upstream: The installed RL2.
        failures_are_nan: Whether a reward of NaN marks a trajectory whose environment failed; otherwise it is
            an error.
        updates: Number of parts that RL2 cuts a batch into (``actor.update_per_rollout``).
        episodes: Function that returns all episodes of this batch, for messages.
    """

    upstream: Upstream
    failures_are_nan: bool = False
    updates: int = 1
    episodes: Callable[[], Sequence[Episode]] = tuple

    def __call__(self, config: Any, tensor_dict: dict[str, torch.Tensor], cu_seqs: Any, step: int) -> None:
        """Add "advantages" to `tensor_dict`.

        Args:
            config: RL2's whole config, or its section ``adv`` in the version of the package index.
            tensor_dict: Tensors of shape (rows, tokens); the action mask is 1 for sampled tokens.
            cu_seqs: Offsets of shape (trajectories + 1,); the rows of trajectory i start at ``cu_seqs[i]``.
            step: Training step.

        Raises:
            EnvError: There are fewer trainable rows than updates; the message names the first failed episode.
        """
        if self.failures_are_nan:
            leave_out_failed(tensor_dict, cu_seqs)
        if int(tensor_dict["action_mask"].any(1).sum()) < self.updates:
            raise nothing_trainable(self.episodes(), f"step {step}, one of {self.updates} updates")
        adv = config if self.upstream.is_index else config.adv
        if str(adv.estimator) not in _SUPPORTED.own_estimators:
            self._estimate(config, adv, tensor_dict, cu_seqs, step)
        else:
            reinforce = functools.partial(reinforce_of_valid, over_batch=not self.upstream.is_index)
            failed = not any_row(tensor_dict["action_mask"].any(1), cu_seqs).all()
            with self.upstream.with_reinforce(reinforce) if failed else contextlib.nullcontext():
                self.upstream.compute_advantages(config, tensor_dict, cu_seqs, step)
        spread_over_updates(tensor_dict, self.updates)

    def _estimate(
        self, config: Any, adv: Any, tensor_dict: dict[str, torch.Tensor], cu_seqs: Any, step: int
    ) -> None:
        from omegaconf import OmegaConf
        from RL2.utils.logging import rank0_log

        choice = choose_estimator(adv)
        results: list[Advantages] = []

        def compute(packed: Mapping[str, torch.Tensor], responses_per_prompt: int, *unused: object) -> Any:
            on = packed["action_mask"] != 0
            result = choice.compute(
                packed["rewards"],
                on,
                turn_ids=torch.where(on, packed[TURN_IDS], -1),  # RL2 pads with 0
                group_ids=(torch.arange(len(on)) // responses_per_prompt).tolist(),
            )
            results.append(result)
            return {"advantages": result.advantages}

        changes = {"estimator": "reinforce"}
        changed = OmegaConf.merge(config, changes if self.upstream.is_index else {"adv": changes})
        tensor_dict[TURN_IDS] = turn_ids_of(tensor_dict["action_mask"], cu_seqs)
        try:
            with self.upstream.with_reinforce(compute):
                self.upstream.compute_advantages(changed, tensor_dict, cu_seqs, step)
        finally:
            del tensor_dict[TURN_IDS]
        stats = results[0].stats
        _log_turns(choice.name, stats, "the runs of action tokens in each row, with RL2's token rewards")
        if stats.count:
            rank0_log({name: [value] for name, value in stats.metrics().items()}, step)


def turn_ids_of(action_mask: torch.Tensor, cu_seqs: Any) -> torch.Tensor:
    """Return the index of each token's turn in its trajectory, int64 (rows, tokens); -1 for other tokens.

    A turn is a run of action tokens within one row.
    """
    turn_ids = turn_ids_from_mask(action_mask != 0)  # counted in each row
    in_row = turn_ids.amax(1) + 1
    before = in_row.cumsum(0) - in_row  # turns in earlier rows of the batch
    bounds = torch.as_tensor(cu_seqs, device=before.device)
    first_rows = torch.repeat_interleave(bounds[:-1], bounds.diff())
    return torch.where(turn_ids >= 0, turn_ids + (before - before[first_rows])[:, None], -1)


def leave_out_failed(tensor_dict: dict[str, torch.Tensor], cu_seqs: Any) -> None:
    """Mask out the trajectories with a NaN reward, so that they have no turns and no loss."""
    bounds = torch.as_tensor(cu_seqs, device=tensor_dict["rewards"].device)
    failed = any_row(torch.isnan(tensor_dict["rewards"]).any(1), cu_seqs)
    rows = torch.repeat_interleave(failed, bounds.diff())
    for name in {"action_mask", "rewards", "llm_logps", "old_logps", "ref_logps"} & tensor_dict.keys():
        tensor_dict[name][rows] = 0


def any_row(rows: torch.Tensor, cu_seqs: Any) -> torch.Tensor:
    """Return, as bool (trajectories,), whether the bool tensor `rows` is true in any row of a trajectory."""
    return torch.stack([rows[start:end].any() for start, end in itertools.pairwise(map(int, cu_seqs))])


def reinforce_of_valid(
    tensor_dict: Mapping[str, torch.Tensor],
    responses_per_prompt: int,
    global_norm: bool,
    norm_var: bool,
    *,
    over_batch: bool,
) -> dict[str, torch.Tensor]:
    """Compute RL2's estimator "reinforce" with its baseline over the trajectories that did not fail.

    Args:
        tensor_dict: Tensors of shape (trajectories, tokens).
        responses_per_prompt: Number of trajectories per prompt, which are adjacent.
        global_norm: Whether to compute the baseline over the whole batch.
        norm_var: Whether to divide by the standard deviation as well.
        over_batch: Whether to compare a single response per prompt with the whole batch.
    """
    mask = tensor_dict["action_mask"]
    whole = global_norm or (over_batch and responses_per_prompt == 1)
    groups = (1, -1) if whole else (-1, responses_per_prompt)
    advantages, std = subtract_baselines(
        tensor_dict["rewards"].sum(-1).view(groups), mask.any(-1).view(groups)
    )
    if norm_var:
        advantages = advantages / (std + torch.finfo(advantages.dtype).eps)
    return {"advantages": advantages.view(-1, 1) * mask}


def spread_over_updates(tensor_dict: dict[str, torch.Tensor], updates: int) -> None:
    """Keep the rows of failed episodes out of RL2's updates, in place.

    RL2 counts rows and reads their lengths by their end-of-sequence marks, so the mark of such a row is
    removed. RL2 cuts the rows into `updates` parts of equal size; if a part would consist of failed episodes
    only, the rows are reordered.

    Args:
        tensor_dict: Tensors of shape (rows, tokens); at least `updates` rows have a sampled token.
        updates: Number of parts.
    """
    on = tensor_dict["action_mask"].any(1)
    tensor_dict["eos_mask"] = tensor_dict["eos_mask"] * on[:, None]
    numbers, size = torch.arange(len(on), device=on.device), math.ceil(len(on) / updates)
    if all(part.any() for part in on.split(size)):
        return
    begins = numbers % size == 0
    first = numbers[on][: int(begins.sum())]
    order = numbers.clone()
    order[begins], order[~begins] = first, numbers[~torch.isin(numbers, first)]
    for name, values in tensor_dict.items():
        tensor_dict[name] = values[order]
