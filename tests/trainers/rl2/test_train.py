"""Runs RL2's own trainer with a tiny model and checks what the loss consumes."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from gem_core.rollout import Episode, read_traces
from tests.trainers import chaos, evidence, marks
from tests.trainers.rl2 import harness, spied
from tests.trainers.rl2.measure import gem_seconds

pytestmark = [
    pytest.mark.skipif(not os.environ.get("GEM_CORE_RL2"), reason="runs the trainer: `nox -s rl2` does"),
    pytest.mark.timeout(900),
]
tree = pytest.mark.tree
VERSIONS = ["index", pytest.param("tree", marks=tree)]
CRITIC = {
    "index": ["critic.lr=1e-3"],
    "tree": [
        "critic.optimizer.lr=1e-3",
        "critic.max_length_per_device=1024",
        "critic.dtype=float32",
        "critic.enable_gradient_checkpointing=false",
    ],
}
"""Options of the critic; the source tree has no defaults for its size."""
ENDLESS = "test:Endless"
OFTEN = chaos.CHAOS.replace("(", "(p=0.3,")
"""Fails more often, because an episode has few turns."""
TOLERANCE = 1e-6
"""Tolerance of the loss that RL2 logs."""


def assert_steps_are_right(
    run: harness.Run,
    tokenizer: Any,
    model: Any,
    *,
    episodes_per_step: int = 8,
    or_more: bool = False,
    played: Sequence[Episode] | None = None,
    **options: Any,
) -> list[list[evidence.Played]]:
    """Check every update of a run of three steps and its metrics; return the trainable episodes by step.

    `played` contains the traces of a run in which some episodes fail; None for a run without failures.
    `or_more` allows further episodes in a step, which `played` has to contain.
    """
    episodes = evidence.played(run.spy, tokenizer)
    updates, metrics = spied.updates(run.spy, model), harness.metrics_of(run)
    assert len(updates) == 3
    steps = []
    for number, update in enumerate(updates, start=1):
        mine = evidence.assert_update_is_right(update, episodes, tokenizer, model, **options)
        logged = metrics[number]
        if played is None:
            assert len(mine) == episodes_per_step
            assert logged["gem/error_rate"] == 0
        else:
            step_episodes = [episode for episode in played if episode.metadata["step"] == number]
            assert len(step_episodes) == episodes_per_step or (
                or_more and len(step_episodes) > episodes_per_step
            )
            assert len(mine) == sum(episode.trainable for episode in step_episodes)
            chaos.assert_rates_are_right(logged, step_episodes)
            own = logged["scores/train" if "scores/train" in logged else "rewards/train"]
            assert own == pytest.approx(logged["gem/return"], abs=1e-5)
        end = tokenizer.eos_token
        assert not any(2 * end in tokenizer.decode(episode.token_ids) for episode in mine)
        evidence.assert_metrics_are_right(logged, mine)
        steps.append(mine)
    assert any(len(episode.rewards) > 1 for step in steps for episode in step)
    return steps


@pytest.mark.parametrize("version", VERSIONS)
def test_three_steps_on_a_mix(
    tmp_path: Path,
    warm: Path,
    warm_tokenizer: Any,
    model: Any,
    version: str,
    own_ids: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One of the environments fails in every possible way; the others are a new file and a new package."""
    words = [] if version == "index" else ["+gem.on_env_error=retry", "+gem.max_env_retries=1"]
    mark = marks.TEMPLATE_KWARGS["mark"]
    # One of these episodes has no room for a second turn; rl-square 0.0.2 has no limit of an episode.
    long = [] if version == "index" else [f"{ENDLESS}(told=190)"]
    tokens = "rollout.train_sampling_params" if version == "index" else "rollout.train.sampling_params"
    run = harness.run_rl2(
        tmp_path,
        marks.marked_model(warm, tmp_path),
        f"+gem.traces={tmp_path}/traces",
        f"+gem.step_timeout={chaos.STEP_TIMEOUT}",
        "trainer.test_freq=3",
        "+adv.rebn.ddof=1",
        f"+gem.system_prompt={marks.SYSTEM}",
        f"+gem.template_kwargs.mark='{mark}'",
        f"+gem.max_turns={marks.MAX_TURNS}",
        f"{tokens}.max_new_tokens={marks.MAX_TOKENS}",
        *words,
        version=version,
        envs=[f"{OFTEN}=2", *own_ids, ENDLESS, *long],
        eval_envs=[harness.GUESS, harness.MASTERMIND],
    ).check()
    everything = list(read_traces(tmp_path / "traces" / "train.jsonl"))
    steps = assert_steps_are_right(run, warm_tokenizer, model, played=everything, ddof=1)
    marks.assert_options_reach_the_engine(run.spy, warm_tokenizer)
    chaos.assert_every_failure_is_counted(everything, run.spy)
    traces = [chaos.calm(episode) for episode in everything if episode.trainable]
    assert {episode.env_id for episode in traces} == evidence.env_ids(chaos.CHAOS, *own_ids, ENDLESS)
    endless = {(e.env_kwargs.get("told"), len(e.turns), e.stop_reason) for e in traces if e.env_id == ENDLESS}
    assert endless == {(None, marks.MAX_TURNS, "max_turns"), *((190, 1, "token_budget") for _ in long)}
    played = [episode.token_ids for step in steps for episode in step]
    found = [episode.rows()[0].token_ids for episode in traces]
    if version == "index":  # its environments receive texts, so traces contain the ids of these texts
        assert sorted(map(warm_tokenizer.decode, found)) == sorted(map(warm_tokenizer.decode, played))
    else:
        assert sorted(found) == sorted(played)
    evaluated = list(read_traces(tmp_path / "traces" / "eval.jsonl"))
    held = {(env, seed) for env in (harness.GUESS, harness.MASTERMIND) for seed in range(4)}
    assert {(episode.env_id, episode.seed) for episode in evaluated} <= held
    assert len(evaluated) >= 4
    last = harness.metrics_of(run)[3]
    assert last["gem/return/test"] == pytest.approx(
        sum(episode.total_reward for episode in evaluated) / len(evaluated)
    )
    second = [episode for episode in traces if episode.metadata["step"] == 2]
    spent = gem_seconds(second, warm_tokenizer)
    times = harness.metrics_of(run)[2]
    parts = ("rollout", "compute_advantages", "update_actor", "update_rollout")
    step = sum(times[f"timing/{part}"] for part in parts)
    with capsys.disabled():
        print(f"\nGEM's code: {1000 * spent:.1f} ms of a step of {step:.2f} s ({100 * spent / step:.2f}%)")


