"""GEM environments and ReBN inside an unmodified Oat.

    python -m gem_oat.train <Oat's flags> --env-id game:GuessTheNumber-v0-easy --gamma 0.9

`Actor`, `Learner`, `CriticLearner`, and `Args` subclass Oat's own classes and can be subclassed in turn. They
are imported on first use; this module needs no Oat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core.trainers import SupportedTrainer, TrainerPlugin, lazy_exports

if TYPE_CHECKING:
    from gem_oat._actor import Actor
    from gem_oat._args import Args
    from gem_oat._learner import CriticLearner, Learner

__all__ = [
    "Actor",
    "Args",
    "CriticLearner",
    "Learner",
    "TRAINER",
]

_SUPPORTED = SupportedTrainer(
    name="Oat",
    package="gem_oat",
    distribution="oat-llm",
    versions=">=0.2.3,<0.3",
    hook="python -m gem_oat.train, with Oat's own flags",
    hook_modules=("gem_oat.train", "gem_oat._actor", "gem_oat._learner"),
    supplies=("group_ids", "lengths", "values", "agent_ids", "state_keys", "reward_components", "truncated"),
    supplies_to_stats=("lengths",),
)
_NO_EPISODES = "Oat's learner does not know which turns are of one episode, so each would count once; omit it"
"""Why the statistics of rebn cannot count every episode once."""
TRAINER = TrainerPlugin(
    _SUPPORTED,
    recipe_writer="gem_oat._repro:write",
    preflight="gem_oat._train:check",
    conform="gem_oat._conform:estimators",
)

__getattr__, __dir__ = lazy_exports(
    _SUPPORTED, {"_actor": ["Actor"], "_args": ["Args"], "_learner": ["CriticLearner", "Learner"]}
)
