from __future__ import annotations

import asyncio
import logging
import math
import multiprocessing
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gem_core
from gem_chat import AppendContext, MessagesContext, RebuildContext
from gem_core import Env, Wrapper
from gem_core._util.threads import MAX_THREADS
from gem_core.errors import ConfigError, PolicyError
from gem_core.rollout import ChatReply, Episode, EpisodeLimits, Generation, run_episode
from gem_core.rollout._calls import jsonable
from gem_core.rollout._limits import MAX_TURNS
from tests.rollout.policies import ScriptedPolicy
from tests.rollout.tokenizers import CharTokenizer
from tests.support import ImageEnv, ScriptedEnv, with_limits

CONTEXT = AppendContext(CharTokenizer())
END = CharTokenizer.eos_token_id


def tokens(text: str) -> list[int]:
    return [*CharTokenizer().encode(text), END]


def cut(text: str) -> Generation:
    ids = CharTokenizer().encode(text)
    return Generation(ids, [-1.0] * len(ids), "length")


def play(env: Any, policy: Any, context: Any = CONTEXT, **options: Any) -> Episode:
    return asyncio.run(run_episode(env, policy, context, **with_limits(options)))


class OneStep(Env):
    """Ends after one step with the given result."""

    def __init__(self, result: Any = None, first: Any = ("go", {})) -> None:
        self.result = ("done", 1.0, True, False, {}) if result is None else result
        self.first = first

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.options = options
        return self.first

    def step(self, action: str) -> Any:
        return self.result


# -- an episode -------------------------------------------------------------------------------


def test_an_episode_holds_what_was_sampled_and_what_it_earned() -> None:
    env = ScriptedEnv([0.0, 0.5, 1.0])
    episode = play(env, ScriptedPolicy([tokens("one"), tokens("two"), tokens("three")]), seed=7)
    assert env.actions == ["one", "two", "three"]
    assert [turn.action for turn in episode.turns] == ["one", "two", "three"]
    assert [turn.response_ids for turn in episode.turns] == [tokens("one"), tokens("two"), tokens("three")]
    assert [turn.logprobs for turn in episode.turns] == [[-0.5] * 4, [-0.5] * 4, [-0.5] * 6]
    assert episode.rewards == [0.0, 0.5, 1.0]
    assert (episode.terminated, episode.truncated, episode.stop_reason) == (True, False, "terminated")
    assert (episode.trainable, episode.error, episode.success, episode.seed) == (True, None, True, 7)
    assert episode.turns[0].observation.startswith("seed 7 draw ")
    assert episode.turns[2].info["final_obs"].startswith("turn 3 draw ")
    assert env.closed == 0, "the caller made the environment, so the caller closes it"


def test_turns_are_reported_one_by_one() -> None:
    told: list[tuple[float, int]] = []
    env = ScriptedEnv([0.0, 0.5, 1.0])
    play(
        env,
        ScriptedPolicy([tokens("one")]),
        on_turn=lambda turn: told.append((turn.reward, len(env.actions))),
    )
    assert told == [(0.0, 1), (0.5, 2), (1.0, 3)]


def test_the_prompt_of_each_turn_is_all_that_came_before() -> None:
    policy = ScriptedPolicy([tokens("one"), tokens("two"), tokens("three")])
    episode = play(ScriptedEnv(), policy, request_id="r")
    assert [prompt for prompt, _, _ in policy.requests] == [row.prompt_ids for row in episode.rows("turn")]
    assert {request_id for _, _, request_id in policy.requests} == {"r"}
    row = episode.rows()[0]
    assert row.token_ids == policy.requests[-1][0] + tokens("three")


def test_requests_of_different_episodes_have_different_ids() -> None:
    policy = ScriptedPolicy([tokens("x")])
    play(ScriptedEnv([1.0]), policy)
    play(ScriptedEnv([1.0]), policy)
    assert len({request_id for _, _, request_id in policy.requests}) == 2


