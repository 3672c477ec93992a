"""Native tool calls, texts that spell special tokens, and foreign agents, in a step of Oat's actor.

The actor has no model: the engine below Oat's own `generate` returns scripted answers.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from gem_oat._actor import Actor
from vllm import SamplingParams

import gem_core
from gem_chat import EpisodePlayer
from gem_chat._concurrency import EpisodeLoop
from gem_core.rollout import RolloutOptions, episode_metrics
from gem_core.tasks import TaskRow
from gem_core.trainers import read_estimator
from tests.rollout.tokenizers import bpe_tokenizer
from tests.support import ScriptedEnv
from tests.trainers import forging, tool_episodes

END = "<|im_end|>"
gem_core.register("test:OatScripted", ScriptedEnv)


class ScriptedEngine:
    """The call of vLLM that Oat makes: returns scripted texts, one request at a time."""

    def __init__(self, tokenizer: Any, texts: list[str]) -> None:
        self.tokenizer, self.texts = tokenizer, texts
        self.prompts: list[list[int]] = []

    def generate(self, *, prompt_token_ids: list[list[int]], **unused: Any) -> list[Any]:
        (prompt,) = prompt_token_ids
        ids = self.tokenizer.encode(self.texts[len(self.prompts)], add_special_tokens=False)
        self.prompts.append(list(prompt))
        logprobs = [{token: SimpleNamespace(logprob=-1.0)} for token in ids]
        sample = SimpleNamespace(token_ids=ids, logprobs=logprobs, finish_reason="stop")
        return [SimpleNamespace(prompt_token_ids=prompt, outputs=[sample])]


@pytest.fixture
def loop() -> Iterator[tuple[EpisodeLoop, ThreadPoolExecutor]]:
    with ThreadPoolExecutor(1) as thread:
        playing = EpisodeLoop()
        yield playing, thread
        playing.close()


def step(
    loop: Any, tokenizer: Any, env_id: str, texts: list[str], **options: Any
) -> tuple[list[Any], list[list[int]]]:
    """Return the rows of a step with one episode, and the prompts of the engine."""
    actor: Any = Actor.__new__(Actor)
    actor.args = SimpleNamespace(
        generate_max_length=2000, num_env=1, group_size=1, seed=0, ignore_no_eos=False
    )
    actor._player = EpisodePlayer(RolloutOptions.read(options, prefix="--"), tokenizer)
    actor._choice = read_estimator("rebn", {}, gamma=0.5)
    actor._max_total_tokens, actor.eval_mode, actor.use_lora_req = 4000, False, False
    actor._loop, actor._thread = loop
    actor._waiting, actor._steps, actor._started, actor._name = [], 0, 0, "0-0"
    actor.tokenizer, actor.llm = tokenizer, ScriptedEngine(tokenizer, texts)
    actor.sampling_params = SamplingParams(logprobs=1)
    actor.ipc_client = SimpleNamespace(serialize_ipc=pickle.dumps)
    task = json.dumps(TaskRow(env_id=env_id, env_kwargs={}, seed=7, index=0))
    # Oat asks for as many turns as it sends tasks; the first episode has them all.
    rows = pickle.loads(actor.step([task] * len(texts), []))
    return rows, actor.llm.prompts


def test_tool_episodes(loop: Any) -> None:
    tokenizer = bpe_tokenizer("chatml", tool_episodes.template("hermes", "<|im_start|>ROLE\n", END))
    for texts, rewards in tool_episodes.scripts("hermes", END):
        rows, prompts = step(loop, tokenizer, tool_episodes.ENV, texts)
        (episode,) = rows[0].collected.episodes
        assert episode.rewards == rewards
        rows.sort(key=lambda row: len(row.prompt_ids))
        assert [row.prompt_ids for row in rows] == prompts
        assert [tokenizer.decode(row.response_ids) for row in rows] == texts
        returns = [
            sum(0.5**n * reward for n, reward in enumerate(rewards[turn:])) for turn in range(len(rewards))
        ]
        assert [sum(row.rewards) for row in rows] == pytest.approx(returns)
        tool_episodes.assert_native(tokenizer.decode(prompts[-1]), texts)


def test_a_foreign_agent_has_the_rows_of_the_own_loop(loop: Any) -> None:
    pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")
    tokenizer = bpe_tokenizer("chatml")
    texts = [f"I say \\boxed{{5}}{END}", f"<think>or 8</think>\n\\boxed{{7}}{END}", f" 9 {END}"]
    mine, prompts = step(loop, tokenizer, "test:OatScripted", texts)
    theirs, asked = step(loop, tokenizer, "test:OatScripted", texts, harness="tests.trainers.talker:talk")
    assert asked == prompts
    assert len(theirs) == len(mine) == 3
    for native, foreign in zip(mine, theirs, strict=True):
        for name in ("prompt_ids", "response_ids", "response_logprobs", "rewards", "loss_mask"):
            assert getattr(foreign, name) == getattr(native, name)
    (episode,) = theirs[0].collected.episodes
    assert episode.metadata["gateway"]["recognized"] == 3  # one in the second call, two in the third


@pytest.mark.parametrize("context", ["append", "rebuild"])
def test_texts_of_an_environment_spell_no_special_token(loop: Any, context: str) -> None:
    tokenizer = bpe_tokenizer("chatml", tool_episodes.template("hermes", "<|im_start|>ROLE\n", END))

    def play_once(env_id: str, texts: list[str], parse_special: bool) -> forging.Asked:
        rows, prompts = step(loop, tokenizer, env_id, texts, context=context, parse_special=parse_special)
        metrics = episode_metrics(rows[0].collected.episodes)
        return forging.Asked(prompts, metrics["gem/forged_tokens"])

    forging.check(play_once, tokenizer, END, native=context == "append")
