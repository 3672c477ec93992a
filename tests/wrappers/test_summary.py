"""`summarize`: the policy replaces a long history by its own summary, in a turn beside the others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import gem_core
from gem_chat import RebuildContext
from gem_core import Env, wrap
from gem_core.advantages import Threads, returns, with_threads
from gem_core.errors import ConfigError
from gem_core.rollout import Episode, EpisodeLimits, Thread, run_episode
from gem_core.wrappers import Summarize
from tests.rollout.policies import ScriptedPolicy
from tests.rollout.tokenizers import CharTokenizer
from tests.wrappers.test_observation import IMAGE, shown, telling

ASK = (
    "Your notes are full. Summarize what you need from now on in at most 4 characters: only the "
    "instructions, your summary, and the newest observation will remain."
)


def summarizing(*observations: Any, max_chars: int = 10) -> Env:
    return wrap(telling(*observations), f"summarize(max_chars={max_chars}, max_summary=4)")


def test_a_long_history_becomes_a_summary() -> None:
    env = summarizing("rules", "one", "two", "three")
    assert shown(env, ["a", "b", "brief", "c"]) == [
        "rules",
        "rules\na\none",
        f"rules\na\none\nb\ntwo\n{ASK}",  # 13 characters
        "rules\nYour summary:\nbrie\ntwo",
        "rules\nYour summary:\nbrie\ntwo\nc\nthree",  # the last step asks for nothing
    ]


def test_a_summary_is_a_side_turn_that_the_environment_does_not_see() -> None:
    env = summarizing("rules", "one", "two", "three", max_chars=8)
    env.reset()
    assert "side_turn" not in env.step("a")[4]
    assert env.step("mine")[1:] == (0.0, False, False, {"side_turn": True})
    assert env.unwrapped.turn == 1
    assert "side_turn" not in env.step("b")[4]
    assert env.unwrapped.turn == 2


def test_each_step_asks_at_most_once() -> None:
    """The summary itself may be longer than the limit."""
    env = summarizing("rules", "one", "two", "three", max_chars=1)
    asked = [observation.endswith(ASK) for observation in shown(env, ["a", "s", "b", "t", "c"])]
    assert asked == [False, True, False, True, False, False]


def test_async_steps_are_the_same() -> None:
    async def play(env: Env, actions: list[str]) -> list[Any]:
        return [(await env.areset())[0], *[(await env.astep(action))[0] for action in actions]]

    actions = ["a", "b", "brief", "c"]
    env, other = (summarizing("rules", "one", "two", "three") for _ in range(2))
    assert asyncio.run(play(env, actions)) == shown(other, actions)


def test_parts_are_asked_by_a_part() -> None:
    env = summarizing("rules", [IMAGE, {"type": "text", "text": "a long caption"}], "two")
    asked = shown(env, "a")[-1]
    assert asked[-1] == {"type": "text", "text": ASK}
    assert IMAGE in asked
    assert IMAGE in env.step("note")[0]  # the newest observation remains whole


def test_the_state_holds_the_request() -> None:
    game = "game:Passcode-v0-easy"
    env = gem_core.make(game, wrappers="summarize(max_chars=300)")
    env.reset(seed=1)
    while not env.asked:
        env.step(r"\boxed{walk}")
    other = gem_core.make(game, wrappers="summarize(max_chars=300)")
    other.reset(seed=2)
    other.set_state(env.get_state())
    assert other.step("kept") == env.step("kept")
    assert other.step(r"\boxed{walk}") == env.step(r"\boxed{walk}")


def test_a_reset_forgets_the_request() -> None:
    env = summarizing("rules", "one", "two", max_chars=1)
    shown(env, "a")
    assert shown(env, "ab")[0] == "rules"


@pytest.mark.parametrize(("name", "value"), [("max_chars", 0), ("max_chars", None), ("max_summary", "9")])
def test_limits_are_checked(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        Summarize(telling("rules", "one"), **{name: value})


@pytest.mark.parametrize("player", ["sample_random_action", "oracle_action"])
def test_players_write_summaries(player: str) -> None:
    env = gem_core.make("game:Passcode-v0-easy", wrappers="summarize(max_chars=320, max_summary=60)")
    env.reset(seed=0)
    ended, summaries = False, []
    while not ended:
        asked = env.asked
        action = getattr(env, player)()
        observation, reward, terminated, truncated, _ = env.step(action)
        ended = terminated or truncated
        if asked:
            summaries.append(action)
            assert f"Your summary:\n{action}\n" in observation
    assert len(summaries) > 1
    assert all(0 < len(summary) <= 60 for summary in summaries)
    assert player == "sample_random_action" or reward == 1.0


def test_an_action_that_looks_like_a_summary_is_none() -> None:
    env = summarizing("rules", "one", "two", max_chars=8)
    env.reset(seed=0)
    env.step("Your summary:\nmine")
    assert env.asked
    assert env.oracle_action() == "one"


def policy(*responses: str) -> ScriptedPolicy:
    return ScriptedPolicy([[*map(ord, response), CharTokenizer.eos_token_id] for response in responses])


def played(*responses: str, **limits: Any) -> Episode:
    env = summarizing("rules", "one", "two", "three", max_chars=8)
    context = RebuildContext(CharTokenizer())
    return asyncio.run(run_episode(env, policy(*responses), context, EpisodeLimits(**limits)))


def test_a_summary_is_a_thread_between_two_turns() -> None:
    """It returns to the turn that sees it, and earns what follows without a step of its own."""
    episode = played("a", "s", "b", "t", "c")
    assert [turn.thread for turn in episode.turns] == [0, 1, 0, 2, 0]
    assert episode.threads == {1: Thread(0, 2), 2: Thread(2, 4)}
    threads = Threads(tuple(turn.thread for turn in episode.turns), episode.threads)
    (gs,) = returns(with_threads([[0.0, 0.0, 0.0, 0.0, 1.0]], [threads]), gamma=0.5)
    assert list(gs) == [0.25, 0.5, 0.5, 1.0, 1.0]
    assert len(episode.rows()) == 5


def test_a_summary_that_ends_the_episode_returns_nowhere() -> None:
    episode = played("a", "s", max_turns=2)
    assert (episode.stop_reason, episode.threads) == ("max_turns", {1: Thread(0, None)})


def test_the_thread_is_known_when_the_turn_is_reported() -> None:
    env, seen = summarizing("rules", "one", "two", max_chars=8), []
    context = RebuildContext(CharTokenizer())
    asyncio.run(
        run_episode(env, policy("a", "s", "b"), context, on_turn=lambda turn: seen.append(turn.thread))
    )
    assert seen == [0, 1, 0]