def test_the_model_is_shown_prefix_observation_and_suffix() -> None:
    env = OneStep(("end", 0.0, True, False, {}), first=("middle", {"prefix": "board", "suffix": "your move"}))
    episode = play(env, ScriptedPolicy([tokens("x")]))
    assert episode.turns[0].observation == "board\nmiddle\nyour move"
    assert CONTEXT.decode(episode.turns[0].context_ids) == "User: board\nmiddle\nyour move\n\nAssistant:"


def test_a_registered_environment_leaves_its_id_arguments_and_seed() -> None:
    env = gem_core.make("game:GuessTheNumber-v0-easy", max_turns=3)
    episode = play(env, ScriptedPolicy([tokens(r"\boxed{5}")]), seed=3, metadata={"group": np.int64(4)})
    assert (episode.env_id, episode.env_kwargs["max_turns"]) == ("game:GuessTheNumber-v0-easy", 3)
    assert episode.metadata == {"group": 4}
    again = play(env, ScriptedPolicy([tokens(r"\boxed{5}")]), seed=3, metadata={"group": 4})
    assert again == episode


def test_options_reach_reset() -> None:
    env = OneStep()
    play(env, ScriptedPolicy([tokens("x")]), options={"index": 5})
    assert env.options == {"index": 5}


def test_rebuild_mode_prompts_with_the_observation_alone() -> None:
    policy = ScriptedPolicy([tokens("one")])
    episode = play(ScriptedEnv(), policy, RebuildContext(CharTokenizer(), raw=True))
    assert episode.context_mode == "rebuild"
    texts = [CONTEXT.decode(prompt) for prompt, _, _ in policy.requests]
    assert texts == [turn.observation for turn in episode.turns]
    assert episode.prompts() == [prompt for prompt, _, _ in policy.requests]
    assert [row.turns for row in episode.rows()] == [(index,) for index in range(len(episode.turns))]


