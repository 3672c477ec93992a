"""Runs of OpenRLHF's trainer that are too long for the default test run."""

from __future__ import annotations

import json
import os
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

from gem_core.rollout import read_traces
from tests.advantages.oracle import case, episode
from tests.trainers import chaos, evidence
from tests.trainers.evidence import GAMMA, assert_update_is_right
from tests.trainers.openrlhf import correction, harness
from tests.trainers.openrlhf.conftest import GUESS, MASTERMIND
from tests.trainers.openrlhf.data import write_rows
from tests.trainers.openrlhf.harness import GEM, run_openrlhf
from tests.trainers.openrlhf.logged import metrics_of
from tests.trainers.openrlhf.spied import losses
from tests.trainers.openrlhf.spied import updates as updates_of
from tests.trainers.openrlhf.test_train import assert_metrics_are_right, assert_weights_are_synced

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("GEM_CORE_OPENRLHF"), reason="runs the trainer: `nox -s openrlhf-full` does"
    ),
    pytest.mark.timeout(1200),
    pytest.mark.full,
]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Write the rows of three steps."""
    return write_rows(tmp_path / "rows.jsonl", [GUESS, MASTERMIND], 12)


def test_asynchronous_with_reference_model_and_correction(
    tmp_path: Path, warm: Path, tokenizer: Any, model: Any, rows: Path
) -> None:
    """The engine samples one step ahead; the learning rate is small enough to compare with on-policy."""
    flags = {
        "train.async_enable": None,
        "algo.kl.init_coef": "0.01",
        "algo.kl.use_loss": None,
        "algo.kl.estimator": "k2",
        "actor.adam.lr": "1e-6",
    }
    run = run_openrlhf(tmp_path, warm, rows, flags).check()
    episodes = evidence.played(run.spy, tokenizer)
    updates, steps = updates_of(run.spy), metrics_of(run)
    assert len(updates) == len(steps) == 3
    for update, metrics in zip(updates, steps, strict=True):
        assert_metrics_are_right(metrics, assert_update_is_right(update, episodes, tokenizer, model))
        assert ("is_filter_ratio" if correction.has_levels() else "vllm_kl") in metrics
    assert all(row.reference is not None for update in updates for row in update.rows)
    first, last = updates[0].weights, updates[-1].weights
    assert any((a != b).any() for a, b in zip(first, last, strict=True))


def test_a_penalty_in_the_reward(tmp_path: Path, warm: Path, tokenizer: Any, model: Any, rows: Path) -> None:
    flags = {"algo.kl.init_coef": "0.5", "actor.adam.lr": "3e-4"}  # at 1e-3 the penalty diverges
    run = run_openrlhf(tmp_path, warm, rows, flags).check()
    episodes = evidence.played(run.spy, tokenizer)
    updates = updates_of(run.spy)
    assert len(updates) == 3
    for update in updates:
        evidence.load_weights(model, updates[0].weights)  # also the reference model's
        for row in update.rows:
            row.reference = logprobs(model, row.prompt, row.response)
        assert_update_is_right(update, episodes, tokenizer, model, kl_coef=0.5)
    gaps = [
        abs(old - reference)
        for row in updates[-1].rows
        for old, reference, on in zip(row.old, row.reference or [], row.mask, strict=True)
        if on
    ]
    assert max(gaps) > 1e-3  # the penalty was not zero


def logprobs(model: Any, prompt: list[int], response: list[int]) -> list[float]:
    """Return the log-prob of each token of the response."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1)[range(len(response)), response].tolist()


def test_two_ranks(tmp_path: Path, warm: Path, tokenizer: Any, model: Any, rows: Path) -> None:
    flags = {"actor.num_gpus_per_node": "2", "train.micro_batch_size": "2", "data.max_samples": "8"}
    run = run_openrlhf(tmp_path, warm, rows, flags).check()
    episodes = evidence.played(run.spy, tokenizer)
    updates, steps = updates_of(run.spy), metrics_of(run)
    assert len({path.stem.split("-")[1] for path in run.spy.glob("update-*.pt")}) == 2
    assert len(updates) == len(steps) == 2
    for update, metrics in zip(updates, steps, strict=True):
        assert len(update.rows) == 8
        assert_metrics_are_right(metrics, assert_update_is_right(update, episodes, tokenizer, model))
    assert_weights_are_synced(run)


