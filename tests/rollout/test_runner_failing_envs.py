"""An environment that fails in any call becomes a failed episode and does not delay other episodes."""

from __future__ import annotations

import asyncio
import collections
import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gem_chat import AppendContext, MessagesContext
from gem_chat._failures import describe_failures, nothing_trainable
from gem_core import register
from gem_core._util.threads import MAX_THREADS
from gem_core.errors import ConfigError, PolicyError
from gem_core.multiagent import MultiAgentEnv
from gem_core.rollout import EnvPool, Episode, EpisodeLimits, RolloutOptions, run_episode
from gem_core.rollout import _calls as calls_module
from gem_core.rollout import _pool as pool_module
from gem_core.rollout._calls import InlineCalls
from gem_core.tasks import EnvChoice, TaskRow
from tests.rollout.policies import ScriptedPolicy
from tests.rollout.tokenizers import CharTokenizer
from tests.support import ScriptedEnv, with_limits
from tests.trainers.spies import gem_trouble

CONTEXT = AppendContext(CharTokenizer())


class Trouble(ScriptedEnv):
    """Raises or waits in the configured calls, and records the thread of each call."""

    made: ClassVar[list[Trouble]] = []
    threads: ClassVar[list[tuple[str, str]]] = []
    release: ClassVar[threading.Event]
    failures: ClassVar[dict[str, Callable[[Trouble], None]]]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.was_closed = threading.Event()
        Trouble.made.append(self)
        self.enter("constructor")

    def enter(self, call: str) -> None:
        Trouble.threads.append((call, threading.current_thread().name))
        if call in Trouble.failures:
            Trouble.failures[call](self)

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.enter("reset")
        return super().reset(seed, options=options)

    def step(self, action: str) -> Any:
        self.enter("step")
        return super().step(action)

    def close(self) -> None:
        super().close()
        self.was_closed.set()
        self.enter("close")


def raises(env: Trouble) -> None:
    raise RuntimeError("out of order")


def hangs(env: Trouble) -> None:
    Trouble.release.wait(30)


def raises_at_first(env: Trouble) -> None:
    if len(Trouble.made) < 3:
        raise RuntimeError("out of order")


@pytest.fixture(autouse=True)
def troubled(own_registry: None) -> Any:
    Trouble.made.clear()
    Trouble.threads.clear()
    Trouble.release, Trouble.failures = threading.Event(), {}
    register("test:Trouble", Trouble)
    yield
    Trouble.release.set()


def tasks(count: int = 1, env_id: str = "test:Trouble", **kwargs: Any) -> list[TaskRow]:
    return [TaskRow(env_id=env_id, env_kwargs=kwargs, seed=n, index=n) for n in range(count)]


async def played(pool: EnvPool, rows: list[TaskRow], **options: Any) -> list[Episode]:
    policy = ScriptedPolicy([[65, 66]])
    return await asyncio.gather(*(pool.play(row, policy, CONTEXT, **with_limits(options)) for row in rows))


def play(pool: EnvPool, rows: list[TaskRow], **options: Any) -> list[Episode]:
    return asyncio.run(played(pool, rows, **options))


# -- a failure of any call --------------------------------------------------------------------


def test_a_constructor_that_raises_is_a_failed_episode(caplog: pytest.LogCaptureFixture) -> None:
    Trouble.failures = {"constructor": raises}
    (episode,) = play(EnvPool(), tasks(rewards=[1.0]), metadata={"step": 3})
    assert (episode.stop_reason, episode.trainable, episode.turns) == ("env_error", False, [])
    assert str(episode.error).startswith(
        "constructor failed: RuntimeError: out of order (rollout/test_runner"
    )
    assert (episode.env_id, episode.env_kwargs, episode.seed) == ("test:Trouble", {"rewards": [1.0]}, 0)
    assert (episode.metadata, episode.context_mode) == ({"step": 3}, "append")
    assert (episode.terminated, episode.truncated) == (False, True)
    assert "episode of test:Trouble, seed 0: constructor failed" in caplog.text
    assert Episode.from_dict(episode.to_dict()) == episode