class Transcript(ScriptedEnv):
    """Shows the whole conversation, with the answers as they were given."""

    def __init__(self, *args: Any, forget: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.forget, self.shown = forget, ""

    def reset(self, seed: int | None = None, **options: Any) -> Any:
        observation, info = super().reset(seed, **options)
        self.shown = f"{observation}>"
        return self.shown, info

    def step(self, action: str) -> Any:
        observation, *rest = super().step(action)
        self.shown = ">" if self.turn == self.forget else f"{self.shown}{action}\n{observation}>"
        return self.shown, *rest


def test_rebuilt_prompts_that_only_grow_are_stored_and_trained_once() -> None:
    policy = ScriptedPolicy([Generation([*map(ord, "one")], None, "stop")])  # without a token at its end
    env = Transcript([0.0] * 5 + [1.0], forget=3)
    episode = play(env, policy, RebuildContext(CharTokenizer(), raw=True))
    asked = [prompt for prompt, _, _ in policy.requests]
    assert episode.prompts() == asked
    assert [turn.parent for turn in episode.turns] == [None, -1, -1, None, -1, -1]
    first, second = episode.rows()
    assert (first.turns, second.turns) == ((0, 1, 2), (3, 4, 5))
    assert first.token_ids == asked[2] + episode.turns[2].response_ids
    assert second.token_ids == asked[5] + episode.turns[5].response_ids


@settings(max_examples=60)
@given(
    rewards=st.lists(st.floats(-2, 2), min_size=1, max_size=6),
    script=st.lists(st.lists(st.integers(65, 90), min_size=1, max_size=5), min_size=1, max_size=6),
    ends=st.lists(st.booleans(), min_size=1, max_size=3),
)
def test_both_views_carry_the_same_tokens_log_probs_and_rewards(
    rewards: list[float], script: list[list[int]], ends: list[bool]
) -> None:
    generations = [
        Generation(
            [*ids, *([END] if ends[n % len(ends)] else [])],
            [-0.01 * (n + k) for k in range(len(ids) + ends[n % len(ends)])],
            "stop",
        )
        for n, ids in enumerate(script)
    ]
    episode = play(ScriptedEnv(rewards), ScriptedPolicy(generations))
    row, turns = episode.rows()[0], episode.rows("turn")
    assert (
        len(
            {
                len(column)
                for column in (
                    row.token_ids,
                    row.response_mask,
                    row.turn_ids,
                    row.logprobs or [],
                    row.rewards,
                )
            }
        )
        == 1
    )
    runs = "".join(map(str, row.response_mask)).replace("0", " ").split()
    assert [len(run) for run in runs] == [len(turn.response_ids) for turn in turns], "a run of 1s is a turn"
    assert row.token_ids == turns[-1].prompt_ids + turns[-1].response_ids
    assert not any(row.response_mask[: row.prompt_length])
    for index, turn in enumerate(turns):
        assert turn.turns == (index,)
        places = [place for place, number in enumerate(row.turn_ids) if number == index]
        assert places[0] == len(turn.prompt_ids)
        assert [row.token_ids[place] for place in places] == turn.response_ids
        assert [(row.logprobs or [])[place] for place in places] == turn.logprobs_or_zeros()[
            turn.prompt_length :
        ]
        assert [row.rewards[place] for place in places] == [0.0] * (len(places) - 1) + [turn.rewards[-1]]
    assert math.fsum(row.rewards) == pytest.approx(math.fsum(rewards))


# -- budgets ----------------------------------------------------------------------------------


def test_max_turns_truncates() -> None:
    episode = play(ScriptedEnv([0.0] * 5), ScriptedPolicy([tokens("x")]), max_turns=2)
    assert (len(episode.turns), episode.stop_reason, episode.truncated) == (2, "max_turns", True)
    assert not episode.terminated
    assert episode.trainable


def test_an_end_in_the_last_allowed_turn_is_the_environments_own() -> None:
    assert (
        play(ScriptedEnv([0.0, 1.0]), ScriptedPolicy([tokens("x")]), max_turns=2).stop_reason == "terminated"
    )
    cut_off = ScriptedEnv([0.0, 1.0], truncate=True)
    assert play(cut_off, ScriptedPolicy([tokens("x")]), max_turns=2).stop_reason == "truncated"


def test_each_response_may_use_the_remaining_budget() -> None:
    first = len(CONTEXT.first("seed 0 draw 864"))
    policy = ScriptedPolicy([tokens("x")])
    play(ScriptedEnv(), policy, seed=0, max_tokens_per_turn=20, max_total_tokens=first + 50)
    (_, room, _), (prompt, later_room, _) = policy.requests[:2]
    assert room == 20
    assert later_room == first + 50 - len(prompt) < 20


def test_without_a_limit_per_turn_a_response_may_take_all_that_is_left() -> None:
    policy = ScriptedPolicy([tokens("x")])
    first = len(
        CONTEXT.first(play(ScriptedEnv(), ScriptedPolicy([tokens("x")]), seed=0).turns[0].observation)
    )
    play(ScriptedEnv(), policy, seed=0, max_tokens_per_turn=None, max_total_tokens=first + 900)
    assert policy.requests[0][1] == 900
    policy.requests.clear()
    play(ScriptedEnv(), policy, seed=0, max_tokens_per_turn=None, max_response_tokens=700)
    assert policy.requests[0][1] == 700
    policy.requests.clear()
    rebuilt = RebuildContext(CharTokenizer())
    play(ScriptedEnv(), policy, rebuilt, seed=0, max_tokens_per_turn=None, max_response_tokens=700)
    assert [request[1] for request in policy.requests] == [700] * 3
    with pytest.raises(
        ConfigError, match="requires max_total_tokens or max_response_tokens; set one of the three"
    ):
        play(ScriptedEnv(), policy, seed=0, max_tokens_per_turn=None)


def test_the_episode_ends_when_the_next_context_leaves_no_room() -> None:
    first = len(CONTEXT.first("seed 0 draw 864"))
    between = len(CONTEXT.extend("turn 1 draw 394", tokens("x")))
    policy = ScriptedPolicy([tokens("x")])
    full = first + 2 + between
    episode = play(ScriptedEnv(), policy, seed=0, max_total_tokens=full)
    assert (episode.stop_reason, len(episode.turns), episode.truncated) == ("token_budget", 1, True)
    assert (episode.trainable, episode.error) == (True, None)
    one_token_more = play(
        ScriptedEnv(), ScriptedPolicy([tokens("x"), [65]]), seed=0, max_total_tokens=full + 1
    )
    assert len(one_token_more.turns) == 2
    assert len(one_token_more.rows()[0].token_ids) == full + 1


def test_a_first_prompt_that_is_too_long_says_how_long_it_is() -> None:
    length = len(CONTEXT.first("seed 0 draw 864"))
    policy = ScriptedPolicy([tokens("x")])
    episode = play(ScriptedEnv(), policy, seed=0, max_total_tokens=length)
    assert (episode.stop_reason, episode.turns, episode.truncated) == ("token_budget", [], True)
    assert not episode.trainable
    assert f"{length} tokens" in str(episode.error)
    assert f"max_total_tokens={length}" in str(episode.error)
    assert not policy.requests


def test_a_response_that_was_cut_reaches_the_environment_as_an_empty_text() -> None:
    env = ScriptedEnv([0.0, 1.0])
    episode = play(env, ScriptedPolicy([cut(r"\boxed{5}"), tokens("x")]))
    assert env.actions == ["", "x"]
    assert [turn.info["invalid"] for turn in episode.turns] == ["length", None]
    assert episode.turns[0].finish_reason == "length"
    assert episode.turns[0].response_ids == tokens(r"\boxed{5}")[:-1]


def test_a_cut_response_is_passed_on_if_requested() -> None:
    env = ScriptedEnv([0.0, 1.0])
    episode = play(env, ScriptedPolicy([cut(r"\boxed{5}"), tokens("x")]), on_length_cut="pass")
    assert env.actions == [r"\boxed{5}", "x"]
    assert episode.turns[0].info["invalid"] is None


def test_an_empty_generation_ends_the_episode_without_a_step() -> None:
    env = ScriptedEnv()
    episode = play(env, ScriptedPolicy([tokens("x"), []]))
    assert (episode.stop_reason, episode.truncated, episode.trainable) == ("empty_response", True, True)
    assert (len(episode.turns), env.actions) == (1, ["x"])
    at_once = play(ScriptedEnv(), ScriptedPolicy([[]]))
    assert (at_once.turns, at_once.trainable, at_once.error) == ([], False, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_turns": 0}, "max_turns"),
        ({"max_tokens_per_turn": 0}, "max_tokens_per_turn"),
        ({"on_length_cut": "ignore"}, "on_length_cut"),
    ],
)
def test_arguments_out_of_range_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        play(ScriptedEnv(), ScriptedPolicy([tokens("x")]), **options)


