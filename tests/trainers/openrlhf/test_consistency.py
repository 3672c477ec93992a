"""OpenRLHF takes the shared step of all trainers with the tokens, advantages, and gradient of gem_core."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from gem_openrlhf._executor import lay_out
from gem_openrlhf._labels import write

from gem_core.tasks import TaskRow
from gem_lab.consistency import Played
from gem_lab.consistency._compare import ADVANTAGE_TOLERANCE
from tests.consistency import assemble
from tests.consistency.assemble import episode_of
from tests.consistency.cases import CASES, WITH_KL, Case, judge_cases, judge_stock, penalty
from tests.consistency.scenario import (
    GAMMA,
    MAX_TURNS,
    SAMPLES,
    TASKS,
    TOKENS,
    TOKENS_PER_TURN,
    scenario,
    tasks,
)
from tests.trainers.openrlhf import harness, spied
from tests.trainers.openrlhf.args import experience_maker, experiences


@pytest.mark.skipif(
    not os.environ.get("GEM_CORE_OPENRLHF"), reason="runs the trainer: `nox -s openrlhf` does"
)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("several", "ranks"),
    [
        (False, 1),
        pytest.param(True, 1, marks=pytest.mark.full),
        pytest.param(True, 2, marks=pytest.mark.full),
    ],
)
def test_the_shared_step(several: bool, ranks: int, tmp_path: Path) -> None:
    """With several rows per episode, the loss is a mean over rows. Two ranks share the rows of an episode.

    On two ranks, each turn is a row; 31 turns give one rank a row more than the other.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    shared = scenario()
    write(tasks(), tmp_path / "rows.jsonl")
    flags = {
        "algo.advantage.gamma": str(GAMMA),
        "data.max_len": str(TOKENS),
        "rollout.max_new_tokens": str(TOKENS_PER_TURN),
        "rollout.batch_size": str(TASKS),
        "rollout.n_samples_per_prompt": str(SAMPLES),
        "train.batch_size": str(TASKS * SAMPLES),
        "train.micro_batch_size": str(TASKS * SAMPLES),
        "gem.max_turns": str(MAX_TURNS),
        "gem.wrappers": "named",
        "ckpt.disable_ds": None,
    }
    if several:
        flags |= {"gem.context": "template", "gem.chat_template": str(shared.rows_template)}
        flags |= {"actor.loss_agg_mode": "seq-mean-token-mean"}
    if ranks > 1:
        flags |= {"actor.num_gpus_per_node": str(ranks), "train.micro_batch_size": "2", "gem.rows": "turn"}
    environment = {"GEM_SCRIPT": str(shared.rows_script if several else shared.script)}
    run = harness.run_openrlhf(
        tmp_path, shared.model, tmp_path / "rows.jsonl", flags, scheme="off", environment=environment
    ).check()
    (update,) = spied.updates(run.spy)
    trained = [[row for row in rank.rows if not row.is_pad] for (rank,) in spied.ranks(run.spy)]
    assert sorted(map(len, trained)) == ([15, 16] if ranks > 1 else [20 if several else 14])
    carried, name, reference = assemble.carried_episodes(run.spy), "openrlhf", "core"
    if several:
        tokenizer = AutoTokenizer.from_pretrained(shared.model)
        episodes = assemble.from_row_means(update.rows, carried, tokenizer)
        chains = assemble.chains_of(update.rows, tokenizer)
        shares = [sum(row in trained[0] for row in chain) / len(chain) for chain in chains]
        assert any(0 < share < 1 for share in shares) == (ranks > 1)  # rows of an episode are on both ranks
        name, reference = ["openrlhf-rows", "openrlhf-ranks"][ranks - 1], "core-rows"
    else:
        episodes = assemble.from_rows(update.rows, carried)
    model = AutoModelForCausalLM.from_pretrained(shared.model, attn_implementation="eager").float()
    gradient = assemble.gradient_difference(update, shared.core(reference), model, episode_means=several)
    words = " ".join(harness.words(flags))
    comparison = assemble.judge(
        shared, name, ["openrlhf", "torch"], words, episodes, gradient, reference=reference
    )
    assert comparison.equal, comparison
    assert gradient <= 1e-5


def test_other_options_on_the_same_episodes() -> None:
    """Compute advantages through OpenRLHF's experiences, in micro-batches of different widths."""

    def advantages(case: Case, episodes: list[Played]) -> list[list[float]]:
        name = "rebn" if case.estimator == "rebn" else "gem_reinforce"
        words = ["--algo.advantage.estimator", name, "--algo.advantage.gamma", str(case.gamma)]
        words += ["--gem.estimator_options", json.dumps({"ddof": case.ddof})] if name == "rebn" else []
        maker = experience_maker(*words, kl_coef=case.kl_coef)
        task = TaskRow(env_id="test", env_kwargs={}, seed=0, index=0)
        rows = [lay_out(episode_of(played), task, "", pad_id=0, with_logprobs=False) for played in episodes]
        batches = [experiences(rows[n : n + 3], first=n) for n in range(0, len(rows), 3)]
        for index, batch in enumerate(batches):
            batch.kl = torch.zeros(batch.action_mask.shape)
            for row, played in enumerate(episodes[3 * index : 3 * index + 3]):
                batch.kl[row, : len(played.token_ids) - 1] = torch.tensor(penalty(played)[1:])
        maker.compute_advantages_and_returns(batches)
        result = [row for batch in batches for row in batch.advantages.tolist()]
        for played, row in zip(episodes, result, strict=True):
            size = len(played.token_ids)
            assert not any(row[size - 1 :])
            played.read_advantages([0.0, *row[: size - 1]])
            assert played.spread == 0
        return [played.advantages for played in episodes]

    result = judge_cases(scenario(), "openrlhf", [*CASES, *WITH_KL], advantages)
    assert max(result.values()) <= ADVANTAGE_TOLERANCE, result


def test_openrlhfs_own_estimators_point_elsewhere() -> None:
    """Compute advantages for another agent, with one reward per sample on its last token."""
    task = TaskRow(env_id="test", env_kwargs={}, seed=0, index=0)

    def tokens(name: str, episodes: list[Played]) -> list[list[float]]:
        words = ["--algo.advantage.estimator", name, "--rollout.n_samples_per_prompt", "2"]
        maker = experience_maker(*words, "--algo.advantage.gamma", str(GAMMA))
        rows = [lay_out(episode_of(played), task, "", pad_id=0, with_logprobs=False) for played in episodes]
        if name != "rebn":
            for row, played in zip(rows, episodes, strict=True):
                row |= {"label": "anything", "reward": sum(played.rewards or [])}
        whole = experiences(rows)
        maker.compute_advantages_and_returns([whole])
        pairs = zip(whole.advantages.tolist(), episodes, strict=True)
        return [[0.0, *row[: len(played.token_ids) - 1]] for row, played in pairs]

    stock = ["reinforce", "rloo", "reinforce_baseline", "group_norm"]
    result = judge_stock(scenario(), "openrlhf", ["rebn", *stock], tokens)
    assert result.pop("rebn") == 0
    assert min(result.values()) > 0.05, result