@pytest.mark.parametrize(("env_id", "kwargs"), [("test:Truble", {}), ("test:Trouble", {"depth": 3})])
def test_a_wrong_id_is_a_failed_episode_mid_run_and_an_error_when_checked(
    env_id: str, kwargs: dict[str, Any]
) -> None:
    (episode,) = play(EnvPool(), tasks(env_id=env_id, **kwargs))
    assert episode.stop_reason == "env_error"
    assert "constructor failed" in str(episode.error)
    with pytest.raises((LookupError, ConfigError)):
        EnvPool().prepare(EnvChoice(env_id, kwargs))


def test_a_constructor_that_hangs_is_a_failed_episode_and_closed_when_it_returns() -> None:
    Trouble.failures = {"constructor": hangs}
    rows = tasks(MAX_THREADS + 4)
    pool = EnvPool()
    pool._tried[EnvChoice("test:Trouble").label] = None  # all of them at once
    episodes = play(pool, rows, step_timeout=0.1)
    assert {e.error for e in episodes} == {"constructor failed: it did not return within 0.1 s"}
    Trouble.failures = {}
    Trouble.release.set()
    assert Trouble.made
    for env in Trouble.made:
        assert env.was_closed.wait(30)
    assert play(pool, tasks(), step_timeout=30.0)[0].trainable


def test_constructors_and_closes_leave_the_event_loop_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "MAX_IDLE", 0)
    started, ticked = threading.Event(), threading.Event()

    def waits_for_the_loop(env: Trouble) -> None:
        """Return as soon as the loop has run while this constructor is in progress."""
        started.set()
        assert ticked.wait(30)

    Trouble.failures = {"constructor": waits_for_the_loop}

    async def scenario() -> list[Episode]:
        pool = EnvPool()
        playing = asyncio.ensure_future(played(pool, tasks(64)))
        while not started.is_set():
            await asyncio.sleep(0.001)
        ticked.set()
        episodes = await playing
        pool._most_playing = 0  # one more environment exceeds the limit
        return [*episodes, *await played(pool, tasks(1))]

    assert all(episode.trainable for episode in asyncio.run(scenario()))
    calls = collections.defaultdict(set)
    for call, thread in Trouble.threads:
        calls[call].add(thread)
    assert calls["step"] == {threading.current_thread().name}
    assert calls["constructor"] == {"gem-env"}
    assert calls["close"] == {"gem-env-close"}


def test_the_first_environment_of_a_kind_is_built_alone_and_the_others_together() -> None:
    another, together = threading.Event(), threading.Barrier(7)
    first_was_alone = []

    def waits(env: Trouble) -> None:
        if env is Trouble.made[0]:
            first_was_alone.append(not another.wait(0.3))
        else:
            another.set()
            together.wait(30)

    Trouble.failures = {"constructor": waits}
    assert all(episode.trainable for episode in play(EnvPool(), tasks(8)))
    assert first_was_alone == [True]


@pytest.mark.parametrize("call", ["constructor", "reset", "step", "close"])
@pytest.mark.parametrize("blocking", [False, True])
def test_an_environment_that_exits_is_a_failed_episode(call: str, blocking: bool) -> None:
    Trouble.failures = {call: lambda env: sys.exit(3)}
    pool = EnvPool()
    (episode,) = play(pool, tasks(blocking=blocking))
    assert episode.trainable == (call == "close")
    assert call == "close" or "failed: SystemExit: 3 (" in str(episode.error)
    pool.close()


