"""The loss of OpenRLHF's own trainer gets the right inputs from its engine and a tiny model."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from gem_core.rollout import read_traces
from tests.trainers import chaos, evidence, marks
from tests.trainers.evidence import assert_update_is_right
from tests.trainers.openrlhf import questions
from tests.trainers.openrlhf.conftest import GUESS, MASTERMIND
from tests.trainers.openrlhf.harness import run_openrlhf
from tests.trainers.openrlhf.logged import metrics_of
from tests.trainers.openrlhf.measure import gem_seconds
from tests.trainers.openrlhf.spied import losses
from tests.trainers.openrlhf.spied import updates as updates_of
from tests.trainers.processes import Run

ENDLESS = "test:Endless"

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("GEM_CORE_OPENRLHF"), reason="runs the trainer: `nox -s openrlhf` does"
    ),
    pytest.mark.timeout(1200),
]


def assert_metrics_are_right(metrics: dict[str, float], episodes: list[evidence.Played]) -> None:
    """Check the common metrics of a step; `episodes` are the trainable ones."""
    evidence.assert_metrics_are_right(metrics, episodes, "rollout/reward_mean")


def assert_weights_are_synced(run: Run) -> None:
    """Check OpenRLHF's own measure, the mean log-prob of the engine minus the actor's."""
    result = [saved["vllm_kl"] for saved in losses(run.spy) if any(map(any, saved["mask"]))]
    assert max(map(abs, result)) <= 5e-3  # a micro-batch is one row, perhaps of a few improbable tokens


def test_three_steps_on_questions_and_games(
    tmp_path: Path,
    base: Path,
    tokenizer: Any,
    model: Any,
    own_ids: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Train on questions of a user's own, and on an environment that fails in every way.

    The micro-batches have one row, OpenRLHF's default. The other environments are new ones, a class in a file
    and an installed package, one that rewards every turn, and one whose observations are too long. With this
    seed some resets and first steps raise and some hang, whatever the model answers. The model is a base
    model, whose end-of-sequence token does not end the answers of its chat template; OpenRLHF's own agent
    does not know the token that does.
    """
    seed, long = 7, f"{ENDLESS}(told=50)"  # no second turn of the long one is within data.max_len
    counts = {chaos.CHAOS: 6, **dict.fromkeys(own_ids, 3), ENDLESS: 2, long: 1}
    words = ",".join(f"{env_id}={count / 12}" for env_id, count in counts.items())
    run = run_openrlhf(
        tmp_path,
        marks.marked_model(base, tmp_path),
        f"{tmp_path}/questions.jsonl,{words}",
        {
            **questions.flags(tmp_path, 12, 4),
            "rollout.batch_size": "9",
            "train.batch_size": "18",
            "train.micro_batch_size": "1",
            "rollout.max_new_tokens": str(marks.MAX_TOKENS),
            "train.seed": str(seed),
            "gem.traces": str(tmp_path / "traces"),
            "gem.step_timeout": chaos.STEP_TIMEOUT,
            "gem.system_prompt": "Win!",
            "gem.template_kwargs": '{"mark":"<|end|>"}',
            "gem.estimator_options": '{"ddof":1}',
            "gem.max_turns": "2",
            "eval.dataset": f"{tmp_path}/held-out.jsonl,{GUESS}=0.5,{MASTERMIND}=0.5",
            "eval.steps": "3",
            "eval.n_samples_per_prompt": "1",
            "eval.temperature": "1",
            "ckpt.disable_ds": None,
        },
    ).check()
    episodes = evidence.played(run.spy, tokenizer)
    evidence.assert_answers_stop(episodes, tokenizer)
    updates, steps = updates_of(run.spy), metrics_of(run)
    assert len(updates) == len(steps) == 3
    traces = list(read_traces(tmp_path / "traces" / "train.jsonl"))
    assert len(traces) == 30
    assert {episode.env_id for episode in traces} == evidence.env_ids(*own_ids, chaos.CHAOS, ENDLESS)
    trained: list[evidence.Played] = []
    rewards: list[float] = []
    rest = iter(traces)
    for update, metrics in zip(updates, steps, strict=True):
        assert len(update.rows) == 18
        question_episodes = questions.asked(run, update, tokenizer)
        mine = assert_update_is_right(update, episodes, tokenizer, model, ddof=1, others=question_episodes)
        games = [episode for episode in mine if not any(episode is one for one in question_episodes.values())]
        asked = len(question_episodes)
        played = list(islice(rest, 18 - asked))
        assert 0 < asked < 18
        assert sum(row.is_pad for row in update.rows) == sum(not episode.trainable for episode in played)
        mean = fmean(sum(episode.rewards) for episode in mine)
        assert metrics["rollout/reward_mean"] == pytest.approx(mean, abs=1e-6)
        assert metrics["gem/return"] == pytest.approx(fmean(sum(e.rewards) for e in games), abs=1e-6)
        assert metrics["rebn/turns"] == sum(len(episode.rewards) for episode in mine)
        assert metrics["gem/turns"] == pytest.approx(fmean(len(episode.rewards) for episode in games))
        chaos.assert_rates_are_right(metrics, played)
        assert metrics["reward"] == pytest.approx(mean, abs=1e-6)
        assert metrics["score"] == pytest.approx(mean, abs=1e-6)
        assert metrics["asked"] == pytest.approx(1)  # the reward function's own metric
        assert (metrics["gem/played/sums"], metrics["gem/failed/sums"]) == (asked, 0)
        failed = sum(value for name, value in metrics.items() if name.startswith("gem/failed/"))
        assert failed == metrics["gem/filled"] == sum(not episode.trainable for episode in played)
        trained += games
        rewards += [reward for one in question_episodes.values() for reward in one.rewards]
        for row in update.rows:
            shown = tokenizer.decode(row.prompt)
            is_game = shown.startswith("<|end|><|system|>Win!<|end|>")
            assert row.is_pad or is_game != questions.is_question(row, tokenizer)
    assert len(rewards) == 24
    assert max(len(episode.turns) for episode in traces) == 2
    endless = {(e.env_kwargs.get("told"), len(e.turns), e.stop_reason) for e in traces if e.env_id == ENDLESS}
    assert endless == {(None, 2, "max_turns"), (50, 1, "token_budget")}
    tasks = [evidence.tasks_of([env_id], count, seed) for env_id, count in counts.items()]
    assert {(episode.env_id, episode.seed) for episode in traces} == set().union(*tasks)
    assert len(set(rewards)) > 8
    assert any(any(episode.rewards[:-1]) for episode in trained)
    requests = [request for episode in episodes.values() for request in episode.requests]
    assert max(len(request["response"]) for request in requests) == marks.MAX_TOKENS
    assert_weights_are_synced(run)
    assert run.output.count("taken from the agent's spans") == 1
    chaos.assert_every_failure_is_counted(traces, run.spy)
    ids = sorted(episode.rows()[0].token_ids for episode in traces if episode.trainable)
    assert ids == sorted(episode.token_ids for episode in trained)
    watched = list(read_traces(tmp_path / "traces" / "eval.jsonl"))
    assert sorted(episode.seed or 0 for episode in watched) == [0, 0, 1, 1]
    assert {len(episode.turns) for episode in watched} <= {1, 2}
    assert "max_turns" in {episode.stop_reason for episode in (*traces, *watched)}
    (evaluated,) = metrics_of(run, "eval")
    for env_id in {episode.env_id for episode in watched}:
        returns = [episode.total_reward for episode in watched if episode.env_id == env_id]
        mean = pytest.approx(sum(returns) / len(returns), abs=1e-6)
        assert evaluated[f"eval_{env_id}_gem/return"] == mean
        assert evaluated[f"eval_{env_id}_pass1"] == mean  # OpenRLHF's name for the mean reward
    asked_of = [questions.TEXT.format(n, n) for n in range(100, 104)]
    answered = [r for query, r in questions.rewards_of(run).items() if any(q in query for q in asked_of)]
    assert len(answered) == 4
    assert evaluated["eval_sums_pass1"] == pytest.approx(fmean(answered), abs=1e-6)
    calm = [chaos.calm(episode) for episode in played if episode.trainable]
    spent, step = gem_seconds(calm, tokenizer), steps[-1]["timing/step_total"]
    with capsys.disabled():
        print(f"\nGEM's code: {1000 * spent:.1f} ms of a step of {step:.2f} s ({100 * spent / step:.2f}%)")