# -- failures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("blocking", [False, True])
def test_a_failing_step_is_reported_in_one_line_and_keeps_the_turns_before(
    blocking: bool, caplog: pytest.LogCaptureFixture
) -> None:
    env = ScriptedEnv([0.0] * 5, fail_at=2, blocking=blocking)
    with caplog.at_level(logging.WARNING):
        episode = play(env, ScriptedPolicy([tokens("x")]), seed=4)
    assert (episode.stop_reason, episode.truncated, episode.trainable) == ("env_error", True, False)
    assert re.fullmatch(
        r"step\(\) failed: RuntimeError: scripted failure in step 2 \(support/__init__\.py:\d+\)",
        str(episode.error),
    )
    assert len(episode.turns) == 2
    assert [record.getMessage() for record in caplog.records] == [
        f"episode of ScriptedEnv, seed 4: {episode.error}"
    ]


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (OneStep(first="go"), r"reset\(\) must return"),
        (OneStep(first=("go", None)), "info is a NoneType"),
        (OneStep(first=({"not": "text"}, {})), "the observation is a dict"),
        (OneStep(("done", 1.0, True, {})), r"step\(\) must return"),
        (OneStep((None, 1.0, True, False, {})), "the observation is a NoneType"),
        (OneStep(("done", "1.0", True, False, {})), "the reward is a str"),
        (OneStep(("done", math.nan, True, False, {})), "expected a finite number"),
        (OneStep(("done", -math.inf, True, False, {})), "expected a finite number"),
        (OneStep(("done", 1.0, True, True, {})), "terminated and truncated"),
    ],
)
def test_a_result_that_breaks_the_contract_ends_the_episode(env: Env, message: str) -> None:
    episode = play(env, ScriptedPolicy([tokens("x")]))
    assert episode.stop_reason == "env_error"
    assert not episode.trainable
    assert re.search(message, str(episode.error))
    assert "\n" not in str(episode.error)


