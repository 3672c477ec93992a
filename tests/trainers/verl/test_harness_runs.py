"""verl's own trainer on episodes of foreign agents: weights of the own loop, gradient of the oracle."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import gem_core
from gem_agents import run_harness
from gem_chat import AppendContext
from gem_core.rollout import Episode, EpisodeLimits, Generation
from gem_core.trainers._tasks import split_tasks
from gem_envs.sandbox import self_check
from gem_lab.train._batches import policy_gradient
from tests.trainers import evidence, real_agent
from tests.trainers.spies.gem_script import prompt_key
from tests.trainers.verl import harness
from tests.trainers.verl.spied import metrics_of, updates

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        not os.environ.get("GEM_CORE_VERL"), reason="runs the trainer: `nox -s verl-full` does"
    ),
    pytest.mark.timeout(1200),
]

RUN = ["trainer.v1.trainer_mode=gem_sync", "trainer.val_before_train=False", "+data.seed=0"]


def answers(folder: Path, tokenizer: Any, texts: list[str]) -> str:
    """Write a script whose answer to a prompt depends on the prompt only; return its path."""
    many = []
    for text in texts:
        ids = [id for letter in text for id in tokenizer.encode(letter)] + [tokenizer.eos_token_id]
        many.append((ids, [-1.0] * len(ids), "stop"))
    path = folder / "answers.json"
    path.write_text(json.dumps({"*": many}))
    return str(path)


def trained(update: evidence.Update) -> list[tuple[list[int], list[int], list[float], list[float]]]:
    """Return the rows of a step in an order of their own."""
    return sorted((row.prompt, row.response, row.mask, row.advantages) for row in update.rows)


def test_three_steps_with_a_foreign_agent_end_at_the_weights_of_the_own_loop(
    tmp_path: Path, warm: Path, warm_tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is scripted: vLLM's samples on a CPU are not the same in two runs."""
    texts = [rf"\boxed{{{number}}}" for number in range(1, 11)] + ["what?"]
    monkeypatch.setenv("GEM_SCRIPT", answers(tmp_path, warm_tokenizer, texts))
    words = [*RUN, "trainer.total_training_steps=4", "+gem.wrappers=named"]
    runs = []
    for name, more in (("native", []), ("foreign", ["+gem.harness='tests.trainers.talker:talk'"])):
        folder = tmp_path / name
        folder.mkdir()
        runs.append(harness.run_verl(folder, warm, *words, *more).check())
    native, foreign = (updates(run.spy) for run in runs)
    assert len(native) == len(foreign) == 4
    for mine, theirs in zip(native, foreign, strict=True):
        assert trained(mine) == trained(theirs)
    pairs = [*zip(native[3].weights, foreign[3].weights, strict=True)]  # after three steps
    moved = [(end - begin).abs().max() for begin, (end, _) in zip(native[0].weights, pairs, strict=True)]
    assert max(moved) > 1e-4
    for mine, theirs in pairs:  # rows are in the order in which episodes end, in which gradients are summed
        assert (mine - theirs).abs().max() < 1e-6
    steps = metrics_of(runs[1])
    assert {step["gem/recognized"] for step in steps} == {1.0}
    assert all("gem/recognized" not in step for step in metrics_of(runs[0]))


