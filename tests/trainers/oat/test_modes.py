"""Modes of Oat that the default runs do not use, each in one run of three steps, for `nox -s oat-full`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from gem_core.rollout import read_traces
from tests.trainers import chaos
from tests.trainers.evidence import Row, assert_row_is_right, load_weights, name_in, oracle, played
from tests.trainers.oat import harness, spied

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not os.environ.get("GEM_CORE_OAT"), reason="runs the trainer: `nox -s oat-full` does"),
    pytest.mark.timeout(900),
]
CLIP = 0.05


def by_tokens(rows: list[Row]) -> dict[tuple[int, ...], Row]:
    return {(*row.prompt, -1, *row.response): row for row in rows}


def logprobs(model: Any, rows: list[Row]) -> list[list[float]]:
    """Return the log-probs of the responses under a model."""
    found = []
    for row in rows:
        ids = torch.tensor([row.prompt + row.response])
        with torch.no_grad():
            scores = model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
        found.append(scores[len(row.prompt) - 1 :].tolist())
    return found


def test_two_epochs_with_clipping(tmp_path: Path, warm: Path, warm_tokenizer: Any) -> None:
    """The second pass over the rows of a step has the clipped loss of PPO; evaluation repeats each task."""
    run = harness.run_oat(
        tmp_path,
        warm,
        num_ppo_epochs="2",
        cliprange=str(CLIP),
        eval_steps="100",
        max_eval="4",
        eval_n="2",
    ).check()
    episodes, updates = played(run.spy, warm_tokenizer), spied.updates(run.spy)
    assert len(updates) == 6
    clipped = 0
    for first, second in zip(updates[::2], updates[1::2], strict=True):
        mine = {name: episodes[name] for name in first.collected}
        wanted = dict(zip(mine, oracle([e.rewards for e in mine.values()], 0.9), strict=True))
        before, after = by_tokens(first.rows), by_tokens(second.rows)
        assert before.keys() == after.keys()
        for tokens, row in before.items():
            name = name_in(row.prompt, warm_tokenizer)
            assert_row_is_right(row, mine[name], wanted[name])
            ratios = (torch.tensor(after[tokens].old) - torch.tensor(row.old)).exp()
            advantages = torch.tensor(row.advantages)
            inside = ratios.clamp(1 - CLIP, 1 + CLIP)
            expected = torch.minimum(advantages * ratios, advantages * inside)
            assert after[tokens].advantages == pytest.approx(expected.tolist(), abs=1e-4)
            clipped += int((expected < advantages * ratios - 1e-6).sum())
    assert clipped
    evaluations = [
        path.read_text().splitlines() for path in (tmp_path / "out").glob("*/eval_results/*.jsonl")
    ]
    assert [len(episodes) for episodes in evaluations] == [8, 8]  # before and after


def assert_updates_are_right(
    spy: Path, tokenizer: Any, weight: float = 1.0, groups: Mapping[str, str] | None = None
) -> list[spied.OatUpdate]:
    """Check the rows of three updates against the oracle, and return the updates.

    The loss multiplies the advantage of each token by `weight`; `groups` as in `evidence`.
    """
    episodes, updates = played(spy, tokenizer), spied.updates(spy)
    assert len(updates) == 3
    for update in updates:
        mine = {name: episodes[name] for name in update.collected}
        by_group = [groups[name] for name in mine] if groups else None
        turns = oracle([e.rewards for e in mine.values()], 0.9, groups=by_group)
        expected = dict(zip(mine, turns, strict=True))
        assert len(update.rows) == 16
        for row in update.rows:
            name = name_in(row.prompt, tokenizer)
            assert_row_is_right(row, mine[name], [weight * a for a in expected[name]])
    return updates


def test_the_mean_over_tokens_with_corrected_log_probs(
    tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any
) -> None:
    """With ``grpo`` the loss is a mean over the tokens of a response; `tis_c` limits the weight of a token.

    Learner and engine have the same weights, so each token's weight would be 1, and the limit is its weight.
    """
    words = {"estimator": "rloo", "group_size": "2", "traces": f"{tmp_path}/traces"}
    run = harness.run_oat(tmp_path, warm, critic_type="grpo", tis_c="0.5", **words).check()
    groups = chaos.names_of([*read_traces(tmp_path / "traces" / "train.jsonl")])
    for update in assert_updates_are_right(run.spy, warm_tokenizer, 0.5, groups):
        load_weights(model, update.weights)
        model.zero_grad()
        for row in update.rows:
            ids = torch.tensor([row.prompt + row.response])
            scores = model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
            terms = scores[len(row.prompt) - 1 :] * torch.tensor(row.advantages)
            (-terms.mean() / len(update.rows)).backward()
        for found, parameter in zip(update.gradients, model.parameters(), strict=True):
            assert torch.allclose(found, parameter.grad, atol=1e-5)


def test_a_kl_penalty_in_the_loss(tmp_path: Path, warm: Path, model: Any) -> None:
    """The penalty is Oat's estimate "k3" against the model before training."""
    run = harness.run_oat(tmp_path, warm, beta="0.1", learning_rate="1e-2").check()
    paths = sorted(run.spy.glob("loss-*.pt"), key=lambda path: path.stem.split("-")[2])
    assert len(paths) == 12  # the policy's loss and the penalty of two minibatches per step
    largest = 0.0
    for path in paths[1::2]:
        saved = torch.load(path, weights_only=False)
        ids, mask = saved["input_ids"], saved["mask"].bool()
        with torch.no_grad():
            logits = model(ids, attention_mask=saved["att_mask"]).logits[:, :-1]
        reference = logits.log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        gap = reference - saved["logps"]
        expected = torch.expm1(gap) - gap
        assert torch.allclose(saved["loss"][mask], expected[mask], atol=1e-4)
        largest = max(largest, float(expected[mask].max()))
    assert largest > 1e-3


def test_lora(tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any) -> None:
    """Oat merges the adapter into the weights that it sends, so the engine samples from the trained model."""
    run = harness.run_oat(tmp_path, warm, lora_rank="4", learning_rate="1e-2").check()
    updates = assert_updates_are_right(run.spy, warm_tokenizer)
    last = updates[-1].rows
    gaps = [
        abs(new - old)
        for row, scores in zip(last, logprobs(model, last), strict=True)
        for new, old in zip(row.old, scores, strict=True)
    ]
    assert max(gaps) > 0.05  # far from the model before training


def test_weights_that_are_sent_every_second_step(tmp_path: Path, warm: Path, model: Any) -> None:
    """The second step samples with the weights of the first, and the third with the current ones.

    An evaluation takes place before the first step, after the second, and at the end.
    """
    run = harness.run_oat(
        tmp_path, warm, sync_params_every="2", learning_rate="1e-2", eval_steps="2", max_eval="2"
    ).check()
    logged = harness.metrics_of(run)
    assert [f"eval/{harness.GAME}/gem/return" in metrics for metrics in logged] == [
        True,
        False,
        True,
        False,
        True,
    ]
    updates = spied.updates(run.spy)
    gaps = []
    for sampled_with, update in zip((0, 0, 2), updates, strict=True):
        load_weights(model, updates[sampled_with].weights)
        for row, scores in zip(update.rows, logprobs(model, update.rows), strict=True):
            assert row.rollout == pytest.approx(scores, abs=1e-3)
        gaps.append(
            max(abs(a - b) for row in update.rows for a, b in zip(row.old, row.rollout or [], strict=True))
        )
    assert gaps[1] > 0.05 > max(gaps[0], gaps[2])
