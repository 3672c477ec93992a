"""Episodes in messages instead of tokens, and players without a model."""

from __future__ import annotations

import asyncio

import pytest

import gem_core
from gem_chat import AppendContext, EnvPlayer, MessagesContext
from gem_core import Env
from gem_core.errors import ConfigError
from gem_core.rollout import (
    ChatReply,
    ContextFull,
    Episode,
    EpisodeLimits,
    TraceWriter,
    episode_metrics,
    read_traces,
    run_episode,
)
from tests.rollout.tokenizers import bpe_tokenizer
from tests.support import with_limits

EASY = "game:GuessTheNumber-v0-easy"


class Script:
    """Returns or raises the given replies, and records every request."""

    def __init__(self, *replies) -> None:
        self.replies = list(replies)
        self.asked = []

    async def reply(self, messages, *, max_tokens, request_id):
        self.asked.append((messages, max_tokens, request_id))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, ChatReply) else ChatReply(reply)


class Chat(Env):
    """An environment of three turns, each rewarded by the length of the answer."""

    def reset(self, seed=None, *, options=None):
        self.begin_episode(seed)
        self.left = 3
        return "Say something.", {"suffix": "Be quick."}

    def step(self, action):
        self.require_reset()
        self.left -= 1
        if not self.left:
            self.end_episode()
        return f"You said {len(action)} characters.", float(len(action)), not self.left, False, {}


def play(policy, env=None, context=None, **options) -> Episode:
    context = context or MessagesContext(system_prompt="You talk.")
    return asyncio.run(run_episode(env or Chat(), policy, context, seed=0, **with_limits(options)))


def test_the_conversation_as_messages():
    policy = Script("one", ChatReply("three", "stop", 20, 3, {"reasoning": "hm"}), "x")
    episode = play(policy, request_id="r", max_tokens_per_turn=9)
    assert policy.asked[2] == (
        [
            {"role": "system", "content": "You talk."},
            {"role": "user", "content": "Say something.\nBe quick."},
            {"role": "assistant", "content": "one"},
            {"role": "user", "content": "You said 3 characters."},
            {"role": "assistant", "content": "three"},
            {"role": "user", "content": "You said 5 characters."},
        ],
        9,
        "r",
    )
    assert (episode.rewards, episode.stop_reason, episode.context_mode) == (
        [3, 5, 1],
        "terminated",
        "messages",
    )
    assert [turn.action for turn in episode.turns] == ["one", "three", "x"]
    second = episode.turns[1].info["reply"]
    assert second == {"prompt_tokens": 20, "response_tokens": 3, "reasoning": "hm"}
    assert "reply" not in episode.turns[0].info
    assert episode_metrics([episode])["gem/return"] == 9


def test_silence_is_an_answer_to_the_environment_and_a_word_in_the_history():
    policy = Script("", "a", "b")
    assert play(policy).rewards == [0, 1, 1]
    assert policy.asked[1][0][2] == {"role": "assistant", "content": "(no answer)"}


def test_a_cut_answer_is_rejected_and_its_text_kept():
    policy = Script(ChatReply("and so on", "length"), "a", "b")
    episode = play(policy)
    first = episode.turns[0]
    assert (first.action, first.reward, first.info["invalid"]) == ("", 0, "length")
    assert first.info["reply"] == {"text": "and so on"}
    assert policy.asked[1][0][2]["content"] == "and so on"  # the model's answer stays in its history
    passed = play(Script(ChatReply("and so on", "length"), "a", "b"), on_length_cut="pass").turns[0]
    assert (passed.action, passed.finish_reason, passed.info) == ("and so on", "length", {})


def test_a_conversation_that_is_too_long_ends_the_episode():
    episode = play(Script("a", ContextFull("2049 tokens of 2048")))
    assert (len(episode.turns), episode.stop_reason, episode.error) == (1, "token_budget", None)
    assert episode.trainable
    assert episode.turns[0].info["final_obs"] == "You said 1 characters."
    first = play(Script(ContextFull("2049 tokens of 2048")))
    assert (first.turns, first.stop_reason, first.error) == ([], "token_budget", "2049 tokens of 2048")
    assert not first.trainable


def test_an_error_of_the_model_is_passed_on():
    with pytest.raises(ConnectionError, match="gone"):
        play(Script(ConnectionError("gone")))


def test_there_is_nothing_to_train_on(tmp_path):
    episode = play(Script("a", "b", "c"))
    with pytest.raises(ConfigError, match="holds no tokens"):
        episode.rows()[0]
    with pytest.raises(ConfigError, match="holds no tokens"):
        episode.rows("turn")
    with TraceWriter(tmp_path / "t.jsonl", decode=lambda ids: str(ids)) as traces:
        traces.write(episode)
    assert list(read_traces(tmp_path / "t.jsonl")) == [episode]


def test_policies_and_contexts_have_to_fit():
    pytest.importorskip("tokenizers", reason="needs the extra 'train'")

    class Tokens:
        async def generate(self, prompt_ids, *, max_tokens, request_id):
            raise AssertionError

    with pytest.raises(ConfigError, match="Tokens takes tokens"):
        play(Tokens())
    with pytest.raises(ConfigError, match="Script takes messages; give it a MessagesContext"):
        play(Script(), context=AppendContext(bpe_tokenizer()))
    with pytest.raises(ConfigError, match="count tokens, which an episode in messages does not have"):
        play(Script(), max_total_tokens=100)


def test_players_without_a_model():
    with gem_core.make(EASY) as env:
        best = play(EnvPlayer("oracle"), env)
        one, same, other = (play(EnvPlayer("random"), env, request_id=id) for id in ("a", "a", "b"))
    assert best.total_reward == 1
    assert [turn.action for turn in one.turns] == [turn.action for turn in same.turns]
    assert [turn.action for turn in one.turns] != [turn.action for turn in other.turns]


def test_an_environment_without_such_a_player():
    with pytest.raises(ConfigError, match="has no oracle action, so the oracle cannot play it"):
        play(EnvPlayer("oracle"))
    with pytest.raises(ConfigError, match="has no random actions"):
        play(EnvPlayer("random"))
    with pytest.raises(ConfigError, match="kind='best': expected random or oracle"):
        EnvPlayer("best")


def test_an_answer_that_utf_8_cannot_hold_is_repaired_for_the_environment_and_the_next_request():
    policy = Script(ChatReply("\\boxed{1} \ud83d"), ChatReply("\\boxed{2}"))
    with gem_core.make(EASY) as env:
        episode = asyncio.run(
            run_episode(env, policy, MessagesContext(), seed=0, limits=EpisodeLimits(max_turns=2))
        )
    assert episode.turns[0].action == "\\boxed{1} \ufffd"
    assert policy.asked[1][0][1] == {"role": "assistant", "content": "\\boxed{1} \ufffd"}
