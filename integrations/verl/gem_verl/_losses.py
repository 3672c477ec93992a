"""Whether the policy loss of a verl config pushes each turn of a row as its advantage says.

``actor.policy_loss.loss_mode`` names a function in verl's open registry. Most of them weigh each token by its
own advantage; some average the advantages of a row, so that a good turn raises the probability of a bad one.
No list can cover losses that users register, so the check calls the function that the run would call.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from omegaconf import open_dict
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.import_utils import import_external_libs

from gem_core._util.messages import error_line, unknown
from gem_core.errors import ConfigError
from gem_core.rollout._rows import RowSplit
from gem_core.trainers import EstimatorChoice

OPTION = "actor_rollout_ref.actor.policy_loss.loss_mode"

_DIFFERENT = ((1.0, -0.25), (-0.25, 1.0), (-1.0, -0.125), (1.0, 0.125), (0.0, 1.0), (-0.5, 2.0), (0.0, 0.0))
"""Advantages of the two turns of each row. The last row only fills the batch."""
_EQUAL = ((1.0, 1.0), (-0.25, -0.25), (-1.0, -1.0), (0.125, 0.125), (0.0, 0.0), (2.0, 2.0), (0.0, 0.0))
_LENGTHS = ((2, 3), (4, 1), (1, 3), (3, 2), (2, 2), (1, 1), (0, 0))
"""Response tokens of the two turns of each row; one token of an observation is between them."""


def check_loss(config: Any, choice: EstimatorChoice, rows: RowSplit) -> None:
    """Reject a policy loss that pushes tokens against the advantages that the estimator gives them.

    Args:
        config: The whole verl config.
        choice: Estimator of the run.
        rows: How episodes are split into rows; with "turn", no row has several turns.

    Raises:
        ConfigError: The loss is unknown, fails, or pushes a token against its advantage.
    """
    import_external_libs(config.actor_rollout_ref.model.get("external_lib"))  # may register losses
    mode = config.actor_rollout_ref.actor.policy_loss.get("loss_mode", "vanilla")
    if mode not in POLICY_LOSS_REGISTRY:
        raise ConfigError(f"{OPTION}: {unknown('policy loss', mode, POLICY_LOSS_REGISTRY)}")
    differ = rows == "auto" and _turns_differ(choice)
    of_rows = _DIFFERENT if differ else _EQUAL
    try:
        advantages, gradient = _probe(config, POLICY_LOSS_REGISTRY[mode], of_rows)
    except Exception as error:
        cause = error.__cause__ or error  # Hydra wraps the errors of verl's config classes
        raise ConfigError(
            f"{OPTION}={mode} fails on a batch of two-turn rows: {error_line(cause)}"
        ) from error
    wrong = (gradient * advantages > 0) | ((advantages == 0) & (gradient != 0)) | ~gradient.isfinite()
    if wrong.any() or not gradient.any():
        row, token = max(wrong.nonzero().tolist(), default=[0, 0])
        raise ConfigError(
            f"{OPTION}={mode} does not weigh each token by its own advantage: in a row whose turns have the "
            f"advantages {of_rows[row]}, the loss has the gradient {gradient[row, token]:.3g} at a token of "
            f"advantage {advantages[row, token]:.3g}. "
            + (
                f"{choice.name} gives the turns of an episode different advantages; use another loss, or an "
                "estimator with one advantage per episode, such as gem_grpo"
                if differ
                else "Use another loss"
            )
        )


def _probe(
    config: Any, loss: Any, of_rows: tuple[tuple[float, float], ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return advantages, and the gradient of the loss by the log-prob of each token, both (rows, tokens).

    Old and new log-probs are equal, so clipped ratios and penalties of distance do not matter.
    """
    section = copy.deepcopy(config.actor_rollout_ref.actor)
    with open_dict(section):  # verl checks the sizes later, with the number of GPUs
        section.ppo_micro_batch_size, section.ppo_micro_batch_size_per_gpu = None, 1
    actor = omega_conf_to_dataclass(section)
    shape = len(_LENGTHS), max(map(sum, _LENGTHS)) + 1
    advantages, mask = torch.zeros(shape), torch.zeros(shape)
    for row, ((first, second), (one, two)) in enumerate(zip(of_rows, _LENGTHS, strict=True)):
        for start, stop, advantage in ((0, one, first), (one + 1, one + 1 + two, second)):
            advantages[row, start:stop], mask[row, start:stop] = advantage, 1.0
    actor.global_batch_info.update(
        dp_size=1, batch_num_tokens=mask.sum().item(), global_batch_size=int(mask.any(1).sum()),
        loss_scale_factor=actor.loss_scale_factor,
    )  # fmt: skip
    correction = config.algorithm.get("rollout_correction") or {}
    weighted = correction.get("rollout_is") and not correction.get("bypass_mode")
    log_probs = (-(torch.arange(mask.numel()) % 5 + 1.0).reshape(shape) / 4).requires_grad_()
    with torch.random.fork_rng(devices=[]):  # some losses drop random tokens
        value, _ = loss(
            old_log_prob=log_probs.detach(),
            log_prob=log_probs,
            advantages=advantages.clone(),
            response_mask=mask.bool(),
            loss_agg_mode=actor.loss_agg_mode,
            config=actor,
            rollout_is_weights=torch.ones(shape) if weighted else None,
        )
        (gradient,) = torch.autograd.grad(value, log_probs)
    return advantages, gradient


def _turns_differ(choice: EstimatorChoice) -> bool:
    """Return whether an estimator gives the turns of an episode different advantages."""
    if set(choice.needs) - {"group_ids", "lengths"}:
        return True  # such as the values of a critic, one per turn
    mask = torch.tensor([[1, 0, 1, 0, 1]] * 3)
    rewards = 1000 * torch.tensor([[0.0, 0, 1, 0, 2], [3, 0, 0, 0, 1], [5, 0, 7, 0, 0]])
    advantages = choice.compute(rewards, mask, group_ids=[0] * 3).advantages[:, ::2]
    return bool((advantages != advantages[:, :1]).any())
