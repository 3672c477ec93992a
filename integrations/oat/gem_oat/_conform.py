"""`gem-core conform --trainer oat`: estimators of Oat's learner, which has one advantage per row.

Oat takes each row for a response, and groups the responses by position. gem-core in Oat compares episodes in
the actor, and the learner receives a row per turn.
"""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import torch
from oat.algorithms.ppo import PPOLearner

from gem_lab._conform import ExactRows, GradedEstimator, estimators_of_plugin
from gem_oat._args import Args
from gem_oat._learner import Learner
from gem_oat._rows import Collected, draw_turns, pack_turns, turn_values


def estimators() -> dict[str, GradedEstimator]:
    """Return Oat's estimator that compares the responses to a prompt, and gem-core's in its place."""
    return {"Oat drgrpo": GradedEstimator("group mean", _theirs)} | estimators_of_plugin("Oat", _ours)


def _theirs(rows: ExactRows) -> torch.Tensor:
    learner = PPOLearner.__new__(PPOLearner)
    learner.args = SimpleNamespace(critic_type="drgrpo", num_samples=max(rows.group_sizes))
    advantages: torch.Tensor = learner.compute_monte_carlo_advantages(rows.scores(), rows.mask)
    return advantages[:, None]


def _ours(name: str, gamma: float, rows: ExactRows) -> torch.Tensor:
    choice = Args(estimator=name, gamma=gamma).choose_estimator()
    values, stats = turn_values(rows.played, choice)
    packed = pack_turns(rows.played, values, stats, mask_cut=False, info={})
    drawn = draw_turns(packed, sum(map(len, packed)), Random(0))
    rewards = torch.zeros(len(drawn), max(len(row.rewards) for row in drawn))
    for number, row in enumerate(drawn):
        rewards[number, : len(row.rewards)] = torch.tensor(row.rewards)
    learner = Learner.__new__(Learner)
    learner._choice, learner._collected = choice, [Collected(stats, rows.played)]
    advantages = learner.compute_monte_carlo_advantages(rewards, torch.ones_like(rewards)).tolist()
    advantage_by_row = {id(row): advantage for row, advantage in zip(drawn, advantages, strict=True)}
    kept = iter(packed)
    played = [next(kept) if episode.trainable else [] for episode in rows.played]
    return rows.spread([[advantage_by_row[id(row)] for row in turns] for turns in played])
