"""Whether the policy loss of a verl config pushes each turn of a row as its advantage says.

``actor.policy_loss.loss_mode`` names a function in verl's open registry. Most of them weigh each token by its
own advantage; some average the advantages of a row, so that a good turn raises the probability of a bad one.
No list can cover losses that users register, so the check calls the function that the run would call.

With several rows per episode, a loss that averages over rows needs a factor per row. `row_average` finds out
which one makes the gradient equal to that of one row per episode, in the same way.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, get_args

import torch
from omegaconf import open_dict
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.import_utils import import_external_libs

from gem_core._util.messages import error_line, unknown
from gem_core.errors import ConfigError
from gem_core.rollout._rows import RowSplit
from gem_core.trainers import EstimatorChoice
from gem_core.trainers._options import reject_listed
from gem_core.trainers._weights import RowAverage, row_factors
from gem_verl import _SUPPORTED

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
    row_advantages = _DIFFERENT if differ else _EQUAL
    try:
        advantages, gradient, _ = _probe(config, _actor_config(config), row_advantages)
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
            f"advantages {row_advantages[row]}, the loss has the gradient {gradient[row, token]:.3g} at a "
            f"token of advantage {advantages[row, token]:.3g}. "
            + (
                f"{choice.name} gives the turns of an episode different advantages; use another loss, or an "
                "estimator with one advantage per episode, such as gem_grpo"
                if differ
                else "Use another loss"
            )
        )


def row_average(config: Any, *, ratios: bool) -> RowAverage:
    """Return what the loss averages over, so that `row_factors` makes it independent of the rows.

    Args:
        config: The whole verl config, which `check_loss` accepts.
        ratios: Whether new and old log-probs differ, which shows a ratio of whole rows. False accepts such
            ratios, for rows that are turns by choice.

    Raises:
        ConfigError: No factor makes the gradient equal to that of one row per episode, or a term of the loss
            without an advantage averages over rows.
    """
    actor = _actor_config(config)

    def gradient(factors: Sequence[float] | None, ratios: bool) -> torch.Tensor:
        _, gradients, mask = _probe(config, actor, _DIFFERENT, factors, ratios=ratios)
        return gradients[mask > 0]

    lengths = [length for pair in _LENGTHS for length in pair]
    sizes, ones = torch.tensor(lengths), [1.0] * len(lengths)
    averages: tuple[RowAverage, ...] = get_args(RowAverage)
    for average in averages:
        factors = row_factors(average, lengths, [turn // 2 for turn in range(len(lengths))])
        scaled = gradient(ones, True) * torch.tensor(factors).repeat_interleave(sizes)
        pairs = [(gradient(factors, ratios), gradient(None, ratios)), (gradient(factors, True), scaled)]
        if all(torch.allclose(*pair, rtol=1e-4, atol=1e-7) for pair in pairs):
            reject_listed(_SUPPORTED, config, {"mean over rows": average != "tokens"})
            return average
    raise ConfigError(
        f"{OPTION}={actor.policy_loss.loss_mode} with loss_agg_mode={actor.loss_agg_mode} depends on how an "
        "episode is split into rows, and no factor makes up for it; with several rows per episode, use a "
        "loss per token, such as vanilla"
    )


def _actor_config(config: Any) -> Any:
    """Return what verl makes of the actor's section, without the checks of sizes: they need the GPUs."""
    section = copy.deepcopy(config.actor_rollout_ref.actor)
    with open_dict(section):
        section.ppo_micro_batch_size, section.ppo_micro_batch_size_per_gpu = None, 1
    return omega_conf_to_dataclass(section)


def _probe(
    config: Any,
    actor: Any,
    row_advantages: tuple[tuple[float, float], ...],
    factors: Sequence[float] | None = None,
    *,
    ratios: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return advantages, the gradient of the loss by the log-prob of each token, and the response mask.

    Args:
        config: The whole verl config.
        actor: What verl makes of its section for the actor.
        row_advantages: Advantages of the two turns of each row.
        factors: A factor for the advantages of each turn, with every turn in a row of its own; None leaves
            both turns in one row.
        ratios: Whether new and old log-probs differ. If they are equal, clipped ratios and penalties of
            distance do not matter.

    Returns:
        Three tensors of shape (rows, tokens).
    """
    actor = copy.deepcopy(actor)  # a loss may write to it
    shape = len(_LENGTHS), max(map(sum, _LENGTHS)) + 1
    advantages, turns = torch.zeros(shape), torch.full(shape, -1)
    for row, ((first, second), (one, two)) in enumerate(zip(row_advantages, _LENGTHS, strict=True)):
        for turn, start, stop, advantage in ((0, 0, one, first), (1, one + 1, one + 1 + two, second)):
            advantages[row, start:stop], turns[row, start:stop] = advantage, 2 * row + turn
    log_probs = -(torch.arange(turns.numel()) % 5 + 1.0).reshape(shape) / 4
    old = log_probs - ratios * (torch.arange(turns.numel()) % 7 - 3.0).reshape(shape) / 8
    mask = (turns >= 0).float()
    if factors is not None:
        numbers = torch.arange(len(factors))
        mask = (turns[numbers // 2] == numbers[:, None]).float()
        advantages = advantages[numbers // 2] * mask * torch.tensor(factors)[:, None]
        log_probs, old = log_probs[numbers // 2], old[numbers // 2]
    actor.global_batch_info.update(
        dp_size=1, batch_num_tokens=mask.sum().item(), global_batch_size=int(mask.any(1).sum()),
        loss_scale_factor=actor.loss_scale_factor,
    )  # fmt: skip
    correction = config.algorithm.get("rollout_correction") or {}
    weighted = correction.get("rollout_is") and not correction.get("bypass_mode")
    log_probs.requires_grad_()
    with torch.random.fork_rng(devices=[]):  # some losses drop random tokens
        value, _ = POLICY_LOSS_REGISTRY[actor.policy_loss.loss_mode](
            old_log_prob=old,
            log_prob=log_probs,
            advantages=advantages.clone(),
            response_mask=mask.bool(),
            loss_agg_mode=actor.loss_agg_mode,
            config=actor,
            rollout_is_weights=torch.ones_like(mask) if weighted else None,
        )
        (gradient,) = torch.autograd.grad(value, log_probs)
    return advantages, gradient, mask


def _turns_differ(choice: EstimatorChoice) -> bool:
    """Return whether an estimator gives the turns of an episode different advantages."""
    if set(choice.needs) - {"group_ids", "lengths"}:
        return True  # such as the values of a critic, one per turn
    mask = torch.tensor([[1, 0, 1, 0, 1]] * 3)
    rewards = 1000 * torch.tensor([[0.0, 0, 1, 0, 2], [3, 0, 0, 0, 1], [5, 0, 7, 0, 0]])
    # None of the episodes is truncated, which an option may ask for.
    advantages = choice.compute(rewards, mask, group_ids=[0] * 3, played=[None] * 3).advantages[:, ::2]
    return bool((advantages != advantages[:, :1]).any())
