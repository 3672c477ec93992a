"""The experience maker on batches made by OpenRLHF, compared with the independent oracle."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from gem_openrlhf import _train_ppo_ray
from gem_openrlhf._baselines import failures_left_out
from gem_openrlhf._executor import lay_out
from gem_openrlhf._failures import actor_step
from gem_openrlhf._labels import played_of
from openrlhf.trainer.ppo_utils import NaiveReplayBuffer
from openrlhf.trainer.ppo_utils.experience import (
    balance_experiences,
    make_experience_batch,
    split_experience_batch,
)
from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer
from openrlhf.utils.deepspeed import DeepspeedStrategy

from gem_core.errors import ConfigError, EnvError
from gem_core.rollout import Episode, Turn
from gem_core.rollout._turn import FinishReason
from gem_core.tasks import TaskRow
from tests.advantages.oracle import case, episode, golden_cases, standardized, turn_returns
from tests.trainers.openrlhf import correction
from tests.trainers.openrlhf.args import experience_maker, experiences, parse
from tests.trainers.openrlhf.harness import words

CASES = [case for case in golden_cases() if any(e["trainable"] and e["rewards"] for e in case["episodes"])]


def response(
    given: dict[str, Any], seed: int = 0, finish: FinishReason = "stop", **changes: Any
) -> dict[str, Any]:
    """Return the agent's result for one of the oracle's episodes, whose responses ended in this way."""
    turns = [
        Turn([1] * context, [2] * tokens, None, reward, "", "", finish)
        for context, tokens, reward in zip(
            given["context_lengths"], given["response_lengths"], given["rewards"], strict=True
        )
    ]
    played = Episode("test", seed, turns, True, False, "terminated", trainable=given["trainable"])
    task = TaskRow(env_id="test", env_kwargs={}, seed=seed, index=0)
    return {**lay_out(played, task, "", pad_id=0, with_logprobs=False), **changes}


def own_agent(given: dict[str, Any], reward: float) -> dict[str, Any]:
    """Return the same tokens from an agent that does not know GEM."""
    return response(given, label="anything", reward=reward)


def in_micro_batches(responses: Sequence[dict[str, Any]], size: int = 3) -> list[Any]:
    batches = [experiences(list(responses[n : n + size]), first=n) for n in range(0, len(responses), size)]
    assert len(batches) == 1 or len({batch.action_mask.shape for batch in batches}) > 1
    return batches


def by_turn(batches: list[Any], given: list[dict[str, Any]], name: str = "advantages") -> list[list[float]]:
    """Return the value of each turn, after checking that exactly its tokens have it."""
    rows = [row for batch in batches for row in zip(getattr(batch, name), batch.action_mask, strict=True)]
    result = []
    for (values, mask), row_facts in zip(rows, given, strict=True):
        assert not values[mask == 0].any()
        if not row_facts["trainable"]:
            assert not mask.any()
            result.append([])
            continue
        parts = values[mask != 0].split(row_facts["response_lengths"])
        assert all((part == part[0]).all() for part in parts)
        result.append([float(part[0]) for part in parts])
    return result


def flat(rows: Sequence[Sequence[float]]) -> list[float]:
    return [value for row in rows for value in row]


@pytest.mark.parametrize("given", CASES, ids=lambda given: given["name"])
@pytest.mark.parametrize("name", ["rebn", "gem_grpo", "gem_rloo", "gem_reinforce"])
def test_advantages_equal_the_oracle(name: str, given: dict[str, Any]) -> None:
    # OpenRLHF infers the group from a sample's position: the n samples of a prompt are adjacent.
    episodes = [dict(e, group=f"{index // 2}") for index, e in enumerate(given["episodes"])]
    given = case(given["name"], episodes, **{k: given[k] for k in ("gamma", "ddof", "eps", "min_std")})
    words = ["--algo.advantage.gamma", str(given["gamma"]), "--rollout.n_samples_per_prompt", "2"]
    if name in ("rebn", "gem_grpo"):
        chosen = {key: given[key] for key in ("ddof", "eps", "min_std")}
        words += ["--gem.estimator_options", json.dumps(chosen)]
    maker = experience_maker("--algo.advantage.estimator", name, *words, "--train.batch_size", "99")
    batches = in_micro_batches([response(e) for e in given["episodes"]])
    maker.compute_advantages_and_returns(batches)
    result = by_turn(batches, given["episodes"])
    wanted = given["expected"][name.removeprefix("gem_") if name != "gem_reinforce" else "returns"]
    for values, expected in zip(result, wanted, strict=True):
        bound = 1e-5 * max(1.0, *map(abs, expected or [0.0]))
        assert values == pytest.approx(expected or [], abs=bound)
    if name == "rebn":
        count, mean, m2 = given["expected"]["stats"]
        info = batches[0].info
        assert info["rebn/turns"].tolist() == [count] * len(batches[0].action_mask)
        assert info["rebn/return_mean"][0] == pytest.approx(mean, rel=1e-6)
        assert info["rebn/return_std"][0] == pytest.approx((m2 / count) ** 0.5, rel=1e-5)


def test_a_penalty_on_the_tokens_counts_in_its_turn() -> None:
    given = [episode([0.5, 1.0]), episode([0.1, 0.0, 2.0])]
    maker = experience_maker("--algo.advantage.gamma", "0.5", kl_coef=0.3)
    batches = in_micro_batches([response(e) for e in given])
    for batch in batches:
        batch.kl = torch.rand(batch.action_mask.shape)
    kl = [row[mask != 0] for batch in batches for row, mask in zip(batch.kl, batch.action_mask, strict=True)]
    maker.compute_advantages_and_returns(batches)
    returns = []
    for e, of in zip(given, kl, strict=True):
        penalties = [0.3 * float(part.double().sum()) for part in of.split(e["response_lengths"])]
        rewards = [reward - penalty for reward, penalty in zip(e["rewards"], penalties, strict=True)]
        returns += turn_returns(rewards, 0.5)
    wanted = standardized(returns, returns, 0, 1e-8, 1e-6)
    assert flat(by_turn(batches, given)) == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("coefficient", [0.5, -3.0])
def test_openrlhfs_penalty_for_cut_responses_reads_the_agents_mark(coefficient: float) -> None:
    given = [episode([0.5, 1.0]), episode([0.5, 1.0])]
    words = (
        "--algo.advantage.estimator",
        "reinforce",
        "--reward.stop_properly_penalty_coef",
        str(coefficient),
    )
    maker = experience_maker(*words)
    batch = experiences([response(given[0]), response(given[1], finish="length")])
    maker.compute_advantages_and_returns([batch])
    assert batch.info["reward"].tolist() == [1.5, 0.75 if coefficient > 0 else coefficient]


def test_turns_of_another_agent_are_the_runs_of_its_mask() -> None:
    given = [episode([0.0, 0.0]), episode([0.0]), episode([0.0, 0.0, 0.0])]
    maker = experience_maker("--algo.advantage.gamma", "0.5")
    batches = in_micro_batches(
        [own_agent(e, reward) for e, reward in zip(given, (1.0, -1.0, 3.0), strict=True)]
    )
    maker.compute_advantages_and_returns(batches)
    totals = ([0.0, 1.0], [-1.0], [0.0, 0.0, 3.0])
    returns = [g for rewards in totals for g in turn_returns(rewards, 0.5)]
    assert flat(by_turn(batches, given, "returns")) == pytest.approx([*map(float, returns)])
    wanted = standardized(returns, returns, 0, 1e-8, 1e-6)
    assert flat(by_turn(batches, given)) == pytest.approx(wanted)


@pytest.mark.parametrize("scaled", [True, False])
def test_gae_over_turns_is_whitened_as_openrlhf_does(scaled: bool) -> None:
    given = [episode([0.5, 1.0]), episode([0.1, 0.0, 2.0])]
    words = ["--algo.advantage.gamma", "0.9", "--algo.advantage.lambd", "0.8"]
    words += [] if scaled else ["--algo.advantage.no_std_norm"]
    maker = experience_maker("--algo.advantage.estimator", "gae", *words)
    batches = in_micro_batches([response(e) for e in given])
    for batch in batches:
        batch.values = torch.zeros(batch.action_mask.shape)
        for row, label in enumerate(batch.labels):
            played = played_of(label)
            assert played is not None
            for turn, (start, _) in enumerate(played.spans):
                batch.values[row, start - 1] = given[row]["values"][turn]
    maker.compute_advantages_and_returns(batches)
    wanted = case("gae", given, gamma=0.9, lam=0.8)["expected"]["gae"]
    tokens = torch.tensor(
        [
            advantage
            for e, of in zip(given, wanted, strict=True)
            for advantage, length in zip(of, e["response_lengths"], strict=True)
            for _ in range(length)
        ]
    )
    tokens = tokens - tokens.mean()
    if scaled:
        tokens = tokens / tokens.std(unbiased=False)
    result = torch.cat([b.advantages[b.action_mask != 0] for b in batches])
    torch.testing.assert_close(result, tokens, atol=1e-5, rtol=0)
    targets = [
        a + v for e, of in zip(given, wanted, strict=True) for a, v in zip(of, e["values"], strict=True)
    ]
    assert flat(by_turn(batches, given, "returns")) == pytest.approx(targets, abs=1e-6)


@pytest.mark.parametrize("name", ["reinforce", "group_norm", "rloo"])
def test_openrlhfs_own_estimators_are_left_alone(name: str) -> None:
    given = [episode([0.5, 1.0]), episode([0.1, 0.0, 2.0])]
    words = ["--algo.advantage.estimator", name, "--rollout.n_samples_per_prompt", "2"]
    maker = experience_maker(*words)
    batches = in_micro_batches([response(e) for e in given])
    plain = in_micro_batches([own_agent(e, sum(e["rewards"])) for e in given])
    maker.compute_advantages_and_returns(batches)
    type(maker).__mro__[1].compute_advantages_and_returns(maker, plain)
    for ours, theirs in zip(batches, plain, strict=True):
        assert (ours.advantages == theirs.advantages).all()
        assert ours.info["gem/turns"].tolist() == [2.5, 2.5]


def test_the_remaining_rows_fit_the_actors_buffer() -> None:
    given = [episode([0.5, 1.0]), episode([1.0], trainable=False), episode([0.0])]
    maker = experience_maker("--train.batch_size", "3")
    (batch,) = in_micro_batches([response(e) for e in given])
    batch.info["kl"] = torch.tensor([0.5, float("nan"), 0.25])  # OpenRLHF's mean over no token
    maker.compute_advantages_and_returns([batch])
    assert batch.info["kl"].tolist() == [0.5, 0.0, 0.25]
    assert batch.info["gem/error_rate"].tolist() == pytest.approx([1 / 3] * 3)
    assert batch.info["return"].tolist() == pytest.approx([1.5, 0.0, 0.0])
    again = make_experience_batch(split_experience_batch(batch))
    assert (again.advantages == batch.advantages).all()
    for value in again.info.values():
        assert torch.tensor(value, dtype=torch.float).shape == (3,)  # as in the actor


def test_only_a_batch_of_failures_alone_is_rejected() -> None:
    maker = experience_maker("--train.batch_size", "2")
    failures = [response(episode([1.0], trainable=False), seed=seed) for seed in (7, 8, 9)]
    with pytest.raises(EnvError, match=r"no episode is trainable: 3 of 3 .* test with seed 7: "):
        maker.compute_advantages_and_returns(in_micro_batches(failures))
    one_left = [*failures, response(episode([0.5, 1.0]))]  # more failures than --train.batch_size
    batches = maker.compute_advantages_and_returns(in_micro_batches(one_left))
    assert [bool(row.any()) for batch in batches for row in batch.advantages] == [False, False, False, True]


OWN = ["reinforce", "rloo", "reinforce_baseline", "group_norm", "dr_grpo"]
if correction.has_levels():  # both came with OpenRLHF 0.11.2
    OWN.append("flash_reinforce")


def test_an_estimator_without_baselines_is_left_alone() -> None:
    maker = experience_maker("--algo.advantage.estimator", "gae", "--rollout.n_samples_per_prompt", "2")
    with failures_left_out(maker.args, [], torch.tensor([True, False])):
        assert maker.args.algo.advantage.estimator == "gae"


@pytest.mark.parametrize(
    "penalty", [[], ["--reward.stop_properly_penalty_coef", "0.5"]], ids=["plain", "penalty"]
)
@pytest.mark.parametrize("name", OWN)
def test_failed_episodes_are_excluded_from_openrlhfs_baselines(name: str, penalty: list[str]) -> None:
    """Two samples per prompt give the same result as three samples of which one failed."""
    rewards = [[1.0, 0.0], [0.25, 2.0], [3.0, 0.5], [1.0, 1.0]]
    failed = episode([9.0], trainable=False)
    cut = {"truncated": True}
    good = [[response(episode([r]), **(cut if r == 2.0 else {})) for r in of] for of in rewards]
    three = [
        row
        for index, of in enumerate(good)
        for row in [*of[: index % 3], response(failed, **cut), *of[index % 3 :]]
    ]
    words = ["--algo.advantage.estimator", name, *penalty, "--rollout.n_samples_per_prompt"]
    wanted, result = (
        experience_maker(*words, str(samples)).compute_advantages_and_returns(in_micro_batches(rows, size=5))
        for samples, rows in ((2, [row for of in good for row in of]), (3, three))
    )
    rows = [
        [
            (advantages[mask != 0], float(reward), float(total))
            for batch in batches
            for advantages, mask, reward, total in zip(
                batch.advantages, batch.action_mask, batch.rewards, batch.info["return"], strict=True
            )
            if mask.any()
        ]
        for batches in (result, wanted)
    ]
    assert len(rows[0]) == len(rows[1]) == 8
    for (ours, reward, total), (theirs, same, as_much) in zip(*rows, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
        assert (reward, total) == pytest.approx((same, as_much), abs=1e-6)
    spread = [
        torch.cat([batch.info["group_reward_std"] for batch in batches]) for batches in (result, wanted)
    ]
    torch.testing.assert_close(spread[0].view(-1, 3)[:, :2], spread[1].view(-1, 2), atol=1e-6, rtol=1e-5)
    assert any(advantages.any() for advantages, _, _ in rows[0])


@pytest.mark.parametrize("name", ["rloo", "group_norm", "dr_grpo"])
def test_a_sample_whose_group_failed_has_no_advantage(name: str) -> None:
    given = [response(episode([3.0])), *[response(episode([1.0], trainable=False))] * 2]
    maker = experience_maker("--algo.advantage.estimator", name, "--rollout.n_samples_per_prompt", "3")
    (batch,) = maker.compute_advantages_and_returns(in_micro_batches(given))
    assert not batch.advantages.any()
    assert batch.info["group_reward_std"].tolist() == [0.0] * 3


def test_every_estimator_of_openrlhf_is_known() -> None:
    """An estimator missing here might include failed episodes in its own baseline."""
    choices: list[Any] = []

    def note(parser: Any, action: Any) -> None:
        choices.extend(action.choices)

    with mock.patch.object(_train_ppo_ray, "add_flags", note), pytest.raises(SystemExit):
        parse("--algo.advantage.estimator", "no such estimator")
    assert {*choices} == {*OWN, "gae"}


@pytest.fixture
def one_process(tmp_path: Any) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


FAILED = episode([1.0], trainable=False)
SILENT = dict(episode([0.5]), response_lengths=[0])
"""An episode whose only response is empty."""


def log_probs(mask: torch.Tensor, weight: float | torch.Tensor = -1.0) -> torch.Tensor:
    """Return the log-probs of a model with one weight."""
    return weight * mask * (1 + torch.arange(mask.shape[1])) / 8


def made_by_openrlhf(given: list[dict[str, Any]], *words: str) -> list[Any]:
    """Return the maker's whole batch, with `log_probs` instead of models; the engine's are lower."""
    maker = experience_maker("--train.batch_size", "99", "--rollout.micro_batch_size", "2", *words)
    maker.tokenizer = SimpleNamespace(pad_token_id=0)

    def make_experience(micro_batches: list[Any]) -> list[Any]:
        for batch in micro_batches:
            batch.action_log_probs = batch.base_action_log_probs = log_probs(batch.action_mask)
            sampled = batch.action_mask * (batch.sequences[:, 1:] == 2)
            batch.rollout_log_probs = log_probs(sampled) - 0.5 * sampled
            batch.values = 0.5 * batch.action_mask if "gae" in words else None
            batch.kl = torch.ones(batch.action_mask.shape)
            batch.info["kl"] = batch.kl.mean(1)
        return micro_batches

    maker.make_experience = make_experience
    made: list[Any] = maker.make_experience_batch([experiences([response(e)], first=0) for e in given])
    return made


class GemActor(ActorPPOTrainer):
    """OpenRLHF's actor trainer with GEM's hook."""

    training_step = actor_step(ActorPPOTrainer.training_step)


def trained(
    batches: list[Any], *, scheme: str = "off", use_kl: bool = False, max_tokens: int = 0
) -> tuple[dict[str, float], float]:
    """Return the actor's metrics, and the gradient of a one-weight model.

    Args:
        batches: Batches of the experience maker.
        scheme: Log-prob correction.
        use_kl: Whether the loss has a KL penalty.
        max_tokens: Size of dynamic micro-batches; 0 for micro-batches of one row.
    """
    weight = torch.full((), -1.0, requires_grad=True)

    class Actor:
        def train(self) -> None: ...

        def __call__(self, sequences: Any, mask: Any, **unused: Any) -> tuple[torch.Tensor, None]:
            return log_probs(mask, weight), None

    buffer = NaiveReplayBuffer(1, dynamic_batch=max_tokens > 0)
    for batch in batches:
        buffer.append(batch)
    args = SimpleNamespace(
        train=SimpleNamespace(
            dynamic_batch_enable=max_tokens > 0, max_tokens_per_gpu=max_tokens, batch_size=len(buffer.items)
        ),
        rollout=SimpleNamespace(batch_size=len(buffer.items), n_samples_per_prompt=1),
        ds=SimpleNamespace(tensor_parallel_size=1, ring_attn_size=1),
        algo=SimpleNamespace(
            kl=SimpleNamespace(use_loss=use_kl, init_coef=0.1, estimator="k3", unbiased_gradient=False)
        ),
        actor=SimpleNamespace(entropy_coef=None),
    )
    strategy = SimpleNamespace(
        args=args,
        ds_device_mesh={"dp": SimpleNamespace(get_group=lambda: dist.group.WORLD)},
        ring_attn_group=None,
        is_rank_0=lambda: False,
        world_size=1,
        accumulated_gradient=len(buffer.items),
        all_reduce=lambda data, op="mean": DeepspeedStrategy.all_reduce(strategy, data, op),
        backward=lambda loss, *unused: (loss / (1 if max_tokens else len(buffer))).backward(),
        optimizer_step=lambda *args, **kwargs: None,
        get_grad_norm=lambda model: 0.0,
    )
    trainer = GemActor.__new__(GemActor)
    trainer.__dict__ |= {
        "args": args,
        "strategy": strategy,
        "replay_buffer": buffer,
        "dataloader_pin_memory": False,
        "max_epochs": 1,
        "actor": Actor(),
        "ema_model": None,
        "aux_loss": False,
        "actor_loss_fn": correction.policy_loss(parse(*words(correction.flags(scheme))).algo.advantage),
        "actor_optim": None,
        "actor_scheduler": SimpleNamespace(get_last_lr=lambda: [0.0]),
    }
    status = trainer.ppo_train(0.1)
    assert weight.grad is not None
    return status, float(weight.grad)


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("empty", [FAILED, SILENT], ids=["failed", "silent"])
@pytest.mark.parametrize("name", ["rebn", "reinforce", "gae"])
def test_a_row_without_a_token_is_in_no_loss_and_no_metric(name: str, empty: Any) -> None:
    """Run OpenRLHF's own actor in its default micro-batches of one row, with and without the failed row."""
    words = ["--algo.advantage.estimator", name, "--algo.advantage.gamma", "0.9"]
    good = [episode([0.5, 1.0]), episode([0.1, 0.0, 2.0])]
    for scheme, use_kl in (("off", False), ("icepop", True), ("seq-mask-tis", False)):
        batches = [made_by_openrlhf(rows, *words) for rows in (good, [empty, *good])]
        (status, gradient), (with_empty, same) = (trained(of, scheme=scheme, use_kl=use_kl) for of in batches)
        assert same == pytest.approx(gradient, rel=1e-6) != 0
        for metric in [name for name in status if not name.startswith("gem/")]:
            # OpenRLHF multiplies these by the number of micro-batches.
            factor = 3 / 2 if metric == "policy_loss" or (use_kl and metric == "kl") else 1
            assert with_empty[metric] == pytest.approx(factor * status[metric], rel=1e-6, abs=1e-6), metric


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("max_tokens", [0, 99])
def test_an_update_from_failures_alone_is_rejected(max_tokens: int) -> None:
    batches = made_by_openrlhf([FAILED, FAILED, episode([0.5])], "--algo.advantage.gamma", "0.9")
    with pytest.raises(EnvError, match=r"an update of .*: no episode is trainable: \d of \d .* seed 0"):
        trained(batches[:1], max_tokens=max_tokens)


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("max_tokens", [1, 12, 99])
def test_dynamic_micro_batches_have_the_same_gradient(max_tokens: int) -> None:
    """OpenRLHF sorts the rows by length and packs them; the failed row may be alone in a micro-batch."""
    given = [episode([0.5, 1.0]), FAILED, episode([0.1, 0.0, 2.0]), episode([1.0])]
    wanted, gradient = trained(made_by_openrlhf(given, "--algo.advantage.gamma", "0.9"))
    sizes = SimpleNamespace(
        actor=SimpleNamespace(num_nodes=1, num_gpus_per_node=1),
        ds=SimpleNamespace(ring_attn_size=1, tensor_parallel_size=1),
    )
    balanced = balance_experiences(made_by_openrlhf(given, "--algo.advantage.gamma", "0.9"), sizes)
    status, result = trained(balanced, max_tokens=max_tokens)
    assert result == pytest.approx(gradient, rel=1e-6) != 0
    for metric in ("reward", "return", "gem/return", "rebn/turns"):
        assert status[metric] == pytest.approx(wanted[metric], rel=1e-6), metric


def test_flags_that_would_change_gae_over_turns_are_rejected_in_combination() -> None:
    maker = experience_maker("--algo.advantage.estimator", "gae", "--reward.clip_range", "-1", "1")
    with pytest.raises(ConfigError, match=r"--reward\.clip_range"):
        maker.compute_advantages_and_returns(in_micro_batches([response(episode([0.5]))]))
