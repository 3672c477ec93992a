"""The comparison finds faults in Oat's adapter, on the shared step in this process.

The actor and the learner have neither an engine nor models; `generate`, inherited by Oat's actor, returns
scripted answers.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gem_oat import _actor
from gem_oat._actor import Actor
from gem_oat._learner import Learner
from gem_oat._policy import BatchedPolicy

from gem_chat import EpisodePlayer
from gem_chat._concurrency import EpisodeLoop
from gem_core.advantages import ReturnStats
from gem_core.rollout import Episode, RolloutOptions
from gem_core.tasks import EnvChoice, make_tasks
from gem_core.trainers import read_estimator
from gem_lab.consistency import Played
from tests.consistency import assemble, scenario
from tests.consistency.faults import SEEN, Patch, findings, retokenized, shifted, unpaid
from tests.consistency.scenario import Scenario
from tests.trainers.evidence import Row
from tests.trainers.oat.test_learner import learner
from tests.trainers.oat.test_learner import one_process as one_process
from tests.trainers.spies.gem_script import Script


class Sampling(SimpleNamespace):
    """The part of vLLM's parameters that the policy uses."""

    def clone(self) -> Sampling:
        return Sampling(**vars(self))


def actor_of(made: Scenario, tokenizer: Any, thread: ThreadPoolExecutor) -> Any:
    script = Script(made.script)

    def generate(prompts: list[list[int]], params: list[Any]) -> list[Any]:
        answers = [script.answer(p, of.max_tokens) for p, of in zip(prompts, params, strict=True)]
        return [
            SimpleNamespace(
                outputs=[
                    SimpleNamespace(
                        token_ids=answer.token_ids,
                        logprobs=[
                            {t: SimpleNamespace(logprob=value)}
                            for t, value in zip(answer.token_ids, answer.logprobs, strict=True)
                        ],
                        finish_reason=answer.finish_reason,
                    )
                ]
            )
            for answer in answers
        ]

    found: Any = Actor.__new__(Actor)
    found.args = SimpleNamespace(
        generate_max_length=scenario.TOKENS_PER_TURN, num_env=1, group_size=scenario.SAMPLES,
        seed=scenario.SEED, ignore_no_eos=False,
    )  # fmt: skip
    found._player = EpisodePlayer(RolloutOptions(max_turns=scenario.MAX_TURNS, wrappers="named"), tokenizer)
    found._choice = read_estimator("rebn", {}, gamma=scenario.GAMMA)
    found._max_total_tokens, found.eval_mode = scenario.TOKENS, False
    found._loop, found._thread = EpisodeLoop(), thread
    found._waiting, found._steps, found._started, found._name = [], 0, 0, "0-0"
    found.sampling_params, found.generate = Sampling(stop_token_ids=[]), generate
    found.ipc_client = SimpleNamespace(serialize_ipc=pickle.dumps)
    return found


def step(made: Scenario, tokenizer: Any) -> list[Played]:
    """Run the actor's step and the learner's buffer, up to the advantages of the loss."""
    scenario.tasks()  # registers the environments
    turns = sum(len(played.advantages) for played in made.core().episodes)
    prompts = list(
        map(json.dumps, make_tasks([EnvChoice.parse(s) for s in scenario.SOURCES], turns, seed=scenario.SEED))
    )
    with ThreadPoolExecutor(1) as thread:
        playing = actor_of(made, tokenizer, thread)
        try:
            rows = pickle.loads(playing.step(prompts, prompts))
        finally:
            playing._loop.close()
    learning = learner()
    learning.process_feedback_data(rows)
    width = max(len(row.rewards) for row in rows)
    rewards = torch.tensor([row.rewards + [0.0] * (width - len(row.rewards)) for row in rows])
    advantages = learning.compute_monte_carlo_advantages(rewards, torch.ones_like(rewards)).tolist()
    loss_values = [
        Row(row.prompt_ids, row.response_ids, [1] * len(row.response_ids),
            [value] * len(row.response_ids), [], None, None)
        for row, value in zip(rows, advantages, strict=True)
    ]  # fmt: skip
    return assemble.from_turns(
        loss_values, rows[0].collected.episodes[: scenario.TASKS * scenario.SAMPLES], tokenizer
    )


def many(change: Any) -> Patch:
    """Return a fault in the episodes that `pack_turns` and `turn_values` receive."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("pack_turns", "turn_values"):
            original = getattr(_actor, name)

            def changed(episodes: Sequence[Episode], *args: Any, _to: Any = original, **options: Any) -> Any:
                return _to([change(episode) for episode in episodes], *args, **options)

            monkeypatch.setattr(_actor, name, changed)

    return patch


def discounts_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    def turn_values(episodes: Sequence[Episode], choice: Any) -> Any:
        values = []
        for episode in episodes:
            episode_values: list[float] = []
            ahead = 0.0
            for turn in reversed(episode.turns if episode.trainable else []):
                ahead = turn.reward + ahead
                episode_values.insert(0, ahead)
                ahead *= choice.gamma ** len(turn.response_ids)
            values += [episode_values] if episode.trainable else []
        return values, ReturnStats.from_returns(values)

    monkeypatch.setattr(_actor, "turn_values", turn_values)


def sample_std(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Learner.compute_monte_carlo_advantages

    def changed(self: Any, *args: Any) -> Any:
        self._choice = replace(self._choice, options={"ddof": 1})
        return original(self, *args)

    monkeypatch.setattr(Learner, "compute_monte_carlo_advantages", changed)


def subsampled(monkeypatch: pytest.MonkeyPatch) -> None:
    original = _actor.turn_values

    def changed(episodes: Sequence[Episode], *args: Any) -> Any:
        return original(episodes, *args)[0], original(episodes[::2], *args)[1]

    monkeypatch.setattr(_actor, "turn_values", changed)


def own_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Actor._play

    async def changed(self: Any, task: Any, sample: int, *args: Any) -> Episode:
        return await original(self, {**task, "seed": task["seed"] + 1_000 * sample}, sample, *args)

    monkeypatch.setattr(Actor, "_play", changed)


def test_the_step_matches_gem_core(shared_step: Scenario, shared_tokenizer: Any) -> None:
    assert findings(shared_step, lambda: step(shared_step, shared_tokenizer)) == set()


@pytest.mark.parametrize("fault", SEEN)
def test_a_fault_is_found(
    fault: str, shared_step: Scenario, shared_tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    patches: dict[str, Patch] = {
        "discount per token": discounts_tokens,
        "sample standard deviation": sample_std,
        "statistics after subsampling": subsampled,
        "mask shifted by one": many(shifted),
        "last reward dropped": many(unpaid),
        "response re-tokenized": retokenized(BatchedPolicy, shared_tokenizer),
        "group with different seeds": own_seeds,
    }
    patches[fault](monkeypatch)
    assert findings(shared_step, lambda: step(shared_step, shared_tokenizer)) >= SEEN[fault]
