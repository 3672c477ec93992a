"""``adv.estimator=rebn`` and its kin: gem_core's estimators behind RL2's `compute_advantages`.

They work on the rows of any environment file: gem_rl2's or your own. Turns are numbered along a
trajectory before RL2 packs its action tokens together, and the numbers ride through that as one more
tensor, so two turns that come to touch stay two. RL2's own code around the estimator stays: its KL
penalties, its packing, its timing.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from gem_core.advantages.registry import get_estimator
from gem_core.advantages.stats import ReturnStats
from gem_core.errors import EnvError
from gem_rl2.options import ESTIMATORS, estimator_options
from gem_rl2.upstream import Upstream

logger = logging.getLogger(__name__)

TURN_IDS = "gem_turn_ids"


class AdvantageHook:
    """Stands where RL2 looks up `compute_advantages`.

    Args:
        upstream: The RL2 that calls it.
        failures_are_nan: A reward that is NaN says that the environment of its trajectory failed;
            otherwise it is an error.
        updates: In how many parts RL2 cuts a batch, ``actor.update_per_rollout``.
        kl_in_loss: Whether RL2 has a KL term in its loss.
        failure: Says which episode of this batch failed first; None where nobody knows.
    """

    def __init__(
        self,
        upstream: Upstream,
        *,
        failures_are_nan: bool = False,
        updates: int = 1,
        kl_in_loss: bool = False,
        failure: Callable[[], str] | None = None,
    ) -> None:
        self._upstream = upstream
        self._failures_are_nan = failures_are_nan
        self._updates = updates
        self._kl_in_loss = kl_in_loss
        self._failure = failure
        self._told = False

    def __call__(self, config: Any, tensor_dict: dict[str, torch.Tensor], cu_seqs: Any, step: int) -> None:
        """Add "advantages" to `tensor_dict`.

        Args:
            config: RL2's whole config, or in the version of the package index its section ``adv``.
            tensor_dict: (rows, tokens) each; the action mask is 1 where a token was sampled.
            cu_seqs: (trajectories + 1,): trajectory i has the rows from ``cu_seqs[i]`` on.
            step: Of the training.

        Raises:
            EnvError: No episode of an update is trainable, and the loss has a KL term.
        """
        if self._failures_are_nan:
            leave_out_failed(tensor_dict, cu_seqs)
        adv = config if self._upstream.is_index else config.adv
        if str(adv.estimator) in ESTIMATORS:
            self._estimate(config, adv, tensor_dict, cu_seqs, step)
        else:
            self._upstream.compute_advantages(config, tensor_dict, cu_seqs, step)
        added = keep_finite(tensor_dict, self._updates)
        if added and self._kl_in_loss:
            # Its reference log-prob stands as 0, which is a probability of 1, and its KL would be trained on.
            first = f"; the first: {self._failure()}" if self._failure is not None else ""
            raise EnvError(
                f"{added} of the {self._updates} updates of step {step} have no episode that can be trained "
                "on, and the KL term of actor.kl.type=loss needs one; mend the environments, or take fewer "
                f"updates (actor.update_per_rollout) or more episodes a step{first}"
            )

    def _estimate(
        self, config: Any, adv: Any, tensor_dict: dict[str, torch.Tensor], cu_seqs: Any, step: int
    ) -> None:
        from omegaconf import OmegaConf

        name = str(adv.estimator)
        estimator = get_estimator(ESTIMATORS[name])
        options = {"gamma": float(adv.gamma), **estimator_options(adv)}
        stats = ReturnStats()

        def credit(
            packed: Mapping[str, torch.Tensor], responses_per_prompt: int, *unused: object
        ) -> dict[str, torch.Tensor]:
            nonlocal stats
            if "group_ids" in estimator.needs:
                count = len(packed["action_mask"])
                options["group_ids"] = torch.arange(count) // responses_per_prompt
            on = packed["action_mask"] != 0
            turn_ids = torch.where(on, packed[TURN_IDS], -1)  # RL2 pads with 0
            result = estimator.tensors()(packed["rewards"], on, turn_ids=turn_ids, **options)
            stats = result.stats
            return {"advantages": result.advantages}

        instead = {"estimator": "reinforce"}
        changed = OmegaConf.merge(config, instead if self._upstream.is_index else {"adv": instead})
        algorithms, reinforce = self._upstream.algorithms, self._upstream.reinforce
        original = getattr(algorithms, reinforce)
        tensor_dict[TURN_IDS] = turn_ids_of(tensor_dict["action_mask"], cu_seqs)
        setattr(algorithms, reinforce, credit)
        try:
            self._upstream.compute_advantages(changed, tensor_dict, cu_seqs, step)
        finally:
            setattr(algorithms, reinforce, original)
            del tensor_dict[TURN_IDS]
        self._report(name, stats, step)

    def _report(self, name: str, stats: ReturnStats, step: int) -> None:
        from RL2.utils.logging import rank0_log

        if not self._told:
            self._told = True
            logger.info(
                "%s: %d turns in this batch, taken from the runs of action tokens in each row; their rewards "
                "are the sums of RL2's token rewards",
                name,
                int(stats.count),
            )
        if stats.count:
            rank0_log({name: [value] for name, value in stats.metrics().items()}, step)


def turn_ids_of(action_mask: torch.Tensor, cu_seqs: Any) -> torch.Tensor:
    """int64 (rows, tokens): turns counted along a trajectory, -1 off-action.

    A turn is a run of action tokens within one row.
    """
    on = (action_mask != 0).long()
    begins = on.clone()
    begins[:, 1:] *= 1 - on[:, :-1]
    number = begins.reshape(-1).cumsum(0).view_as(on)  # counted over the whole batch
    in_row = begins.sum(1)
    before = in_row.cumsum(0) - in_row  # turns in earlier rows
    bounds = torch.as_tensor(cu_seqs, device=on.device)
    first_rows = torch.repeat_interleave(bounds[:-1], bounds[1:] - bounds[:-1])
    return torch.where(on != 0, number - 1 - before[first_rows][:, None], -1)


def leave_out_failed(tensor_dict: dict[str, torch.Tensor], cu_seqs: Any) -> None:
    """Mask the trajectories that hold a reward which is NaN: no turns, no loss."""
    bounds = [int(bound) for bound in cu_seqs]
    for start, end in itertools.pairwise(bounds):
        if torch.isnan(tensor_dict["rewards"][start:end]).any():
            for name in ("action_mask", "rewards", "llm_logps", "old_logps", "ref_logps"):
                if name in tensor_dict:
                    tensor_dict[name][start:end] = 0


def keep_finite(tensor_dict: dict[str, torch.Tensor], updates: int) -> int:
    """RL2 divides the loss of an update by its number of action tokens: let that be at least one.

    Where no episode of an update is trainable, one token without an advantage stands for them all. RL2 has
    computed its log-probs by then, and left those of this token at 0.

    Returns:
        In how many updates there was none.
    """
    added = 0
    mask = tensor_dict["action_mask"]
    size = math.ceil(len(mask) / updates)
    for start in range(0, len(mask), size):
        if not mask[start : start + size].any():
            mask[start, 0] = 1
            added += 1
    return added
