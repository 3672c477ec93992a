"""Evaluation of the learning runs of OpenRLHF."""

from __future__ import annotations

from dataclasses import replace

from tests.trainers import learning
from tests.trainers.openrlhf.learn import success
from tests.trainers.processes import ROOT


def test_the_initial_weights_play_the_evaluation_seeds() -> None:
    budget = replace(learning.GAME, eval_episodes=40)
    assert 0.1 < success(ROOT / learning.MODELS / "game", budget) < 0.7  # 0.35 on 1,000 seeds