def test_openrlhfs_own_command_with_rays_hook(
    tmp_path: Path, warm: Path, tokenizer: Any, model: Any, rows: Path
) -> None:
    """Use the settings that `ray job submit --runtime-env-json` passes to the command."""
    options = json.dumps({"estimator": "rebn", "wrappers": "spy"})
    runtime_env = {
        "worker_process_setup_hook": "gem_openrlhf.hooks.setup",
        "env_vars": {"GEM_OPENRLHF": options},
    }
    words = {name: value for name, value in GEM.items() if not name.startswith("gem.")}
    run = run_openrlhf(
        tmp_path,
        warm,
        rows,
        {"algo.advantage.estimator": "reinforce", "data.max_samples": "8"},
        gem=words,
        module=harness.THEIRS,
        environment={"RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps({"runtime_env": runtime_env})},
    ).check()
    episodes = evidence.played(run.spy, tokenizer)
    updates, steps = updates_of(run.spy), metrics_of(run)
    assert len(updates) == len(steps) == 2
    for update, metrics in zip(updates, steps, strict=True):
        assert_metrics_are_right(metrics, assert_update_is_right(update, episodes, tokenizer, model))


def test_rebn_with_an_agent_function_of_the_users_own(tmp_path: Path, warm: Path) -> None:
    """Without a GEM environment, turns come from the mask, and the sample's reward is on its last turn."""
    from tests.trainers.openrlhf.cpu.own_agent import ANSWERS, reward_of

    data = tmp_path / "rows.jsonl"
    lines = [json.dumps({"input": f"Task {number}. Guess a number. "}) + "\n" for number in range(8)]
    data.write_text("".join(lines))
    words = {"algo.advantage.estimator": "rebn", "algo.advantage.gamma": str(GAMMA)}
    agent = {"train.agent_func_path": str(harness.CPU / "own_agent.py")}
    run = run_openrlhf(tmp_path, warm, data, gem={**words, **agent}).check()
    assert run.output.count("taken from the runs of 1s in the action mask") == 1
    requests = [json.loads(line) for line in (run.spy / "engine.jsonl").read_text().splitlines()]
    updates = updates_of(run.spy)
    assert len(updates) == 2
    for update in updates:
        played = [evidence.conversation(row.prompt + row.response, requests) for row in update.rows]
        for made in played:
            if len(made.requests) == ANSWERS:  # an episode without room for all of them earns nothing
                made.rewards[-1] = reward_of(made.requests[-1]["text"])  # vLLM's text for half a character
        wanted = evidence.oracle([made.rewards for made in played], GAMMA)
        assert max(len(made.rewards) for made in played) == ANSWERS
        for row, made, advantages in zip(update.rows, played, wanted, strict=True):
            turns = made.turns[made.prompt_length :]
            turns += [-1] * (len(row.response) - len(turns))  # the environment has the last word
            expected = [advantages[turn] if turn >= 0 else 0.0 for turn in turns]
            assert row.advantages == pytest.approx(expected, abs=1e-5 * max(1.0, *map(abs, advantages)))


def test_a_run_that_was_stopped_continues(
    tmp_path: Path, warm: Path, tokenizer: Any, model: Any, rows: Path
) -> None:
    from transformers import AutoModelForCausalLM

    places = {"ckpt.path": str(tmp_path / "checkpoints"), "ckpt.save_steps": "2", "ckpt.save_hf": None}
    whole = run_openrlhf(tmp_path / "whole", warm, rows, places).check()
    rest = run_openrlhf(tmp_path / "rest", warm, rows, {**places, "ckpt.load_enable": None}).check()
    (resumed,) = updates_of(rest.spy)
    last = updates_of(whole.spy)[-1]
    assert all((a == b).all() for a, b in zip(resumed.weights, last.weights, strict=True))
    mine = assert_update_is_right(resumed, evidence.played(rest.spy, tokenizer), tokenizer, model)
    assert len(mine) == 8
    assert len(metrics_of(rest)) == 1
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoints" / "global_step2_hf")
    assert all((a == b).all() for a, b in zip(saved.parameters(), last.weights, strict=True))
    shutil.rmtree(tmp_path / "checkpoints")


def test_a_critic(tmp_path: Path, warm: Path, tokenizer: Any, rows: Path) -> None:
    """Compute ``gae`` over turns, from the critic's value at the first token of each."""
    flags = {
        "algo.advantage.estimator": "gae",
        "algo.advantage.lambd": "0.8",
        "data.max_samples": "8",
        "critic.adam.lr": "1e-3",
    }
    run = run_openrlhf(tmp_path, warm, rows, flags).check()
    episodes = evidence.played(run.spy, tokenizer)
    steps = metrics_of(run)
    assert len(steps) == 2
    assert all(metrics["critic_loss"] > 0 for metrics in steps)
    micro_batches = losses(run.spy)
    batches = [micro_batches[:2], micro_batches[2:]]
    for batch in batches:
        rows_of_batch = [
            (tokens, values, advantages, mask)
            for saved in batch
            for tokens, values, advantages, mask in zip(
                saved["sequences"], saved["values"], saved["advantages"], saved["mask"], strict=True
            )
        ]
        assert len(rows_of_batch) == 8
        given = []
        for tokens, values, _, _ in rows_of_batch:
            made = episodes[evidence.name_in(tokens, tokenizer)]
            first = [len(request["prompt"]) - 1 for request in made.requests]
            given.append(episode(made.rewards, values=[values[n] for n in first]))
        wanted = case("", given, gamma=GAMMA, lam=0.8)["expected"]["gae"]
        spread = []
        for (tokens, _, _, mask), credit in zip(rows_of_batch, wanted, strict=True):
            turns = episodes[evidence.name_in(tokens, tokenizer)].turns[1:]
            spread.append([credit[turn] for turn, on in zip(turns, mask, strict=False) if on])
        flat = [Fraction(value) for row in spread for value in row]
        mean = sum(flat) / len(flat)
        deviation = float(sum((value - mean) ** 2 for value in flat) / len(flat)) ** 0.5
        for (_, _, advantages, mask), expected in zip(rows_of_batch, spread, strict=True):
            result = [advantage for advantage, on in zip(advantages, mask, strict=True) if on]
            assert result == pytest.approx([(e - float(mean)) / deviation for e in expected], abs=1e-4)


def test_in_bfloat16(
    tmp_path: Path, warm: Path, tokenizer: Any, model: Any, rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the tests' float32, advantages are the same and probabilities are approximately the same."""
    shims = [name for name in harness.SHIMS if name != "openrlhf_fp32"]
    flags = {
        "data.max_samples": "8",
        "algo.advantage.estimator": "gem_rloo",
        "gem.traces": f"{tmp_path}/traces",
    }
    run = run_openrlhf(tmp_path, warm, rows, flags, shims=shims).check()
    groups = chaos.names_of([*read_traces(tmp_path / "traces" / "train.jsonl")])
    episodes = evidence.played(run.spy, tokenizer)
    updates = updates_of(run.spy)
    assert len(updates) == 2
    for number, update in enumerate(updates, start=1):
        names = [evidence.name_in(row.prompt, tokenizer) for row in update.rows]
        mine = [episodes[name] for name in names]
        assert mine
        wanted = evidence.oracle(
            [made.rewards for made in mine], GAMMA, groups=[groups[name] for name in names]
        )
        gaps = []
        for row, made, advantages in zip(update.rows, mine, wanted, strict=True):
            turns = made.turns[made.prompt_length :]
            expected = [advantages[turn] if turn >= 0 else 0.0 for turn in turns]
            assert row.advantages == pytest.approx(expected, abs=1e-5 * max(1.0, *map(abs, advantages)))
            pairs = zip(row.old, row.rollout or [], row.mask, strict=True)
            gaps += [
                abs(torch.tensor([old, rollout]).exp().diff().item()) for old, rollout, on in pairs if on
            ]
        evidence.load_weights(model, update.weights)
        made_episodes = [made.episode(a) for made, a in zip(mine, wanted, strict=True)]
        gradient = list(evidence.policy_gradient(model, made_episodes).values())
        alike = evidence.cosine(update.gradients, gradient)
        with capsys.disabled():
            print(f"\nbfloat16, step {number}: probabilities differ by at most {max(gaps):.1e}, ", end="")
            print(f"gradient cosine with float32 {alike:.4f}")
    assert max(abs(saved["vllm_kl"]) for saved in losses(run.spy)) < 0.1


def test_the_documented_overrides_of_openrlhfs_own_command(
    tmp_path: Path, warm: Path, tokenizer: Any, model: Any
) -> None:
    from tests.trainers.openrlhf.test_docs import GPU_ONLY, commands, flags_of

    documented = {name: value for name, value in flags_of(commands()[0]).items() if name not in GPU_ONLY}
    run = run_openrlhf(
        tmp_path,
        warm,
        str(documented["data.prompt_dataset"]),
        # With this seed, both games are among the first four tasks.
        {"data.max_samples": "4", "train.seed": "45", "gem.wrappers": "spy", "ds.zero_stage": "2"},
        gem=documented,
    ).check()
    (update,) = updates_of(run.spy)
    assert_update_is_right(update, evidence.played(run.spy, tokenizer), tokenizer, model)
