from __future__ import annotations

import asyncio
from typing import Any

from gem_core.rollout import AppendContext, Episode, run_episode
from tests.rollout.policies import ScriptedPolicy
from tests.rollout.tokenizers import CharTokenizer
from tests.support import ScriptedEnv

CONTEXT = AppendContext(CharTokenizer())
END = CharTokenizer.eos_token_id


def tokens(text: str) -> list[int]:
    return [*CharTokenizer().encode(text), END]


def play(env: Any, policy: Any, context: Any = CONTEXT, **options: Any) -> Episode:
    return asyncio.run(run_episode(env, policy, context, **options))


def test_an_episode_holds_what_was_sampled_and_what_it_earned() -> None:
    env = ScriptedEnv([0.0, 0.5, 1.0])
    policy = ScriptedPolicy([tokens("one"), tokens("two"), tokens("three")])
    episode = play(env, policy, seed=7)
    assert env.actions == ["one", "two", "three"]
    assert [turn.action for turn in episode.turns] == ["one", "two", "three"]
    assert [turn.response_ids for turn in episode.turns] == [tokens("one"), tokens("two"), tokens("three")]
    assert episode.rewards == [0.0, 0.5, 1.0]
    assert (episode.terminated, episode.truncated, episode.stop_reason) == (True, False, "terminated")
    assert (episode.trainable, episode.error, episode.success, episode.seed) == (True, None, True, 7)
