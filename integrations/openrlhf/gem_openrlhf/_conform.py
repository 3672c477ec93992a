"""`gem-core conform --trainer openrlhf`: estimators of OpenRLHF's experience maker.

OpenRLHF takes each row for a sample, with a reward of its own, and groups the samples by position.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from openrlhf.trainer.ppo_utils.kl_controller import FixedKLController

from gem_core.errors import ConfigError
from gem_core.trainers._imports import replaced
from gem_lab._conform import ExactRows, GradedEstimator, estimators_of_plugin
from gem_openrlhf import _experience_maker
from gem_openrlhf._experience_maker import GemExperienceMaker
from gem_openrlhf._labels import Played
from gem_openrlhf._options import GemOptions
from gem_openrlhf._rows import RowLayout


def estimators() -> dict[str, GradedEstimator]:
    """Return OpenRLHF's estimators that compare the samples of a prompt, and gem-core's in their place."""
    return {
        "OpenRLHF dr_grpo": GradedEstimator("group mean", partial(_theirs, "dr_grpo")),
        "OpenRLHF rloo": GradedEstimator("leave one out", partial(_theirs, "rloo")),
    } | estimators_of_plugin("OpenRLHF", _ours)


def _args(name: str, gamma: float, rows: ExactRows) -> Any:
    advantage = SimpleNamespace(estimator=name, gamma=gamma, lambd=1.0, no_std_norm=True)
    return SimpleNamespace(
        algo=SimpleNamespace(advantage=advantage),
        rollout=SimpleNamespace(n_samples_per_prompt=max(rows.group_sizes)),
        reward=SimpleNamespace(clip_range=None),
        actor=SimpleNamespace(loss_agg_mode="token-mean"),
    )


def _experience(rows: ExactRows) -> Any:
    return Experience(
        index=list(range(len(rows.mask))),
        rewards=rows.scores().sum(1),
        action_mask=rows.mask,
        kl=torch.zeros_like(rows.mask),
        info={},
    )


def _theirs(name: str, rows: ExactRows) -> torch.Tensor:
    strategy = SimpleNamespace(args=_args(name, 1.0, rows))
    maker = RemoteExperienceMaker(None, None, None, None, FixedKLController(0.0), strategy, None)
    (experience,) = maker.compute_advantages_and_returns([_experience(rows)])
    advantages: torch.Tensor = experience.advantages
    return advantages


def _ours(name: str, gamma: float, rows: ExactRows) -> torch.Tensor:
    if len({*rows.group_sizes}) > 1:
        raise ConfigError("the groups of OpenRLHF have one size, --rollout.n_samples_per_prompt")
    maker = GemExperienceMaker.__new__(GemExperienceMaker)
    maker.args, maker.gem_options = _args(name, gamma, rows), GemOptions(estimator=name)
    maker.kl_ctl = FixedKLController(0.0)
    numbers = [list(dict.fromkeys(rows.episodes)).index(episode) for episode in rows.episodes]
    maker.gem_layout = RowLayout(numbers, [0] * len(numbers))
    experience = _experience(rows)
    with replaced(_experience_maker, "_log_turns", lambda *_: None):
        maker._estimate(name, [experience], _played(rows))
    advantages: torch.Tensor = experience.advantages
    return advantages


def _played(rows: ExactRows) -> list[Played]:
    """Return the rows as the agent lays them out."""
    return [
        Played("batch", None if number else episode, row.spans, list(row.turns))
        for episode in rows.played
        for number, row in enumerate(episode.rows(pad_id=1))
    ]