def test_numpy_rewards_and_flags_are_fine() -> None:
    episode = play(
        OneStep(("done", np.float32(0.5), np.bool_(True), np.bool_(False), {})), ScriptedPolicy([tokens("x")])
    )
    assert (episode.rewards, episode.stop_reason) == ([0.5], "terminated")
    assert type(episode.rewards[0]) is float


def test_policy_errors_are_passed_on_and_the_environment_is_closed() -> None:
    env = ScriptedEnv()
    with pytest.raises(ZeroDivisionError, match="engine"):
        play(env, ScriptedPolicy([tokens("x"), ZeroDivisionError("engine died")]))
    assert env.closed == 1


@pytest.mark.parametrize(
    ("generation", "message"),
    [
        (Generation([65, 66, 67], [0.0] * 3, "length"), "3 tokens, more than max_tokens=2"),
        (Generation([65], [0.0, 0.0], "stop"), "2 log-probs for 1 tokens"),
        (Generation([65], [math.nan], "stop"), "non-finite log-probs"),
        (Generation([65], [0.0], "eos"), "finish_reason"),  # type: ignore[arg-type]
    ],
)
def test_a_policy_that_breaks_its_contract_is_an_error(generation: Generation, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        play(ScriptedEnv(), ScriptedPolicy([generation]), max_tokens_per_turn=2)


def test_log_probs_may_be_absent() -> None:
    episode = play(ScriptedEnv([1.0]), ScriptedPolicy([Generation([65], None, "stop")]))
    assert episode.turns[0].logprobs is None
    assert episode.rows()[0].logprobs is None


def test_images_are_rejected_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="shows images, but this context supports text only"):
        play(ImageEnv(), ScriptedPolicy([tokens("x")]))


def test_an_observation_without_a_real_image_ends_the_episode_with_one_line() -> None:
    for url, problem in (
        ("https://example.org/a.png", "is not the data URL of an image"),
        ("data:image/png;base64,AAAA", "are not an image"),
    ):
        env = OneStep(first=([{"type": "image_url", "image_url": {"url": url}}], {}))
        episode = play(env, ScriptedPolicy([tokens("x")]))
        assert episode.stop_reason == "env_error"
        assert re.search(rf"part 0 of the observation: .* {problem}", str(episode.error))
        assert "\n" not in str(episode.error)


# -- concurrency ------------------------------------------------------------------------------


class Waiting(Env):
    """A blocking environment whose step waits until it is released."""

    blocking = True

    def __init__(self) -> None:
        self.entered, self.release, self.was_closed = threading.Event(), threading.Event(), threading.Event()
        self.closed_inside = False

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        return "go", {}

    def step(self, action: str) -> Any:
        self.entered.set()
        assert self.release.wait(30)
        self.closed_inside = self.was_closed.is_set()
        return "done", 1.0, True, False, {}

    def close(self) -> None:
        self.was_closed.set()


def test_cancellation_closes_the_environment_and_propagates() -> None:
    async def scenario() -> ScriptedEnv:
        env, asked, never = ScriptedEnv(), asyncio.Event(), asyncio.get_running_loop().create_future()

        def before() -> Any:
            asked.set()
            return never

        task = asyncio.create_task(run_episode(env, ScriptedPolicy([tokens("x")], before=before), CONTEXT))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return env

    assert asyncio.run(scenario()).closed == 1