@tree
def test_two_ranks_and_groups(tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any) -> None:
    run = harness.run_rl2(
        tmp_path,
        warm,
        "rollout.train.prompts_per_rollout=4",
        "rollout.train.responses_per_prompt=2",
        "rollout.train.dynamic_filtering=false",
        "adv.estimator=gem_rloo",
        f"+gem.traces={tmp_path}/traces",
        version="tree",
        ranks=2,
    ).check()
    played = list(read_traces(tmp_path / "traces" / "train.jsonl"))
    assert_steps_are_right(run, warm_tokenizer, model, groups=chaos.names_of(played))
    noted = [torch.load(path, weights_only=False) for path in run.spy.glob("update-*.pt")]
    assert [update["sharded"] for update in noted] == [True] * 6  # three updates on each rank
    for number in (1, 2, 3):  # each task twice
        seeds = [episode.seed for episode in played if episode.metadata["step"] == number]
        assert len(seeds) == 2 * len(set(seeds)) == 8


@tree
def test_a_partial_rollout(tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any) -> None:
    """Weights hardly change here, so tokens sampled before a pause match the new weights."""
    run = harness.run_rl2(
        tmp_path,
        warm,
        "rollout.train.partial_rollout=true",
        "rollout.train.prompts_per_rollout=4",
        "actor.optimizer.lr=1e-8",
        "actor.scheduler.min_lr=1e-8",
        f"+gem.traces={tmp_path}/traces",
        version="tree",
    ).check()
    assert spied.join_aborted(run.spy)
    played = list(read_traces(tmp_path / "traces" / "train.jsonl"))
    steps = assert_steps_are_right(
        run, warm_tokenizer, model, episodes_per_step=4, or_more=True, played=played
    )
    trained = [tuple(episode.token_ids) for step in steps for episode in step]
    assert len(set(trained)) == len(trained) == len(played)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_config_that_cannot_be_honored_is_reported_in_one_line(
    tmp_path: Path, warm: Path, version: str
) -> None:
    responses = "train_data" if version == "index" else "rollout.train"
    run = harness.run_rl2(tmp_path, warm, f"{responses}.responses_per_prompt=2", version=version)
    assert run.code != 0
    said = [line for line in run.output.splitlines() if line.startswith("gem_rl2: ")]
    assert len(said) == 1
    assert "dynamic_filtering=True: drops groups" in said[0]
    assert not (run.spy / "engine.jsonl").exists()


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
def test_a_penalty_in_the_reward(
    tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any, version: str
) -> None:
    run = harness.run_rl2(
        tmp_path, warm, "actor.kl.coef=0.5", "actor.kl.type=reward", version=version
    ).check()
    episodes = evidence.played(run.spy, warm_tokenizer)
    updates = spied.updates(run.spy, model)
    assert len(updates) == 3
    for update in updates:
        evidence.assert_update_is_right(update, episodes, warm_tokenizer, model, kl_coef=0.5)
    gaps = [abs(a - b) for row in updates[-1].rows for a, b in zip(row.old, row.reference or [], strict=True)]
    assert max(gaps) > 1e-3  # the penalty was not zero


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("context", ["rebuild", "template"])
def test_contexts_with_a_row_per_turn(
    tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any, context: str, version: str
) -> None:
    words = {
        "rebuild": '+gem.wrappers="spy,concat_with_action"',
        "template": f"+gem.chat_template={marks.counting_template(warm, tmp_path)}",
    }
    run = harness.run_rl2(tmp_path, warm, f"+gem.context={context}", words[context], version=version).check()
    steps = assert_steps_are_right(run, warm_tokenizer, model, gap=1e-5)
    for update, episodes in zip(spied.updates(run.spy, model), steps, strict=True):
        rows = [row for row in update.rows if not row.is_pad]
        assert len(rows) == sum(len(episode.rewards) for episode in episodes)


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
def test_rebn_with_a_custom_environment_file(
    tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any, version: str
) -> None:
    from tests.trainers.rl2.cpu import own_env

    lines = (json.dumps({"messages": [{"role": "user", "content": f"Task {n}."}]}) for n in range(24))
    (tmp_path / "own.jsonl").write_text("\n".join(lines))
    where = "train_data" if version == "index" else "rollout.train"
    run = harness.run_rl2(
        tmp_path,
        warm,
        f"{where}.path={tmp_path}/own.jsonl",
        f"rollout.env_path={own_env.__file__}",
        wrappers="",
        version=version,
    ).check()
    requests = [json.loads(line) for line in (run.spy / "engine.jsonl").read_text().splitlines()]
    updates = spied.updates(run.spy, model)
    assert len(updates) == 3
    for update in updates:
        played = [evidence.conversation(row.prompt + row.response, requests) for row in update.rows]
        assert played
        for made in played:
            texts = [
                warm_tokenizer.decode(request["response"], skip_special_tokens=True)
                for request in made.requests
            ]
            made.rewards = [own_env.reward_of(text) for text in texts]
            assert len(texts) == own_env.TURNS
        wanted = evidence.oracle([made.rewards for made in played], evidence.GAMMA)
        for row, made, advantages in zip(update.rows, played, wanted, strict=True):
            evidence.assert_row_is_right(row, made, advantages)


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
def test_other_terms_of_the_loss(
    tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any, version: str
) -> None:
    """The logged loss contains each term. Small terms leave the gradient's direction to the advantages.

    Actor and engine have the same weights, so each token's weight would be 1, and the limit is its weight.
    """
    entropy, limit, kl = 0.001, 0.5, 0.05
    run = harness.run_rl2(
        tmp_path,
        warm,
        f"actor.entropy.coef={entropy}",
        f"actor.tis_coef={limit}",
        f"actor.kl.coef={kl}",
        "actor.kl.type=loss",
        version=version,
    ).check()
    assert_steps_are_right(run, warm_tokenizer, model)
    smallest = {"entropy": math.inf, "correction": math.inf, "penalty": math.inf}
    for number, rows in enumerate(spied.sampled(run.spy), start=1):
        names = ("advantages", "logps", "llm_logps", "ref_logps")
        advantages, logps, sampled, reference = (
            torch.tensor([value for row in rows for value in row[name]]) for name in names
        )
        weights = (logps - sampled).exp().clamp(max=limit)
        policy = float(-(advantages * weights).mean())
        penalties = kl * (logps - reference) ** 2 / 2
        penalty = float((penalties * weights if version == "tree" else penalties).mean())
        logged = harness.metrics_of(run)[number]
        bonus = entropy * logged["actor/entropy"]
        assert logged["actor/loss"] == pytest.approx(policy + penalty - bonus, abs=TOLERANCE)
        terms = {"entropy": bonus, "correction": abs(policy - float(-advantages.mean()))}
        terms |= {"penalty": penalty} if number > 1 else {}  # the first step has the reference's weights
        smallest = {name: min(terms.get(name, math.inf), value) for name, value in smallest.items()}
    assert all(100 * TOLERANCE < value < math.inf for value in smallest.values()), smallest


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
def test_a_critic(tmp_path: Path, warm: Path, warm_tokenizer: Any, version: str) -> None:
    """RL2's own estimator discounts per token; episodes whose environment failed have no part in it."""
    run = harness.run_rl2(
        tmp_path,
        warm,
        "adv.estimator=gae",
        "adv.lamda=0.95",
        f"+gem.traces={tmp_path}/traces",
        f"+gem.step_timeout={chaos.STEP_TIMEOUT}",
        *CRITIC[version],
        f"critic.model_name={warm}",
        version=version,
        envs=[chaos.CHAOS, harness.MASTERMIND],
    ).check()
    traces = list(read_traces(tmp_path / "traces" / "train.jsonl"))
    assert not all(episode.trainable for episode in traces)
    updates = spied.sampled(run.spy)
    assert len(updates) == 3
    predicted = []
    for number, rows in enumerate(updates, start=1):
        mine = [e for e in traces if e.metadata["step"] == number and e.trainable]
        trained = [row for row in rows if row["actions"]]
        returns = [sum(row["rewards"]) for row in trained]
        assert sorted(returns) == pytest.approx(sorted(episode.total_reward for episode in mine), abs=1e-6)
        values = [row["values" if version == "index" else "old_values"] for row in trained]
        wanted = [
            generalized_advantages(row["rewards"], row_values, evidence.GAMMA, 0.95)
            for row, row_values in zip(trained, values, strict=True)
        ]
        predictions, every = (torch.tensor([x for row in rows for x in row]) for rows in (values, wanted))
        found, targets = ([x for row in trained for x in row[name]] for name in ("advantages", "returns"))
        whitened = (every - every.mean()) / (every.std() + torch.finfo(torch.float32).eps)
        assert found == pytest.approx(whitened.tolist(), abs=1e-4)
        assert targets == pytest.approx((every + predictions).tolist(), abs=1e-4)
        predicted.append(values)
    assert any(value for row_values in predicted[-1] for value in row_values)


def generalized_advantages(
    rewards: list[float], values: list[float], gamma: float, lam: float
) -> list[float]:
    """Return GAE over the sampled tokens of an episode, each of which is a step."""
    advantages, next_value, following = [], 0.0, 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        following = reward + gamma * next_value - value + gamma * lam * following
        advantages.append(following)
        next_value = value
    return advantages[::-1]


@pytest.mark.full
@tree
def test_an_evaluation_alone(tmp_path: Path, warm: Path) -> None:
    run = harness.run_rl2(
        tmp_path, warm, "trainer.eval_only=true", f"+gem.traces={tmp_path}/traces", version="tree"
    ).check()
    evaluated = list(read_traces(tmp_path / "traces" / "eval.jsonl"))
    assert (
        len({(episode.env_id, episode.seed) for episode in evaluated}) == 4
    )  # rollout.test.prompts_per_rollout
    mean = sum(episode.total_reward for episode in evaluated) / len(evaluated)
    assert harness.metrics_of(run)[0]["gem/return/test"] == pytest.approx(mean)
    assert not list(run.spy.glob("*.pt"))
