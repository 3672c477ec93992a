"""Tool turns in the episode loop: tokens, rewards, metrics, and an event loop that is never blocked."""

from __future__ import annotations

import asyncio
import time

import pytest

import gem_core
from gem_chat import AppendContext
from gem_core.rollout import (
    EnvPool,
    EpisodeLimits,
    RolloutOptions,
    TraceWriter,
    episode_metrics,
    read_traces,
    run_episode,
)
from gem_core.tasks import TaskRow
from tests.rollout.policies import ScriptedPolicy
from tests.rollout.tokenizers import CharTokenizer, bpe_tokenizer

TOKENIZER = CharTokenizer()
CONTEXT = AppendContext(TOKENIZER)
CALL, WRONG, ANSWER = "<python>print(6 * 7)</python>", "<python>1 / 0</python>", "\\boxed{0}"


def tokens(text: str) -> list[int]:
    return [*TOKENIZER.encode(text), TOKENIZER.eos_token_id]


def test_an_episode_with_tool_turns_is_token_exact_and_paid_turn_by_turn() -> None:
    given = RolloutOptions.read({"wrappers": "python_tool(tool_error_reward=-0.5)"})
    env = gem_core.make("math:Arithmetic-v0", wrappers=given.wrappers)
    policy = ScriptedPolicy([tokens(CALL), tokens(WRONG), tokens(ANSWER)])
    episode = asyncio.run(
        run_episode(env, policy, CONTEXT, seed=0, limits=EpisodeLimits(max_tokens_per_turn=100))
    )
    env.close()
    assert [turn.action for turn in episode.turns] == [CALL, WRONG, ANSWER]
    assert [round(reward, 6) for reward in episode.rewards] == [0.3, -0.45, 0.0]
    assert episode.turns[1].observation == "Result of python:\n42"
    shown = TOKENIZER.decode(episode.turns[1].context_ids, skip_special_tokens=True)
    assert "Result of python:\n42" in shown
    assert (episode.terminated, episode.trainable) == (True, True)
    sequence = episode.rows()[0]
    trained = [id for id, mask in zip(sequence.token_ids, sequence.response_mask, strict=True) if mask]
    assert trained == [*tokens(CALL), *tokens(WRONG), *tokens(ANSWER)]
    metrics = episode_metrics([episode])
    assert (metrics["gem/tool_calls"], metrics["gem/tool_errors"]) == (2.0, 1.0)
    assert metrics["gem/format_error_rate"] == 0.0


def test_episodes_wait_for_their_tools_at_the_same_time() -> None:
    code = "<python>import time; time.sleep(0.4)</python>"

    async def play_all(count: int) -> tuple[float, float]:
        pool = EnvPool("tools(tools='python')")
        policies = [ScriptedPolicy([tokens(code), tokens(ANSWER)]) for _ in range(count)]
        task = TaskRow(env_id="math:Arithmetic-v0", env_kwargs={}, seed=0, index=0)
        longest, playing = 0.0, True

        async def watch() -> None:
            nonlocal longest
            while playing:
                before = time.monotonic()
                await asyncio.sleep(0.01)
                longest = max(longest, time.monotonic() - before)

        watching = asyncio.ensure_future(watch())
        start = time.monotonic()
        episodes = await asyncio.gather(
            *(
                pool.play(task, policy, CONTEXT, limits=EpisodeLimits(max_tokens_per_turn=100))
                for policy in policies
            )
        )
        seconds = time.monotonic() - start
        playing = False
        await watching
        pool.close()
        assert all(len(episode.turns) == 2 for episode in episodes)
        return seconds, longest

    asyncio.run(play_all(1))  # start the sandbox
    seconds, longest = asyncio.run(play_all(8))
    assert seconds < 8 * 0.4  # not one after the other
    assert longest < 8 * 0.4  # the loop was not blocked


def test_a_lone_surrogate_of_a_call_reaches_neither_the_tokenizer_nor_the_trace(tmp_path) -> None:
    pytest.importorskip("transformers", reason="needs the extra 'train'")
    tokenizer = bpe_tokenizer()
    call = r'<tool_call>{"name": "\ud83d", "arguments": {}}</tool_call>'
    policy = ScriptedPolicy([tokenizer.encode(call, add_special_tokens=False)] * 2)
    env = gem_core.make("math:Arithmetic-v0", wrappers="tools(tools='python', format='hermes')")
    context = AppendContext(tokenizer)
    episode = asyncio.run(run_episode(env, policy, context, seed=0, limits=EpisodeLimits(max_turns=2)))
    env.close()
    assert (episode.stop_reason, episode.turns[0].info["tool_type"]) == ("max_turns", "\ufffd")
    assert 'there is no tool "\ufffd"' in episode.turns[1].observation
    with TraceWriter(tmp_path / "traces.jsonl", decode=tokenizer.decode) as traces:
        traces.write(episode)
    assert list(read_traces(tmp_path / "traces.jsonl")) == [episode]