def test_cancellation_in_a_thread_closes_the_environment_after_its_step() -> None:
    env = Waiting()

    async def scenario() -> None:
        task = asyncio.create_task(run_episode(env, ScriptedPolicy([tokens("x")]), CONTEXT))
        assert await asyncio.to_thread(env.entered.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not env.was_closed.is_set(), "not while another thread is in it"
        env.release.set()
        assert await asyncio.to_thread(env.was_closed.wait, 30)

    asyncio.run(scenario())
    assert not env.closed_inside


def test_a_step_that_hangs_ends_its_episode_and_not_the_loop() -> None:
    env = Waiting()

    async def scenario() -> Episode:
        episode = await run_episode(
            env, ScriptedPolicy([tokens("x")]), CONTEXT, limits=EpisodeLimits(step_timeout=0.05)
        )
        env.release.set()
        assert await asyncio.to_thread(env.was_closed.wait, 30)
        return episode

    episode = asyncio.run(scenario())
    assert (episode.stop_reason, episode.error) == ("env_error", "step() did not return within 0.05 s")


def test_the_time_of_a_step_begins_when_a_thread_takes_it_up() -> None:
    async def together() -> list[Episode]:
        envs = [ScriptedEnv([1.0], delay=0.25, blocking=True) for _ in range(4 * MAX_THREADS)]
        policy = ScriptedPolicy([tokens("x")])
        return await asyncio.gather(
            *(run_episode(env, policy, CONTEXT, limits=EpisodeLimits(step_timeout=0.8)) for env in envs)
        )

    assert {episode.error for episode in asyncio.run(together())} == {None}


def test_steps_that_hang_leave_threads_for_others() -> None:
    hung = [Waiting() for _ in range(MAX_THREADS)]
    policy = ScriptedPolicy([tokens("x")])

    async def scenario() -> Episode:
        stuck = [
            run_episode(env, policy, CONTEXT, limits=EpisodeLimits(step_timeout=0.05)) for env in hung[1:]
        ]
        assert all(episode.error for episode in await asyncio.gather(*stuck))
        left = asyncio.create_task(run_episode(hung[0], policy, CONTEXT))
        assert await asyncio.to_thread(hung[0].entered.wait, 30)
        left.cancel()
        return await run_episode(
            ScriptedEnv([1.0], blocking=True), policy, CONTEXT, limits=EpisodeLimits(step_timeout=5.0)
        )

    assert asyncio.run(scenario()).error is None
    assert not any(env.was_closed.is_set() for env in hung)
    for env in hung:
        env.release.set()
        assert env.was_closed.wait(30)


def test_a_hung_step_does_not_keep_the_process_from_exiting() -> None:
    program = """if True:
        import asyncio, time
        from gem_core import Env
        class Hung(Env):
            blocking = True
            def reset(self, seed=None, *, options=None):
                time.sleep(60)
        async def main():
            try:
                await asyncio.wait_for(Hung().areset(0), 0.1)
            except asyncio.TimeoutError:
                print("gave up")
        asyncio.run(main())
    """
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (ended.stdout, ended.returncode) == ("gave up\n", 0), ended.stderr


def test_an_unfinished_episode_does_not_keep_the_process_from_exiting() -> None:
    program = """if True:
        import asyncio
        from gem_core import Env
        from gem_chat import MessagesContext
        from gem_core.rollout import run_episode
        class Closing(Env):
            def reset(self, seed=None, *, options=None):
                return "?", {}
            def close(self):
                print("closed", flush=True)
        class Waiting:
            async def reply(self, messages, *, max_tokens, request_id):
                await asyncio.Event().wait()
        loop = asyncio.new_event_loop()
        task = loop.create_task(run_episode(Closing(), Waiting(), MessagesContext(), seed=0))
        loop.run_until_complete(asyncio.sleep(0.1))
    """
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (ended.stdout, ended.returncode) == ("closed\n", 0), ended.stderr


@pytest.mark.parametrize("kind", ["inline", "thread", "async"])
def test_a_timeout_of_the_environment_is_its_own(kind: str) -> None:
    class Asking(OneStep):
        blocking = kind == "thread"

        def step(self, action: str) -> Any:
            raise TimeoutError("the database did not answer")

    class AsyncAsking(Asking):
        async def astep(self, action: str) -> Any:
            return self.step(action)

    env = AsyncAsking() if kind == "async" else Asking()
    episode = play(env, ScriptedPolicy([tokens("x")]), step_timeout=30.0)
    assert str(episode.error).startswith("step() failed: TimeoutError: the database did not answer (rollout/")


def test_an_async_environment_is_awaited_and_timed_out() -> None:
    class Async(OneStep):
        blocking = True
        canceled = False

        async def astep(self, action: str) -> Any:
            assert threading.current_thread() is threading.main_thread()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self.canceled = True

    env = Async()
    episode = play(Wrapper(env), ScriptedPolicy([tokens("x")]), step_timeout=0.05)
    assert episode.error == "step() did not return within 0.05 s"
    assert env.canceled


def test_stop_iteration_in_a_thread_does_not_hang() -> None:
    class Exhausted(OneStep):
        blocking = True

        def step(self, action: str) -> Any:
            return next(iter(()))

    assert play(Exhausted(), ScriptedPolicy([tokens("x")])).error.startswith(
        "step() failed: StopIteration (rollout/test_runner.py:"
    )


def test_blocking_environments_leave_the_event_loop_and_cheap_ones_do_not() -> None:
    class Where(OneStep):
        def step(self, action: str) -> Any:
            self.thread = threading.current_thread()
            return super().step(action)

    cheap, blocking, own = Where(), Where(), Where()
    blocking.blocking = own.blocking = True
    play(cheap, ScriptedPolicy([tokens("x")]))
    play(Wrapper(blocking), ScriptedPolicy([tokens("x")]))
    with ThreadPoolExecutor(1, thread_name_prefix="mine") as executor:
        play(own, ScriptedPolicy([tokens("x")]), executor=executor)
    assert cheap.thread is threading.current_thread()
    assert blocking.thread.name.startswith("gem-env")
    assert own.thread.name.startswith("mine")


def test_64_episodes_at_once_equal_64_one_by_one() -> None:
    def episode(number: int) -> Any:
        env = ScriptedEnv([0.0] * (number % 5) + [1.0], blocking=number % 2 == 0)
        return run_episode(env, ScriptedPolicy([tokens(str(number))]), CONTEXT, seed=number, request_id="r")

    async def together() -> list[Episode]:
        return await asyncio.gather(*(episode(number) for number in range(64)))

    assert asyncio.run(together()) == [asyncio.run(episode(number)) for number in range(64)]
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("gem-env")]
    assert 0 < len(threads) <= MAX_THREADS


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 warns about forks with threads
def test_a_forked_process_has_threads_of_its_own() -> None:
    play(ScriptedEnv(blocking=True), ScriptedPolicy([tokens("x")]))
    process = multiprocessing.get_context("fork").Process(
        target=play, args=(ScriptedEnv(blocking=True), ScriptedPolicy([tokens("x")]))
    )
    process.start()
    process.join(30)
    hung = process.is_alive()
    process.kill()
    process.join()
    assert (hung, process.exitcode) == (False, 0)


