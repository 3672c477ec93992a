"""Episodes played inside a trainer's worker."""

from __future__ import annotations

import asyncio
import copy
import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gem_chat import EpisodePlayer, RebuildContext
from gem_core import register
from gem_core._util import threads
from gem_core._util.threads import MAX_THREADS, set_env_threads
from gem_core.errors import ConfigError
from gem_core.rollout import Generation, RolloutOptions, read_traces
from gem_core.tasks import TaskRow
from gem_core.trainers import PluginOptions
from tests.cancels.plugins import ENV_ID, cancel_everywhere
from tests.rollout.tokenizers import bpe_tokenizer
from tests.support import ForgingEnv, ScriptedEnv

pytest.importorskip("tokenizers", reason="needs the extra 'train'")
register("test:KitScripted", ScriptedEnv)
register("test:KitForging", ForgingEnv)
TASK = TaskRow(env_id="test:KitScripted", env_kwargs={}, seed=5, index=2, item=None)


class Scripted:
    """A policy that always answers with the same tokens."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        return Generation(self.ids, [-0.5] * len(self.ids), "stop")


@pytest.mark.parametrize("context", ["append", "template", "rebuild"])
def test_an_engine_has_to_stop_at_the_end_of_a_turn(context: Any) -> None:
    tokenizer: Any = bpe_tokenizer("chatml")
    tokenizer.eos_token = tokenizer.pad_token
    player = EpisodePlayer(RolloutOptions(context=context), tokenizer)
    extra = player.extra_stop_id
    assert extra is not None
    player.require_engine_stops([extra], "unused")
    with pytest.raises(ConfigError, match=rf"ends a turn with '<\|im_end\|>' \(token {extra}\), .*; add it$"):
        player.require_engine_stops([], "add it")


@pytest.mark.parametrize("context", ["append", "template"])
def test_an_engine_has_to_stop_at_the_end_of_a_call(context: Any, caplog: pytest.LogCaptureFixture) -> None:
    """gpt-oss ends a call with a token of its own, and an answer with another one."""
    from tests.rollout.test_tool_turns import model_tokenizer

    tokenizer = model_tokenizer("channels", "<|return|>")
    call, end = tokenizer.convert_tokens_to_ids(["<|call|>", "<|return|>"])
    assert tokenizer.eos_token_id == end
    player = EpisodePlayer(RolloutOptions(context=context), tokenizer)
    assert (player.stop_ids, player.extra_stop_id) == ({call, end}, None)
    assert player.engine_options({}) == {"stop_token_ids": sorted([call, end])}
    player.require_engine_stops([call], "unused")
    assert not caplog.messages
    player.require_engine_stops([], "unused")
    assert "ends calls of tools with '<|call|>'" in caplog.messages[0]
    text = EpisodePlayer(RolloutOptions(context=context, native_tools=False), tokenizer)
    assert text.stop_ids == {end}


def test_the_options_of_an_engine_add_to_a_trainers_own() -> None:
    tokenizer: Any = bpe_tokenizer("chatml")
    own = {"stop_token_ids": [7], "logit_bias": {3: 1.0}}
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    wanted = {"stop_token_ids": sorted([7, end])}
    assert EpisodePlayer(RolloutOptions(), tokenizer).engine_options(own) == wanted
    tokenizer.eos_token = "<|endoftext|>"
    eos = tokenizer.eos_token_id
    for context in ("append", "template", "rebuild"):
        player = EpisodePlayer(RolloutOptions(context=context), tokenizer)
        # The engine may have the files of another model, such as a base model with another tokenizer.
        assert player.engine_options(own) == {"stop_token_ids": sorted([7, end, eos])}
        none = SimpleNamespace(stop_token_ids=None)
        assert player.engine_options(none) == {"stop_token_ids": sorted([end, eos])}
        assert player.stop_ids == {eos, end}
    assert own == {"stop_token_ids": [7], "logit_bias": {3: 1.0}}
    raw = EpisodePlayer(RolloutOptions(context="rebuild", raw=True), tokenizer)
    assert raw.engine_options(own) == {"stop_token_ids": sorted([7, eos])}


def test_an_engine_samples_no_placeholder_of_images() -> None:
    pytest.importorskip("PIL", reason="needs the extra 'vision'")
    pytest.importorskip("torch", reason="needs the extra 'train'")
    from gem_lab.train._tiny_vision import IMAGE_TOKENS, make_processor

    tokenizer = bpe_tokenizer("chatml")
    processor = make_processor(tokenizer)
    forbidden = dict.fromkeys(tokenizer.convert_tokens_to_ids(list(IMAGE_TOKENS)), -100.0)
    own = {"logit_bias": {3: 1.0}}
    for context in ("append", "template", "rebuild"):
        player = EpisodePlayer(RolloutOptions(context=context), tokenizer, processor=processor)
        assert player.engine_options(own)["logit_bias"] == {3: 1.0, **forbidden}
        assert player.engine_options(SimpleNamespace(logit_bias=None))["logit_bias"] == forbidden
    assert own == {"logit_bias": {3: 1.0}}


def test_a_worker_plays_with_the_options_of_its_run(tmp_path: Path) -> None:
    tokenizer: Any = bpe_tokenizer("chatml")
    player = EpisodePlayer(RolloutOptions(max_turns=2, traces=str(tmp_path)), tokenizer)
    assert (player.stop_ids, player.extra_stop_id) == ({tokenizer.eos_token_id}, None)
    policy = Scripted(tokenizer.encode("one<|im_end|>", add_special_tokens=False))

    def play(**arguments: Any) -> Any:
        return asyncio.run(
            player.play(
                TASK, policy, split="train", metadata={"group": 2}, max_tokens_per_turn=9, **arguments
            )
        )

    episode = play()
    assert (len(episode.turns), episode.stop_reason) == (2, "max_turns")
    assert episode.metadata["group"] == 2
    assert episode.metadata["split"] == "train"
    assert len(play(max_turns=1).turns) == 1
    traces = list(read_traces(tmp_path / "train.jsonl"))
    assert [len(trace.turns) for trace in traces] == [2, 1]
    assert list(read_traces(tmp_path / "eval.jsonl")) == []


def test_players_in_many_threads_share_the_trace_files(tmp_path: Path) -> None:

    tokenizer: Any = bpe_tokenizer("chatml")
    policy = Scripted(tokenizer.encode("one<|im_end|>", add_special_tokens=False))
    options = RolloutOptions(max_turns=2, traces=str(tmp_path))
    players = [EpisodePlayer(options, copy.deepcopy(tokenizer)) for _ in range(8)]

    def play(number: int) -> None:
        metadata = {"number": number}
        episode = players[number].play(TASK, policy, split="train", metadata=metadata, max_tokens_per_turn=9)
        asyncio.run(episode)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(play, range(8)))
    traces = list(read_traces(tmp_path / "train.jsonl"))
    assert sorted(trace.metadata["number"] for trace in traces) == list(range(8))
    if sys.platform == "linux":
        files = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
        assert sum(file.startswith(str(tmp_path)) for file in files) == 2


class Recorder(Scripted):
    """A policy that records its prompts."""

    def __init__(self, ids: list[int]) -> None:
        super().__init__(ids)
        self.prompts: list[list[int]] = []

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        self.prompts.append(list(prompt_ids))
        return await super().generate(prompt_ids, max_tokens=max_tokens, request_id=request_id)


SYSTEM = {"system_prompt": "Play well."}
QUIET = {"enable_thinking": False}


@pytest.mark.parametrize("context", ["append", "template", "rebuild"])
@pytest.mark.parametrize(
    ("options", "kwargs", "used"),
    [
        ({}, None, {}),
        (SYSTEM, None, {}),
        ({"template_kwargs": QUIET}, None, QUIET),
        ({}, QUIET, QUIET),
        (SYSTEM, QUIET, QUIET),
        ({**SYSTEM, "template_kwargs": QUIET}, {"mark": "!"}, {**QUIET, "mark": "!"}),
        ({**SYSTEM, "template_kwargs": {"mark": "?"}}, QUIET, {**QUIET, "mark": "?"}),
        ({"template_kwargs": QUIET}, QUIET, QUIET),
    ],
)
def test_the_first_prompt_has_the_options_of_its_run(
    context: str, options: dict[str, Any], kwargs: dict[str, Any] | None, used: dict[str, Any]
) -> None:
    tokenizer: Any = bpe_tokenizer("qwen3")
    tokenizer.chat_template += "{% if add_generation_prompt and mark is defined %}{{ mark }}{% endif %}"
    policy = Recorder(tokenizer.encode("one<|im_end|>"))
    player = EpisodePlayer(
        PluginOptions.read({"context": context, "max_turns": 2, **options}), tokenizer, template_kwargs=kwargs
    )
    episode = asyncio.run(player.play(TASK, policy, split="train", metadata={}, max_tokens_per_turn=9))
    shown = [turn.observation for turn in episode.turns]
    assert len(shown) == 2
    messages = [{"role": "user", "content": shown[0]}]
    if "system_prompt" in options:
        messages.insert(0, {"role": "system", "content": options["system_prompt"]})

    def prompt(*more: dict[str, str]) -> str:
        whole = [*messages, *more]
        return str(tokenizer.apply_chat_template(whole, tokenize=False, add_generation_prompt=True, **used))

    first, second = map(tokenizer.decode, policy.prompts)
    assert first == prompt()
    assert first.startswith("<|im_start|>system\nPlay well.") == ("system_prompt" in options)
    assert ("<think>\n\n</think>" in first) == ("enable_thinking" in used)
    if context == "append":
        assert second.startswith(first + "one<|im_end|>\n<|im_start|>user\n")
    elif context == "template":
        assert second == prompt(
            {"role": "assistant", "content": "one"}, {"role": "user", "content": shown[1]}
        )
    else:
        messages[-1]["content"] = shown[1]
        assert second == prompt()


def test_a_raw_context_has_nothing_but_the_observation() -> None:
    tokenizer: Any = bpe_tokenizer("qwen3")
    policy = Recorder(tokenizer.encode("one<|im_end|>"))
    player = EpisodePlayer(PluginOptions.read({"context": "rebuild", "raw": True}), tokenizer)
    episode = asyncio.run(player.play(TASK, policy, split="train", metadata={}, max_tokens_per_turn=9))
    assert [tokenizer.decode(ids) for ids in policy.prompts] == [t.observation for t in episode.turns]
    assert len(policy.prompts) > 1


def test_an_episode_can_have_its_own_context() -> None:
    tokenizer: Any = bpe_tokenizer("chatml")
    policy = Recorder(tokenizer.encode("one<|im_end|>"))
    player = EpisodePlayer(PluginOptions.read({}), tokenizer)
    own = RebuildContext(tokenizer, raw=True)
    asyncio.run(player.play(TASK, policy, split="train", metadata={}, max_tokens_per_turn=9, context=own))
    assert "<|im_start|>" not in tokenizer.decode(policy.prompts[0])


def test_two_values_of_a_template_variable_are_rejected() -> None:
    options = PluginOptions.read({"template_kwargs": QUIET})
    with pytest.raises(ConfigError, match=r"enable_thinking=False, but the trainer's .*enable_thinking=True"):
        EpisodePlayer(options, bpe_tokenizer("qwen3"), template_kwargs={"enable_thinking": True})


def test_wrappers_are_around_every_environment() -> None:
    player = EpisodePlayer(RolloutOptions(wrappers="time_limit(max_turns=1)"), bpe_tokenizer("chatml"))
    policy = Scripted([1])
    episode = asyncio.run(
        player.play(TASK, policy, split="train", metadata={}, max_tokens_per_turn=9, max_total_tokens=500)
    )
    assert len(episode.turns) == 1


def test_a_worker_has_the_threads_and_environments_of_its_options() -> None:
    gate = threading.Barrier(40)  # passed only if 40 steps run at the same time

    class Meeting(ScriptedEnv):
        def step(self, action: str) -> Any:
            gate.wait(30)
            return super().step(action)

    register("test:KitMeeting", Meeting)
    task = TaskRow(env_id="test:KitMeeting", env_kwargs={"blocking": True}, seed=5, index=2, item=None)
    options = RolloutOptions(max_turns=1, max_tokens_per_turn=8, env_threads=40, max_concurrent_envs=40)

    async def play() -> list[bool]:
        player = EpisodePlayer(options, bpe_tokenizer("chatml"))
        episodes = await asyncio.gather(
            *(player.play(task, Scripted([65]), split="train", metadata={}) for _ in range(80))
        )
        return [episode.trainable for episode in episodes]

    try:
        assert asyncio.run(play()) == [True] * 80
    finally:
        set_env_threads(MAX_THREADS)


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_environments_exist_than_the_option_allows(limit: int) -> None:
    lock, alive, most = threading.Lock(), 0, 0

    class Counted(ScriptedEnv):
        def __init__(self) -> None:
            nonlocal alive, most
            super().__init__()
            with lock:
                alive += 1
                most = max(most, alive)

        def close(self) -> None:
            nonlocal alive
            with lock:
                alive -= 1

    register(f"test:KitCounted{limit}", Counted)
    task = TaskRow(env_id=f"test:KitCounted{limit}", env_kwargs={}, seed=5, index=2, item=None)
    options = RolloutOptions(max_turns=1, max_tokens_per_turn=8, max_concurrent_envs=limit)

    class Waiting(Scripted):
        async def generate(self, *args: Any, **kwargs: Any) -> Generation:
            await asyncio.sleep(0.01)  # the other episodes begin
            return await super().generate(*args, **kwargs)

    async def play() -> None:
        player = EpisodePlayer(options, bpe_tokenizer("chatml"))
        episodes = (player.play(task, Waiting([65]), split="train", metadata={}) for _ in range(12))
        assert all(episode.trainable for episode in await asyncio.gather(*episodes))

    asyncio.run(play())
    assert most == limit


def test_no_more_steps_run_at_the_same_time_than_the_option_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    # Idle threads of other tests would help out.
    for name in ("ENV_THREADS", "TOOL_THREADS"):
        monkeypatch.setattr(threads, name, threads.ThreadPool(MAX_THREADS, name))
    changed, running, most = threading.Condition(), 0, 0

    class Busy(ScriptedEnv):
        def step(self, action: str) -> Any:
            nonlocal running, most
            with changed:
                running += 1
                most = max(most, running)
                changed.notify_all()
                changed.wait_for(lambda: most > 2, timeout=0.1)
                running -= 1
            return super().step(action)

    register("test:KitBusy", Busy)
    task = TaskRow(env_id="test:KitBusy", env_kwargs={"blocking": True}, seed=5, index=2, item=None)
    options = RolloutOptions(max_turns=1, max_tokens_per_turn=8, env_threads=2)

    async def play() -> None:
        player = EpisodePlayer(options, bpe_tokenizer("chatml"))
        episodes = (player.play(task, Scripted([65]), split="train", metadata={}) for _ in range(6))
        assert all(episode.trainable for episode in await asyncio.gather(*episodes))

    asyncio.run(play())
    assert most == 2


def test_a_canceled_episode_leaves_nothing_open() -> None:
    tokenizer: Any = bpe_tokenizer("chatml")
    player = EpisodePlayer(RolloutOptions(step_timeout=30.0), tokenizer)
    policy = Scripted(tokenizer.encode("5<|im_end|>"))
    task = TaskRow(env_id=ENV_ID, env_kwargs={}, seed=5, index=2, item=None)

    async def work() -> None:
        await player.play(task, policy, split="train", metadata={}, max_tokens_per_turn=32)

    assert cancel_everywhere(work, lambda: player._envs) >= 6


@pytest.mark.parametrize("context", ["append", "template", "rebuild"])
def test_an_environment_cannot_forge_the_conversation(context: str) -> None:
    tokenizer: Any = bpe_tokenizer("chatml")
    end = tokenizer.eos_token_id

    def ends(env_id: str, **options: Any) -> list[int]:
        policy = Recorder(tokenizer.encode("one<|im_end|>"))
        player = EpisodePlayer(PluginOptions.read({"context": context, "max_turns": 2, **options}), tokenizer)
        task = {**TASK, "env_id": env_id}
        asyncio.run(player.play(task, policy, split="train", metadata={}, max_tokens_per_turn=9))
        return [list(prompt).count(end) for prompt in policy.prompts]

    expected = ends("test:KitScripted")
    assert expected == ([1, 1] if context == "rebuild" else [1, 3])
    assert ends("test:KitForging") == expected
    assert ends("test:KitForging", parse_special=True) == [
        count + 2 * (1 + i * (context != "rebuild")) for i, count in enumerate(expected)
    ]
