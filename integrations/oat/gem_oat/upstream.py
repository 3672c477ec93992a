"""The interface of Oat that this plugin overrides."""

from __future__ import annotations

from oat.actors.base import ActorBase
from oat.algorithms.ppo import PPOActor, PPOLearner
from oat.algorithms.ppo_multiturn import PPOMultiTurnLearner
from oat.collectors import FeedbackCollector
from oat.learners.base import LearnerBase
from oat.types import TransitionData

from gem_core.trainers.interface import expect, expect_fields, expect_names
from gem_oat import SUPPORTED
from gem_oat.tasks import COUNTERS

EXPECTED = {
    (ActorBase, "init"): ("self", "actor_id", "save_path"),
    (ActorBase, "generate"): ("self", "prompts", "sampling_params"),
    (PPOActor, "step"): ("self", "prompts", "formatted_prompts", "references"),
    (PPOLearner, "_init"): ("self", "args", "actors"),
    (PPOLearner, "learn"): ("self", "learning_round"),
    (PPOLearner, "compute_monte_carlo_advantages"): ("self", "rewards", "response_masks"),
    (PPOLearner, "process_feedback_data"): ("self", "data_list"),
    (LearnerBase, "prepare_data"): ("self", "strategy", "tokenizer"),
    (LearnerBase, "evaluate"): ("self", "dataloader", "steps"),
    **{(LearnerBase, name): ("self",) for name in ("_pre_evaluate", "_post_evaluate", "_broadcast_to_vllm")},
    (LearnerBase, "eval_and_log"): ("self", "train_info", "eval", "save"),
    (PPOMultiTurnLearner, "_init"): ("self", "args", "actors"),
    (PPOMultiTurnLearner, "process_feedback_data"): ("self", "data_list"),
    (PPOMultiTurnLearner, "compute_advantages"): ("self", "rewards", "values", "dones", "gamma", "lam"),
}
"""Names of the parameters, by method."""

NAMES = {
    (FeedbackCollector, "__init__"): ("ipc_client",),
    (LearnerBase, "_init"): ("_same_actor_group", "collector", "max_step_adjustment", *COUNTERS),
    (LearnerBase, "run"): ("prompts_dataloader", "resume_dir", "steps", "prompt_consumed"),
    (PPOLearner, "learning_step"): ("masked_aggregator", "compute_monte_carlo_advantages", "critic"),
}
"""Names that the code of a method uses."""

FIELDS = (
    "prompt", "prompt_ids", "response", "response_ids", "response_logprobs", "rewards", "loss_mask", "info",
)  # fmt: skip
"""Fields of a `TransitionData`."""


def check() -> None:
    """Check that this plugin's overrides take effect in the installed Oat.

    Raises:
        UnsupportedTrainer: Oat is missing or has another interface; the message names the difference.
    """
    SUPPORTED.require()
    for (owner, name), parameters in EXPECTED.items():
        expect(SUPPORTED, owner, name, *parameters)
    for (owner, name), used in NAMES.items():
        expect_names(SUPPORTED, owner, name, used)
    expect_fields(SUPPORTED, TransitionData, FIELDS)