# -- info -------------------------------------------------------------------------------------


def test_info_is_reduced_to_what_json_has() -> None:
    class Opaque:
        def __repr__(self) -> str:
            return "<opaque>"

    value = {
        1: (np.float32(0.5), np.arange(2)),
        "nan": math.nan,
        "np_nan": np.float64("inf"),
        "none": None,
        "set": {3},
        "object": Opaque(),
    }
    assert jsonable(value) == {
        "1": [0.5, [0, 1]],
        "nan": None,
        "np_nan": None,
        "none": None,
        "set": [3],
        "object": "<opaque>",
    }


def test_text_that_utf_8_cannot_hold_is_repaired() -> None:
    parts = [{"type": "text", "text": "go \ud83d"}]
    info = {"suffix": "\ud83d\ude00", "\udfff": ["é", "\udfff"]}
    for first in (("go \ud83d", info), (parts, info)):
        policy = ScriptedPolicy([tokens("x")])
        play(OneStep(("done \udfff", 1.0, True, False, info), first), policy)
        prompt = CharTokenizer().decode(policy.requests[0][0])
        assert "go \ufffd\n\U0001f600" in prompt
    episode = play(OneStep(("done \udfff", 1.0, True, False, info)), policy)
    assert episode.turns[0].info["final_obs"] == "done \ufffd\n\U0001f600"
    assert episode.turns[0].info["\ufffd"] == ["é", "\ufffd"]


