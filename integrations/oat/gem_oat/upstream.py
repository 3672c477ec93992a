"""The interface of Oat that this plugin overrides."""

from __future__ import annotations

from oat.actors.base import ActorBase
from oat.algorithms.ppo import PPOActor, PPOLearner
from oat.learners.base import LearnerBase
from oat.types import TransitionData

from gem_core.trainers.interface import expect, expect_fields
from gem_oat import SUPPORTED

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
    (LearnerBase, "_pre_evaluate"): ("self",),
    (LearnerBase, "_post_evaluate"): ("self",),
}
"""Names of the parameters, by method."""

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
    expect_fields(SUPPORTED, TransitionData, FIELDS)
