"""Numbers with which OpenRLHF would fail in its first step, train on nothing, or turn a sign around."""

from __future__ import annotations

from typing import Any

from gem_core._util.checks import check_int, check_number
from gem_core.trainers._options import option_at

_SIZES = (
    "rollout.batch_size", "rollout.n_samples_per_prompt", "rollout.micro_batch_size",
    "rollout.max_new_tokens", "rollout.max_tokens_per_gpu", "train.batch_size", "train.micro_batch_size",
    "train.max_epochs", "train.num_episodes", "train.max_tokens_per_gpu", "train.async_queue_size",
    "data.max_len", "data.max_samples", "eval.n_samples_per_prompt", "logger.logging_steps", "ds.zpg",
    "ds.tensor_parallel_size",
)  # fmt: skip
"""Flags with a whole number of at least 1."""
_POSITIVE = {"rollout.temperature": None, "rollout.top_p": 1}
"""Flags with a number above 0, and their upper bounds."""
_NOT_NEGATIVE = (
    "eval.temperature", "actor.eps_clip", "critic.value_clip", "actor.adam.lr", "critic.adam.lr",
    "actor.max_norm", "algo.kl.init_coef",
)  # fmt: skip
"""Flags with a number of at least 0."""


def check_numbers(args: Any) -> None:
    """Reject numbers that OpenRLHF would take without an error.

    Args:
        args: OpenRLHF's flags, nested as in its trainers. None leaves a number to OpenRLHF.

    Raises:
        ConfigError: A number is out of range.
    """
    for name in _SIZES:
        check_int(f"--{name}", option_at(args, name), 1, optional=True)
    for name, high in _POSITIVE.items():
        check_number(f"--{name}", option_at(args, name), above=0, high=high, optional=True)
    for name in _NOT_NEGATIVE:
        check_number(f"--{name}", option_at(args, name), 0, optional=True)