# -- the response part ------------------------------------------------------------------------


def test_the_response_part_has_a_length_of_its_own() -> None:
    def endless(**options: Any) -> Episode:
        return play(ScriptedEnv([0.0] * 50), ScriptedPolicy([tokens("one")]), seed=7, **options)

    whole = endless(max_turns=3).rows()[0]
    length = len(whole.token_ids) - whole.prompt_length
    limited = endless(max_response_tokens=length)
    assert limited.stop_reason == "token_budget"
    assert len(limited.rows()[0].token_ids) - limited.rows()[0].prompt_length == length
    both = endless(max_response_tokens=10_000, max_total_tokens=len(whole.token_ids))
    assert len(both.rows()[0].token_ids) == len(whole.token_ids)
    with pytest.raises(ConfigError, match="max_response_tokens=0: expected a whole number of at least 1"):
        endless(max_response_tokens=0)


def test_in_rebuild_mode_it_is_the_length_of_one_response() -> None:
    policy = ScriptedPolicy([tokens("one")])
    play(ScriptedEnv([0.0] * 3), policy, RebuildContext(CharTokenizer()), max_response_tokens=9)
    assert [limit for _, limit, _ in policy.requests] == [9, 9, 9]


class Endless(Env):
    """Continues forever."""

    def __init__(self) -> None:
        self.steps = 0

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        return "go", {}

    def step(self, action: str) -> Any:
        self.steps += 1
        return "on", 0.0, False, False, {}


class Short:
    """Answers tokens and messages without waiting for anything."""

    async def generate(self, prompt_ids: Any, *, max_tokens: int, request_id: str) -> Generation:
        return Generation([65], None, "stop")

    async def reply(self, messages: Any, *, max_tokens: int, request_id: str) -> ChatReply:
        return ChatReply("a")


@pytest.mark.parametrize(
    ("context", "options"),
    [
        (RebuildContext(CharTokenizer()), {"max_total_tokens": 90}),
        (RebuildContext(CharTokenizer(), raw=True), {"max_response_tokens": 9}),
        (MessagesContext(), {}),
        (CONTEXT, {}),
    ],
    ids=["rebuilt", "raw", "messages", "no limit in tokens"],
)
def test_an_episode_without_a_limit_ends(
    context: Any, options: dict[str, int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gem_core.rollout._runner.MAX_TURNS", 20)
    episode = play(Endless(), Short(), context, **options)
    assert (len(episode.turns), episode.stop_reason) == (20, "max_turns")
    assert (episode.truncated, episode.trainable, episode.error) == (True, True, None)
    assert "did not end within 20 turns; set max_turns" in caplog.text
    caplog.clear()
    assert len(play(Endless(), Short(), context, max_turns=30, **options).turns) == 30
    assert len(play(Endless(), Short(), context, max_turns=10, **options).turns) == 10
    assert caplog.text == ""
    assert MAX_TURNS == 1000


def test_a_token_limit_needs_no_limit_of_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gem_core.rollout._runner.MAX_TURNS", 20)
    for options in ({"max_total_tokens": 900}, {"max_response_tokens": 900}):
        episode = play(Endless(), Short(), **options)
        assert episode.stop_reason == "token_budget"
        assert len(episode.turns) > 20


@pytest.mark.parametrize("context", [RebuildContext(CharTokenizer()), MessagesContext()])
def test_an_episode_that_never_waits_can_be_canceled(context: Any) -> None:
    env = Endless()

    async def run() -> None:
        task = asyncio.ensure_future(run_episode(env, Short(), context, EpisodeLimits(max_turns=3000)))
        while not env.steps:
            await asyncio.sleep(0)
        assert env.steps < 1000
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert env.steps < 1000
