"""Environments kept between episodes."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest

from gem_chat import AppendContext
from gem_core import register
from gem_core.errors import ConfigError, UnknownEnv
from gem_core.rollout import EnvPool, Episode, EpisodeLimits, episode_metrics
from gem_core.rollout import _pool as pool_module
from gem_core.rollout._metrics import without_tokens
from gem_core.tasks import EnvChoice, TaskRow
from tests.rollout.policies import ScriptedPolicy
from tests.rollout.tokenizers import CharTokenizer
from tests.support import ScriptedEnv

made: list[ScriptedEnv] = []
alive: list[int] = []
"""Number of open environments after each constructor."""


@pytest.fixture(autouse=True)
def own_env(own_registry: None) -> None:
    made.clear()
    alive.clear()

    def factory(**kwargs: Any) -> ScriptedEnv:
        made.append(ScriptedEnv(**kwargs))
        alive.append(sum(not env.closed for env in made))
        return made[-1]

    register("test:Pooled", factory)


def play(pool: EnvPool, count: int = 1, **kwargs: Any) -> list[Episode]:
    task = TaskRow(env_id="test:Pooled", env_kwargs=kwargs, seed=4, index=0)
    context = AppendContext(CharTokenizer())

    async def all_episodes() -> list[Episode]:
        policies = [ScriptedPolicy([[65, 66]]) for _ in range(count)]
        return await asyncio.gather(
            *(pool.play(task, policy, context, limits=EpisodeLimits(max_turns=9)) for policy in policies)
        )

    return asyncio.run(all_episodes())


def test_an_environment_is_reused() -> None:
    pool = EnvPool()
    first, second = play(pool)[0], play(pool)[0]
    assert (len(made), first.rewards, second.seed) == (1, second.rewards, 4)
    play(pool, 3)
    assert len(made) == 3
    pool.close()
    assert [env.closed for env in made] == [1, 1, 1]


def test_one_that_failed_is_not() -> None:
    pool = EnvPool()
    (episode,) = play(pool, fail_at=1)
    assert not episode.trainable
    play(pool, fail_at=1)
    assert len(made) == 2
    assert made[0].closed == 1


def test_the_least_recently_played_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "MAX_IDLE", 2)
    pool = EnvPool()
    for number in (1, 2, 1, 3):
        play(pool, rewards=[float(number)])
    assert [(env.rewards, env.closed) for env in made] == [([1.0], 0), ([2.0], 1), ([3.0], 0)]
    play(pool, 4, rewards=[1.0])  # four concurrent episodes, so four environments are kept
    assert [env.closed for env in made] == [0, 1, 1, 0, 0, 0]
    pool.close()
    assert [env.closed for env in made] == [1] * len(made)


def test_a_limit_counts_idle_environments_and_those_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def close_inline(env: ScriptedEnv) -> Future[None]:
        env.close()
        closed: Future[None] = Future()
        closed.set_result(None)
        return closed

    monkeypatch.setattr(pool_module, "start_closing", close_inline)
    pool = EnvPool(max_envs=2)
    for number in (1, 2, 3):
        assert all(episode.trainable for episode in play(pool, 5, rewards=[float(number)]))
    assert max(alive) == 2
    assert [env.rewards for env in made if not env.closed] == [[3.0], [3.0]]
    with pytest.raises(ConfigError, match="max_envs=0: expected a whole number of at least 1"):
        EnvPool(max_envs=0)


def test_a_limit_also_holds_for_reserved_environments() -> None:
    task = TaskRow(env_id="test:Pooled", env_kwargs={}, seed=4, index=0)
    for limit, count in ((2, 2), (None, 5)):
        made.clear()
        asyncio.run(EnvPool(max_envs=limit).reserve([task] * 5))
        assert len(made) == count


def test_prepare_builds_now() -> None:
    pool = EnvPool("time_limit(max_turns=1)")
    pool.prepare(EnvChoice("test:Pooled"))
    assert len(made) == 1
    (episode,) = play(pool)
    assert (len(made), len(episode.turns)) == (1, 1)
    with pytest.raises(UnknownEnv):
        pool.prepare(EnvChoice("test:Poled"))


def test_an_outline_has_the_same_metrics_and_no_tokens() -> None:
    (episode,) = play(EnvPool())
    small = without_tokens(episode)
    assert episode_metrics([small]) == episode_metrics([episode])
    assert Episode.from_dict(small.to_dict()) == small
    assert not any(turn.context_ids or turn.response_ids or turn.observation for turn in small.turns)
