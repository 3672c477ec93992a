"""RL2 takes the shared step of all trainers with the tokens, advantages, and gradient of gem_core."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gem_rl2._estimators import AdvantageHook

from gem_core.rollout import Episode, read_traces
from gem_lab.consistency import Played
from gem_lab.consistency._compare import ADVANTAGE_TOLERANCE
from tests.consistency import assemble
from tests.consistency.assemble import lengths
from tests.consistency.cases import CASES, REBN, WITH_KL, Case, judge_cases, judge_stock, token_rewards
from tests.consistency.scenario import (
    GAMMA,
    MAX_TURNS,
    SAMPLES,
    SEED,
    SOURCES,
    TASKS,
    TOKENS_PER_TURN,
    scenario,
    tasks,
)
from tests.trainers.evidence import Row
from tests.trainers.rl2 import harness, spied
from tests.trainers.rl2.configs import gem_config
from tests.trainers.rl2.test_estimators import batch
from tests.trainers.rl2.test_estimators import one_process as one_process

NOT_CARRIED = {
    "terminated": "RL2's batches have no field for it",
    "truncated": "RL2's batches have no field for it",
    "stop_reason": "RL2's batches have no field for it",
    "token budget": "rl-square 0.0.2 limits the tokens of a response, not those of an episode",
}
WITHOUT_BUDGET = "core-without-budget"


def played_rows(spy: Path, tokenizer: Any, failed: Iterable[Episode] | None) -> list[Played]:
    """Return the inputs of the loss, from the files of the spy, and the failed episodes, see `played_of`."""
    paths, left = sorted(spy.glob("loss-*.pt")), None if failed is None else iter(failed)
    found = [
        made for path in paths for made in played_of(torch.load(path, weights_only=False), tokenizer, left)
    ]
    assert next(left or iter(()), None) is None, "a failed episode has no row"
    return found


def played_of(
    saved: dict[str, list[list[Any]]], tokenizer: Any, failed: Iterator[Episode] | None = None
) -> list[Played]:
    """Return the episodes of the rows; in RL2 only prompts name the task, last tokens have the rewards.

    Args:
        saved: A file of the spy.
        tokenizer: Tokenizer of the model.
        failed: Failed episodes, whose rows have no prompt in RL2's source tree; None if they have one.
    """
    env_of = {task["seed"]: task["env_id"] for task in tasks()}
    found = []
    for index, row in enumerate(spied.rows_of(saved)):
        if row.is_pad and failed is not None:
            outline = next(failed)
            found.append(Played(outline.env_id, outline.seed or 0, trainable=False, rewards=[]))
            continue
        seed = assemble.task_seed(saved["states"][index], tokenizer)
        made = Played(env_of[seed], seed, trainable=not row.is_pad, rewards=[])
        if not row.is_pad:
            assemble.fill(made, row)
            rewards: dict[int, float] = {}
            paid = saved["rewards"][index][len(row.prompt) - 1 :]
            for turn, reward in zip(made.turn_ids[len(row.prompt) :], paid, strict=True):
                if turn >= 0:
                    rewards[turn] = rewards.get(turn, 0.0) + reward
            made.rewards = [rewards[turn] for turn in sorted(rewards)]
        found.append(made)
    return found


def joined_rows(each: Iterable[Played], rows: Iterable[Row], tokenizer: Any) -> list[Played]:
    """Return the episodes of which `each` holds the rows."""
    found, row_by_tokens = [], {tuple(row.token_ids): row for row in each}
    for chain in assemble.chains_of(rows, tokenizer):
        parts = [row_by_tokens.pop((*row.prompt, *row.response)) for row in chain]
        made = assemble.read_rows(chain, tokenizer)
        rewards = [reward for part in parts for reward in part.rewards or []]
        found.append(replace(made, env_id=parts[0].env_id, rewards=rewards))
    return found


WORDS = {
    "index": [
        f"train_data.prompts_per_rollout={TASKS}",
        f"train_data.responses_per_prompt={SAMPLES}",
        "rollout.dynamic_filtering=false",
        f"rollout.max_turns={MAX_TURNS}",
        f"rollout.train_sampling_params.max_new_tokens={TOKENS_PER_TURN}",
    ],
    "tree": [
        f"rollout.train.prompts_per_rollout={TASKS}",
        f"rollout.train.responses_per_prompt={SAMPLES}",
        "rollout.train.dynamic_filtering=false",
        f"+gem.max_turns={MAX_TURNS}",
        f"rollout.train.sampling_params.max_new_tokens={TOKENS_PER_TURN}",
        "trainer.total_steps=1",
    ],
}


@pytest.mark.skipif(not os.environ.get("GEM_CORE_RL2"), reason="runs the trainer: `nox -s rl2` does")
@pytest.mark.imports("index")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("version", "several"),
    [
        ("index", False),
        pytest.param("tree", False, marks=pytest.mark.tree),
        pytest.param("tree", True, marks=[pytest.mark.tree, pytest.mark.full]),
    ],
)
def test_the_shared_step(
    version: str, several: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several rows per episode, the template rewrites the history.

    There, the index version keeps sampled tokens where the template writes their text with other ones, so its
    prompts are not gem_core's.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    shared = scenario()
    tasks()  # registers the environments in this process, which writes the data
    monkeypatch.setenv("GEM_SCRIPT", str(shared.rows_script if several else shared.script))
    words = [f"adv.gamma={GAMMA}", *WORDS[version]]
    name, reference = "rl2" if version == "index" else "rl2-tree", WITHOUT_BUDGET
    if several:
        words += ["+gem.context=template", f"+gem.chat_template={shared.rows_template}"]
        name, reference = f"{name}-rows", "core-rows-without-budget"
    checkout = {} if version == "index" else {"RL2": "source tree"}
    run = harness.run_rl2(
        tmp_path,
        shared.model,
        *words,
        f"+gem.traces={tmp_path}/traces",
        version=version,
        wrappers="named",
        tasks=TASKS,
        envs=SOURCES,
        seed=SEED,
        num_eval=1,
    ).check()
    tokenizer = AutoTokenizer.from_pretrained(shared.model)
    model = AutoModelForCausalLM.from_pretrained(shared.model, attn_implementation="eager").float()
    (update,) = spied.updates(run.spy, model)
    failed = None
    if version == "tree":
        failed = [one for one in read_traces(tmp_path / "traces" / "train.jsonl") if not one.trainable]
        assert failed
    episodes = played_rows(run.spy, tokenizer, failed)
    if several:
        trained = [row for row in episodes if row.trainable]
        failures = [row for row in episodes if not row.trainable]
        episodes = [*joined_rows(trained, update.rows, tokenizer), *failures]
    gradient = assemble.gradient_difference(update, shared.core(reference), model)
    comparison = assemble.judge(
        shared,
        name,
        ["rl-square", "torch"] if version == "index" else ["torch"],
        " ".join(words),
        episodes,
        gradient,
        reference=reference,
        not_carried=NOT_CARRIED,
        checkout=checkout,
    )
    assert comparison.equal, comparison


def through_rl2(episodes: list[Played], case: Case, *words: str) -> list[list[float]]:
    """Return the advantages per token of each row, through RL2's packing of action tokens.

    A penalty is part of the rewards, as in RL2.
    """
    rows = [[(*sizes, r) for sizes, r in zip(lengths(p), p.rewards or [], strict=True)] for p in episodes]
    config, upstream = gem_config(f"adv.gamma={case.gamma}", *words)
    tensors, bounds = batch([[row] for row in rows])
    for row, played in enumerate(episodes):
        paid = token_rewards(played, case)[1:]
        tensors["rewards"][row, : len(paid)] = torch.tensor(paid)
    AdvantageHook(upstream)(config.adv if upstream.is_index else config, tensors, bounds, 1)
    found = tensors["advantages"].tolist()
    sizes = [len(played.token_ids) - 1 for played in episodes]  # RL2 shifts actions by one
    assert not any(any(row[size:]) for row, size in zip(found, sizes, strict=True))
    return [[0.0, *row[:size]] for row, size in zip(found, sizes, strict=True)]


def test_other_options_on_the_same_episodes(one_process: None) -> None:
    def advantages(case: Case, episodes: list[Played]) -> list[list[float]]:
        name = "rebn" if case.estimator == "rebn" else "gem_reinforce"
        words = [f"+adv.rebn.ddof={case.ddof}"] if name == "rebn" else []
        for played, row in zip(
            episodes, through_rl2(episodes, case, f"adv.estimator={name}", *words), strict=True
        ):
            played.read_advantages(row)
            assert played.spread == 0
        return [played.advantages for played in episodes]

    found = judge_cases(scenario(), "rl2", [*CASES, *WITH_KL], advantages)
    assert max(found.values()) <= ADVANTAGE_TOLERANCE, found


def test_rl2s_own_estimator_points_elsewhere(one_process: None) -> None:
    plain = ["adv.estimator=reinforce", "adv.responses_per_prompt=2"]
    stock = {
        "rebn": ["adv.estimator=rebn"],
        "reinforce": plain,
        "reinforce, global_norm, norm_var": [*plain, "adv.global_norm=true", "adv.norm_var=true"],
    }

    def tokens(name: str, episodes: list[Played]) -> list[list[float]]:
        return through_rl2(episodes, REBN, *stock[name])

    found = judge_stock(scenario(), "rl2", list(stock), tokens)
    assert found.pop("rebn") == 0
    assert min(found.values()) > 0.05, found
