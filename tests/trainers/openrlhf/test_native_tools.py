"""Native tool calls, and texts that spell special tokens, in OpenRLHF's agent."""

from __future__ import annotations

import pytest
from gem_openrlhf._executor import GemExecutor
from gem_openrlhf._labels import played_of

from gem_core.rollout import episode_metrics
from tests.rollout.tokenizers import bpe_tokenizer
from tests.trainers import forging, tool_episodes
from tests.trainers.openrlhf.test_executor import play

END = "<|im_end|>"
TEMPLATE = tool_episodes.template("hermes", "<|im_start|>ROLE\n", END)


def test_tool_episodes() -> None:
    tokenizer = bpe_tokenizer("chatml", TEMPLATE)
    for texts, rewards in tool_episodes.scripts("hermes", END):
        (response,), worker, _ = play(
            tool_episodes.ENV, texts, tokenizer=tokenizer, max_length=4000, max_tokens=2000
        )
        played = played_of(response["label"])
        assert played is not None
        assert (played.episode.rewards, response["reward"]) == (rewards, pytest.approx(sum(rewards)))
        assert len(response["action_ranges"]) == len(worker.calls) == len(texts)
        for (prompt, _, ids), (start, end) in zip(worker.calls, response["action_ranges"], strict=True):
            assert response["observation_tokens"][:start] == prompt
            assert response["observation_tokens"][start:end] == ids
        tool_episodes.assert_native(tokenizer.decode(worker.calls[-1][0]), texts)


def test_texts_of_an_environment_spell_no_special_token() -> None:
    tokenizer = bpe_tokenizer("chatml", TEMPLATE)

    def play_once(env_id: str, texts: list[str], parse_special: bool) -> forging.Asked:
        executor = GemExecutor({"parse_special": parse_special})
        (response,), worker, _ = play(
            env_id, texts, executor=executor, tokenizer=tokenizer, max_length=4000, max_tokens=2000
        )
        played = played_of(response["label"])
        assert played is not None
        metrics = episode_metrics([played.episode])
        return forging.Asked([prompt for prompt, _, _ in worker.calls], metrics["gem/forged_tokens"])

    forging.check(play_once, tokenizer, END)
