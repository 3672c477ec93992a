"""The interface of TRL that this plugin overrides or calls."""

from __future__ import annotations

import inspect

import trl
from trl import GRPOTrainer
from trl import models as trl_models
from trl.trainer import utils as trl_utils

from gem_core.trainers import expect, expect_arguments
from gem_core.trainers._interface import unsupported
from gem_trl import _SUPPORTED

EXPECTED = {
    "_generate_and_score_completions": ("self", "inputs"),
    "_calculate_rewards": ("self", "inputs", "prompts", "completions", "completion_ids_list"),
    "_compute_loss": ("self", "model", "inputs"),
    "_tokenize_prompts": ("self", "prompts"),
    "evaluate": ("self", "eval_dataset", "ignore_keys", "metric_key_prefix"),
    "log": ("self", "logs", "start_time"),
}
"""Names of the parameters, by method of `GRPOTrainer`."""
ARGUMENTS = (
    "reward_funcs",
    "reward_processing_classes",
    "args",
    "train_dataset",
    "eval_dataset",
    "tools",
    "rollout_func",
    "environment_factory",
)
"""Arguments of `GRPOTrainer`."""
TOKEN_ADVANTAGES = "if advantages.dim() == 1:"
"""Text in the source of a loss that accepts advantages of shape (rows, tokens)."""


def check() -> None:
    """Check that this plugin's overrides take effect in the installed TRL.

    Raises:
        UnsupportedTrainer: TRL is missing or has another interface; the message names the difference.
    """
    _SUPPORTED.require()
    for name, parameters in EXPECTED.items():
        expect(_SUPPORTED, GRPOTrainer, name, *parameters)
    first = ("model", "accelerator", "gather_deepspeed3_params")
    expect(_SUPPORTED, trl_models, "unwrap_model_for_generation", *first, exact=False)
    expect_arguments(_SUPPORTED, trl, "GRPOTrainer", ARGUMENTS)
    if TOKEN_ADVANTAGES not in inspect.getsource(GRPOTrainer._compute_loss):
        raise unsupported(_SUPPORTED, "its loss does not accept an advantage per token")
    if getattr(trl_utils, "_ChunkedLogProbFunction", "absent") is None:  # 1.15, whose loss always calls it
        raise unsupported(_SUPPORTED, "its loss needs triton, which is not installed")