@pytest.mark.skipif(not self_check()["namespace"].available, reason=self_check()["namespace"].reason)
def test_a_coding_agent_trains_with_the_gradient_of_the_oracle(
    tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program in a process of its own works in the shell of a task; each of its commands has a reward."""
    texts = ["Hm.", "I look.\n```bash\nls\n```", "```bash\npwd\n```", "```bash\nsubmit\n```"]
    monkeypatch.setenv("GEM_SCRIPT", answers(tmp_path, warm_tokenizer, texts))
    run = harness.run_verl(
        tmp_path,
        warm,
        *RUN,
        "trainer.total_training_steps=2",
        "data.train_files=['terminal:Files-v0']",
        "data.val_files=['terminal:Files-v0']",
        "data.max_prompt_length=800",
        "data.max_response_length=1600",
        "actor_rollout_ref.rollout.max_model_len=2400",
        "actor_rollout_ref.rollout.max_num_batched_tokens=2400",
        "+gem.max_turns=4",
        "+gem.max_tokens_per_turn=64",
        "+gem.harness='tests.trainers.coder:CODER'",
    ).check()
    episodes = evidence.played(run.spy, warm_tokenizer)
    assert {reward for episode in episodes.values() for reward in episode.rewards} >= {-0.1, 0.0}
    assert max(len(episode.rewards) for episode in episodes.values()) > 1
    steps = updates(run.spy)
    assert len(steps) == 2
    for update in steps:
        assert_step_is_that_of_the_oracle(update, episodes, warm_tokenizer, model)
    assert {step["gem/recognized"] for step in metrics_of(run)} == {1.0}


def assert_step_is_that_of_the_oracle(
    update: evidence.Update, episodes: dict[str, evidence.Played], tokenizer: Any, model: Any, **options: Any
) -> None:
    """Check rows, advantages, and the gradient; the log-probs of a script are not those of the model."""
    mine = evidence.assert_update_is_right(update, episodes, tokenizer, model, on_policy=False, **options)
    wanted = evidence.oracle([episode.rewards for episode in mine], evidence.GAMMA)
    made = [episode.episode(values) for episode, values in zip(mine, wanted, strict=True)]
    reference = torch.cat([part.flatten() for part in policy_gradient(model, made).values()])
    found = torch.cat([part.flatten() for part in update.gradients if part is not None])
    assert float((found / found.norm() - reference / reference.norm()).norm()) < 1e-5


@pytest.mark.full
@real_agent.needs_agent
def test_mini_swe_agent_trains_on_the_episodes_that_it_plays_without_a_trainer(
    tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the two samples of a task, one solves it and one only looks. A prompt of verl's own is an error."""
    tokenizer = real_agent.with_calls(copy.deepcopy(warm_tokenizer))
    shutil.copytree(warm, tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    seeds = [task["seed"] for task in split_tasks([real_agent.TASKS], "train", 2, seed=0)]
    solved = real_agent.solutions(seeds)
    script: dict[str, list[Any]] = {}

    def play(seed: int, solves: bool) -> Episode:
        class Scripted:
            async def generate(self, prompt_ids: Sequence[int], **limits: Any) -> Generation:
                said = real_agent.answer(tokenizer, prompt_ids, solved, solves)
                script.setdefault(prompt_key([*prompt_ids]), []).append(said)
                return said

        limits = EpisodeLimits(max_turns=6, max_tokens_per_turn=2000)
        with gem_core.make(real_agent.TASKS) as env:
            context = AppendContext(tokenizer)
            return asyncio.run(run_harness(real_agent.NAME, env, Scripted(), context, limits, seed=seed))

    native = [play(seed, solves) for seed in seeds for solves in (True, False)]
    assert [episode.rewards for episode in native] == [[0.0, 1.0], [0.0, 0.0]] * 2
    (tmp_path / "script.json").write_text(json.dumps(script))
    monkeypatch.setenv("GEM_SCRIPT", str(tmp_path / "script.json"))
    run = harness.run_verl(
        tmp_path,
        tmp_path / "model",
        *RUN,
        "trainer.total_training_steps=1",
        f"data.train_files=['{real_agent.TASKS}']",
        f"data.val_files=['{real_agent.TASKS}']",
        "data.train_max_samples=2",
        "data.train_batch_size=2",
        "data.max_prompt_length=2800",
        "data.max_response_length=800",
        "actor_rollout_ref.actor.ppo_mini_batch_size=2",
        "actor_rollout_ref.rollout.max_model_len=3600",
        "actor_rollout_ref.rollout.max_num_batched_tokens=3600",
        "+gem.max_turns=6",
        "+gem.max_tokens_per_turn=2000",
        f"+gem.harness={real_agent.NAME}",
    ).check()
    requests = [json.loads(line) for line in (run.spy / "engine.jsonl").read_text().splitlines()]
    rewards = {tuple(row.token_ids): episode.rewards for episode in native for row in episode.rows()}
    (update,) = updates(run.spy)
    others = {}
    for row in update.rows:
        ids = [*row.prompt, *row.response]
        others[id(row)] = evidence.conversation(ids, requests)
        others[id(row)].rewards = rewards.pop(tuple(ids))
    assert not rewards
    assert_step_is_that_of_the_oracle(update, {}, tokenizer, model, others=others)
    assert {step["gem/recognized"] for step in metrics_of(run)} == {1.0}