@pytest.mark.parametrize("call", ["reset", "step"])
@pytest.mark.parametrize("trouble", [raises, hangs])
def test_a_failed_episode_is_returned_although_its_close_fails_too(
    call: str, trouble: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Trouble.failures = {call: raises, "close": trouble}
    (episode,) = play(EnvPool(), tasks(), step_timeout=0.05)
    assert str(episode.error).startswith(f"{call}() failed: RuntimeError: out of order (rollout/test_runner")
    said = "has not returned within 0.05 s" if trouble is hangs else "failed"
    assert any(r.getMessage().startswith("closing") and said in r.getMessage() for r in caplog.records)


def test_a_pool_reserves_what_will_be_played_at_the_same_time() -> None:
    pool = EnvPool()
    play(pool, tasks(2))
    Trouble.failures = {"constructor": lambda env: raises(env) if len(Trouble.made) == 4 else None}
    asyncio.run(pool.reserve([*tasks(5), *tasks(2, rewards=[1.0])]))
    assert len(Trouble.made) == 7
    episodes = play(pool, [*tasks(5), *tasks(2, rewards=[1.0])])
    assert len(Trouble.made) == 7
    # The constructor that failed is the failure of one task.
    (failed,) = (str(e.error) for e in episodes if e.error)
    assert failed.startswith("constructor failed: RuntimeError: out of order (")
    pool.close()
    assert [env.closed for env in Trouble.made] == [1, 1, 1, 0, 1, 1, 1]


def test_a_close_that_hangs_does_not_keep_the_pool_from_closing(caplog: pytest.LogCaptureFixture) -> None:
    pool = EnvPool()
    play(pool, tasks(3))
    Trouble.failures = {"close": hangs}
    calls_module.close_all([env for envs in pool._idle.values() for env in envs], timeout=0.05)
    assert sum("has not returned within 0.05 s" in r.getMessage() for r in caplog.records) == 3


def test_closing_a_pool_closes_what_can_be_closed(caplog: pytest.LogCaptureFixture) -> None:
    pool = EnvPool()
    play(pool, tasks(3))
    Trouble.failures = {"close": raises}
    pool.close()
    assert [env.closed for env in Trouble.made] == [1, 1, 1]
    assert [r.getMessage().endswith("failed") for r in caplog.records] == [True] * 3
    pool.close()
    assert [env.closed for env in Trouble.made] == [1, 1, 1]


def test_info_that_cannot_be_kept_is_a_failure_of_the_environment() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError("no name")

    class Secretive(ScriptedEnv):
        def step(self, action: str) -> Any:
            *result, _ = super().step(action)
            return *result, {"odd": Odd()}

    episode = asyncio.run(run_episode(Secretive(), ScriptedPolicy([[65]]), CONTEXT))
    assert episode.stop_reason == "env_error"
    assert "no name" in str(episode.error)


def test_an_error_of_the_policy_is_passed_on_and_not_played_again() -> None:
    policy = ScriptedPolicy([PolicyError("the engine is gone")])
    with pytest.raises(PolicyError, match="the engine is gone"):
        asyncio.run(EnvPool().play(tasks()[0], policy, CONTEXT, limits=EpisodeLimits(on_env_error="retry")))
    assert len(policy.requests) == 1
    assert [env.closed for env in Trouble.made] == [1]


def test_a_failed_constructor_counts_for_all_agents() -> None:
    def broken() -> MultiAgentEnv:
        raise RuntimeError("no table")

    register("test:NoTable", broken)
    row = TaskRow(env_id="test:NoTable", env_kwargs={}, seed=1, index=0)
    (episode,) = asyncio.run(EnvPool().play_all(row, ScriptedPolicy([[65]]), MessagesContext()))
    assert str(episode.error).startswith("constructor failed: RuntimeError: no table (")
    assert episode.context_mode == "messages"


# -- retries ----------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["constructor", "reset", "step"])
def test_a_failed_episode_is_played_again_with_a_fresh_environment(call: str) -> None:
    Trouble.failures = {call: raises_at_first}
    (episode,) = play(EnvPool(), tasks(), on_env_error="retry")
    assert (episode.env_retries, episode.trainable, episode.seed) == (2, True, 0)
    assert len(Trouble.made) == 3
    assert Episode.from_dict(episode.to_dict()).env_retries == 2
    assert episode.turns == play(EnvPool(), tasks())[0].turns


def test_an_idle_environment_is_not_a_fresh_one() -> None:
    pool = EnvPool()
    play(pool, tasks(2))
    Trouble.failures = {"step": lambda env: raises(env) if env in Trouble.made[:2] else None}
    (episode,) = play(pool, tasks(), on_env_error="retry")
    assert episode.env_retries == 1
    assert len(Trouble.made) == 3


def test_after_the_last_attempt_it_is_a_failed_episode() -> None:
    Trouble.failures = {"step": raises}
    (episode,) = play(EnvPool(), tasks(), on_env_error="retry", max_env_retries=1)
    assert (episode.env_retries, episode.trainable, len(Trouble.made)) == (1, False, 2)
    (episode,) = play(EnvPool(), tasks())
    assert (episode.env_retries, episode.trainable, len(Trouble.made)) == (0, False, 3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"on_env_error": "again"}, "on_env_error='again': expected mask or retry"),
        ({"on_env_error": "retry", "max_env_retries": 0}, "max_env_retries=0: expected a whole number"),
        ({"on_env_error": "retry", "max_env_retries": True}, "max_env_retries=True"),
        ({"on_env_error": "retry", "on_turn": print}, "on_turn would report turns twice"),
    ],
)
def test_tasks_that_cannot_be_retried_are_rejected_before_anything_is_built(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        play(EnvPool(), tasks(), **options)
    assert Trouble.made == []


def test_the_options_of_a_config_go_to_the_pool() -> None:
    given = {"max_turns": 1, "on_env_error": "retry", "max_env_retries": 4, "step_timeout": 30.0}
    options = RolloutOptions.read(given)
    assert options.limits(max_tokens_per_turn=9) == EpisodeLimits(**given, max_tokens_per_turn=9)
    Trouble.failures = {"constructor": raises_at_first}
    (episode,) = play(EnvPool(), tasks(), **given)
    assert (episode.env_retries, episode.stop_reason) == (2, "max_turns")


def test_an_update_without_anything_to_train_on_names_environment_seed_and_cause() -> None:
    Trouble.failures = {"step": raises}
    error = nothing_trainable(play(EnvPool(), tasks(3)), "step 7")
    assert str(error).startswith(
        "step 7: no episode is trainable: 3 of 3 episodes cannot be trained on; the first is "
        "test:Trouble with seed 0: step() failed: RuntimeError: out of order (rollout/test_runner"
    )
    Trouble.failures = {}
    silent = asyncio.run(EnvPool().play(tasks()[0], ScriptedPolicy([[]]), CONTEXT))
    assert "test:Trouble with seed 0: no turn was played (empty_response)" in describe_failures([silent])
    assert str(nothing_trainable([], "step 7")) == "step 7: there are no episodes to train on"


# -- steps on the event loop ------------------------------------------------------------------


def test_a_slow_step_on_the_event_loop_triggers_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(calls_module, "inline_calls", InlineCalls())
    register("test:Sleepy", lambda **kwargs: ScriptedEnv(delay=0.06, **kwargs))
    play(EnvPool(), tasks(2, env_id="test:Sleepy"))
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert warning.startswith("test:Sleepy: 3 of ")
    assert "`blocking = True` on the environment class" in warning
    caplog.clear()
    play(EnvPool(), tasks(1, env_id="test:Sleepy", blocking=True))
    assert not caplog.records


def test_a_fast_environment_on_a_busy_machine_triggers_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    watch, env = InlineCalls(lambda: now), ScriptedEnv()

    def takes(seconds: float) -> None:
        def call() -> None:
            nonlocal now
            now += seconds

        watch.time(env, call)

    for _ in range(10):  # one call in 30 was interrupted
        for _ in range(29):
            takes(0.001)
        takes(0.4)
    assert not caplog.records
    for _ in range(10):
        takes(0.06)
    assert len(caplog.records) == 1


# -- everything at once -----------------------------------------------------------------------


def test_chaos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEM_CHAOS", str(tmp_path))
    monkeypatch.setattr(gem_trouble, "_resets", collections.Counter())
    monkeypatch.setattr(gem_trouble, "_instances", iter(range(10**6)))
    gem_trouble.register()
    rows = tasks(100, env_id="test:Chaos-v0", hang=1.5, max_turns=4)

    pool = EnvPool()
    episodes = play(pool, rows, step_timeout=0.7, on_env_error="retry", log_errors=False)
    pool.close()
    counts = gem_trouble.chaos_counts(tmp_path)
    planted = sum(number for (call, _), number in counts.items() if call != "close")
    attempts = sum(episode.env_retries for episode in episodes)
    failed = [episode for episode in episodes if not episode.trainable]
    assert {call for call, _ in counts} == {"constructor", "reset", "step", "close"}
    assert {kind for _, kind in counts} == {"raise", "hang"}
    # Each failure is an attempt or an episode; on a busy machine a correct call may be late, too.
    assert 10 < planted <= attempts + len(failed) <= planted + 3
    assert all(episode.error for episode in failed)
    assert all(episode.turns for episode in episodes if episode.trainable)
    assert attempts > len(failed)
