"""Oat takes the shared step of all trainers with the tokens, advantages, and gradient of gem_core."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gem_oat._rows import draw_turns, pack_turns, turn_values
from oat.algorithms.ppo import PPOLearner

from gem_core.trainers import read_estimator
from gem_lab.consistency import Played
from gem_lab.consistency._compare import ADVANTAGE_TOLERANCE
from tests.consistency import assemble
from tests.consistency.assemble import episode_of
from tests.consistency.cases import CASES, REBN, Case, judge_cases, judge_stock
from tests.consistency.scenario import (
    GAMMA,
    MAX_TURNS,
    SAMPLES,
    SEED,
    SOURCES,
    TOKENS,
    TOKENS_PER_TURN,
    scenario,
)
from tests.trainers.oat import harness, spied
from tests.trainers.oat.test_learner import learner
from tests.trainers.oat.test_learner import one_process as one_process


@pytest.mark.skipif(not os.environ.get("GEM_CORE_OAT"), reason="runs the trainer: `nox -s oat` does")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("several", [False, True])
def test_the_shared_step(several: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With several rows per episode, the template rewrites the history; Oat always has a row per turn."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    shared = scenario()
    name, reference = ("oat-rows", "core-rows") if several else ("oat", "core")
    core = shared.core(reference)
    monkeypatch.setenv("GEM_SCRIPT", str(shared.rows_script if several else shared.script))
    turns = sum(len(episode.advantages) for episode in core.episodes)
    flags = {
        "gamma": str(GAMMA),
        "env_id": " ".join(SOURCES),
        "seed": str(SEED),
        "group_size": str(SAMPLES),
        "num_env": "1",  # one after the other, so that the last episode is the last one needed
        "max_turns": str(MAX_TURNS),
        "generate_max_length": str(TOKENS_PER_TURN),
        "max_model_len": str(TOKENS),
        "rollout_batch_size": str(turns),
        "rollout_batch_size_per_device": str(turns),
        "train_batch_size": str(turns),
        "train_batch_size_per_device": str(turns),
        "max_train": str(turns),
        "wrappers": "named",
    }
    if several:
        flags |= {"context": "template", "chat_template": str(shared.rows_template)}
    run = harness.run_oat(tmp_path, shared.model, **flags).check()
    (update,) = spied.updates(run.spy)
    tokenizer = AutoTokenizer.from_pretrained(shared.model)
    carried = assemble.carried_episodes(run.spy)
    if several:
        chains = [assemble.joined_turns(chain) for chain in assemble.chains_of(update.rows, tokenizer)]
        episodes = assemble.from_chains(chains, carried, tokenizer)
    else:
        episodes = assemble.from_turns(update.rows, [episode for _, episode in carried], tokenizer)
    model = AutoModelForCausalLM.from_pretrained(shared.model, attn_implementation="eager").float()
    tokens = sum(turn >= 0 for episode in core.episodes for turn in episode.turn_ids)
    factor = tokens / (
        turns * TOKENS_PER_TURN
    )  # Oat sums over tokens and divides by a constant and the number of rows
    gradient = assemble.gradient_difference(update, core, model, factor)
    words = " ".join(harness.command(shared.model, tmp_path, **flags)[1:])
    comparison = assemble.judge(
        shared, name, ["oat-llm", "torch"], words, episodes, gradient, reference=reference
    )
    assert comparison.equal, comparison


def through_oat(case: Case, episodes: list[Played]) -> list[list[float]]:
    """Return the advantages of the turns, from the rows of Oat's buffer, some of which the actor drops."""
    options = {"ddof": case.ddof} if case.estimator == "rebn" else {}
    values, stats = turn_values(
        [episode_of(p) for p in episodes],
        read_estimator(case.estimator, {}, gamma=case.gamma),
    )
    turns = sum(map(len, values))
    made = learner(case.estimator, **options)
    found: dict[tuple[int, ...], float] = {}
    for seed in range(8):  # half of the turns are dropped each time but still count
        packed = pack_turns(
            [episode_of(p) for p in episodes],
            values,
            stats,
            mask_cut=False,
            info={"actor/started_tasks": 0.0},
        )
        rows = draw_turns(packed, turns // 2, Random(seed))
        made._collected, made.pi_buffer, made.query_step = [], [], 0
        made.process_feedback_data(rows)
        width = max(len(row.rewards) for row in rows)
        rewards = torch.tensor([row.rewards + [0.0] * (width - len(row.rewards)) for row in rows])
        row_advantages = made.compute_monte_carlo_advantages(rewards, torch.ones_like(rewards)).tolist()
        found |= {
            (*row.prompt_ids, -1, *row.response_ids): value
            for row, value in zip(rows, row_advantages, strict=True)
        }
    assert len(found) == turns
    return [
        [found[(*row.prompt_ids, -1, *row.response_ids)] for row in episode_of(p).rows("turn")]
        for p in episodes
    ]


def test_other_options_on_the_same_episodes(one_process: None) -> None:
    """Test other estimators and discounts; the plugin rejects KL in the reward."""
    found = judge_cases(scenario(), "oat", CASES, through_oat)
    assert max(found.values()) <= ADVANTAGE_TOLERANCE, found


def test_oats_own_estimators_point_elsewhere(one_process: None) -> None:
    """Oat expects one response per prompt, so an episode counts as one response with its total reward."""

    def tokens(name: str, episodes: list[Played]) -> list[list[float]]:
        if name == "rebn":
            values = through_oat(REBN, episodes)
            return [
                [episode_values[max(turn, 0)] for turn in played.turn_ids]
                for played, episode_values in zip(episodes, values, strict=True)
            ]
        assert [p.seed for p in episodes[::SAMPLES]] == [p.seed for p in episodes[1::SAMPLES]]
        stock: Any = PPOLearner.__new__(PPOLearner)
        stock.args = SimpleNamespace(num_samples=SAMPLES, critic_type=name)
        rewards = torch.tensor([[sum(played.rewards)] for played in episodes])
        values = stock.compute_monte_carlo_advantages(rewards, torch.ones_like(rewards)).tolist()
        return [[value] * len(p.turn_ids) for p, value in zip(episodes, values, strict=True)]

    found = judge_stock(scenario(), "oat", ["rebn", "grpo", "drgrpo"], tokens)
    assert found.pop("rebn") == 0
    assert min(found.values()) > 0.05, found
