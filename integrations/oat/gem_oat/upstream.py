"""Whether Oat still has the places that this plugin fills, with the arguments that it expects."""

from __future__ import annotations

import inspect

from oat.actors.base import ActorBase
from oat.algorithms.ppo import PPOActor, PPOLearner
from oat.learners.base import LearnerBase
from oat.types import TransitionData

from gem_core.errors import UnsupportedTrainer
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
"""Method and the names of its parameters."""

FIELDS = (
    "prompt",
    "prompt_ids",
    "response",
    "response_ids",
    "response_logprobs",
    "rewards",
    "loss_mask",
    "info",
)


def check() -> None:
    """Fail where overriding a method would have no effect any more.

    Raises:
        UnsupportedTrainer: Names what is missing and the supported versions.
    """
    SUPPORTED.require()
    for (owner, name), expected in EXPECTED.items():
        method = getattr(owner, name, None)
        found = tuple(inspect.signature(method).parameters) if method is not None else None
        if found != expected:
            _complain(f"{owner.__name__}.{name}({', '.join(expected)})", f"parameters {found}")
    fields = tuple(TransitionData.__dataclass_fields__)
    if fields != FIELDS:
        _complain(f"TransitionData with the fields {', '.join(FIELDS)}", ", ".join(fields))


def _complain(expected: str, found: str) -> None:
    raise UnsupportedTrainer(
        f"gem_oat expects {expected}, but this Oat has {found}; supported versions: "
        f"{SUPPORTED.distribution}{SUPPORTED.versions}"
    )
