"""The agent loop agrees with verl's own token helpers, and makes the right rows.

`ScriptedServer` replaces verl's inference servers behind their own interface.
"""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gem_verl import _failures
from gem_verl import _loop as gem_loop
from gem_verl._loop import GemAgentLoop, GemOutput, ServerPolicy, _player
from gem_verl._manager import GemAgentLoopWorker, _Worker
from gem_verl._rows import verl_row
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

from gem_core import Env, register
from gem_core.rollout import read_traces
from gem_core.rollout._metrics import HARNESS_METRICS
from gem_core.tasks import TaskRow
from tests.cancels.plugins import ENV_ID, cancel_everywhere
from tests.rollout.tokenizers import TEMPLATES, bpe_tokenizer
from tests.support import ScriptedEnv
from tests.trainers.verl.configs import verl_config
from tests.trainers.verl.memory import use_memory_queue


class Endless(Env):
    """Never ends by itself."""

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.begin_episode(seed)
        return "again", {}

    def step(self, action: str) -> Any:
        return "again", 0.5, False, False, {}


class FailsOnce(ScriptedEnv):
    """Fails in the first step of its first instance only."""

    made = 0

    def __init__(self, **kwargs: Any) -> None:
        FailsOnce.made += 1
        super().__init__(**kwargs, fail_at=1 if FailsOnce.made == 1 else None)


class FailsInReset(ScriptedEnv):
    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        raise RuntimeError("no reset")


register("test:VerlNoReset", FailsInReset)
register("test:VerlScripted", ScriptedEnv)
register("test:VerlFailsOnce", FailsOnce)
register("test:VerlEndless", Endless)


class ScriptedServer:
    """Returns scripted texts, and records each request."""

    def __init__(self, tokenizer: Any, texts: list[str]) -> None:
        self.tokenizer, self.texts = tokenizer, texts
        self.calls: list[tuple[list[int], dict[str, Any], list[int]]] = []
        self.request_ids: list[str] = []

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: Any) -> TokenOutput:
        self.request_ids.append(request_id)
        text = self.texts[len(self.calls) % len(self.texts)]
        ids = self.tokenizer.encode(text, add_special_tokens=False)[: sampling_params["max_tokens"]]
        self.calls.append((list(prompt_ids), dict(sampling_params), ids))
        logprobs = [-0.01 * n for n, _ in enumerate(ids, start=len(self.calls))]
        steps = {"min_global_steps": 6, "max_global_steps": 6, "global_steps": 6}
        return TokenOutput(token_ids=ids, log_probs=logprobs, stop_reason="completed", extra_fields=steps)


@pytest.fixture(autouse=True)
def queue(monkeypatch: pytest.MonkeyPatch) -> None:
    use_memory_queue(monkeypatch)


def play(
    env_id: str,
    texts: list[str],
    *overrides: str,
    tokenizer: Any = None,
    validate: bool = False,
    **env_kwargs: Any,
) -> tuple[list[GemOutput], ScriptedServer, GemAgentLoop]:
    tokenizer = tokenizer or bpe_tokenizer("chatml")
    words = ("data.max_prompt_length=256", "data.max_response_length=300")
    config = verl_config("actor_rollout_ref.rollout.name=vllm", *words, *overrides)
    server = ScriptedServer(tokenizer, texts)
    row = verl_row(TaskRow(env_id=env_id, env_kwargs=env_kwargs, seed=11, index=0))
    row["raw_prompt"] = row.pop("prompt")

    async def run() -> tuple[Any, GemAgentLoop]:
        agent_loop = GemAgentLoop(
            DictConfigWrap(config),
            server,
            tokenizer,
            None,
            RLHFDataset,
            DictConfigWrap(config.data),
            hf_model_type="qwen2",
        )
        _failures.group.set(_failures.Group(2, 10_000, validating=validate))  # what GEM's worker does
        sampling = {"temperature": 1.0, "top_p": 1.0, "logprobs": True}
        return await agent_loop.run(sampling, uid="u", session_id=1, global_steps=7, **row), agent_loop

    outputs, agent_loop = asyncio.run(run())
    return outputs, server, agent_loop


@pytest.mark.parametrize("family", ["chatml", "qwen3"])
def test_tokens_masks_and_logprobs_match_verls_helpers(family: str) -> None:
    tokenizer = bpe_tokenizer(family)
    texts = ["I say \\boxed{5}<|im_end|>", "then \\boxed{7}, or\n\n8<|im_end|>", " 9 <|im_end|>"]
    if family == "qwen3":
        texts[1] = "<think>\nhm\n</think>\n\nthen 7<|im_end|>"
    (row,), server, agent_loop = play("test:VerlScripted", texts, tokenizer=tokenizer)
    observations = [f"turn {turn} draw" for turn in range(3)]

    async def expected() -> tuple[list[int], list[int], list[float]]:
        """Build the same conversation step by step with the helpers of verl's own loops."""
        agent_loop.loop = asyncio.get_running_loop()
        messages = [{"role": "user", "content": decoded_user(server.calls[0][0])}]
        ids = await agent_loop.ct_build_initial_tokens(messages)
        mask: list[int] = []
        logprobs: list[float] = []
        for index, (_, _, response) in enumerate(server.calls):
            given = [-0.01 * n for n, _ in enumerate(response, start=index + 1)]
            merged, mask, logprobs = await agent_loop.ct_merge_assistant_token(
                ids, response, mask, logprobs, given
            )
            ids = merged.token_ids
            if index < 2:
                content = decoded_user(server.calls[index + 1][0])
                assert content.startswith(observations[index + 1])
                before = [
                    *messages,
                    {"role": "assistant", "content": texts[index].removesuffix("<|im_end|>")},
                ]
                messages = [*before, {"role": "user", "content": content}]
                merged, mask, logprobs = await agent_loop.ct_merge_context_msg(
                    before, messages, ids, mask, logprobs
                )
                ids = merged.token_ids
        return ids, mask, logprobs

    def decoded_user(prompt: list[int]) -> str:
        return tokenizer.decode(prompt).rsplit("<|im_start|>user\n", 1)[1].split("<|im_end|>")[0]

    ids, mask, logprobs = asyncio.run(expected())
    assert row.prompt_ids + row.response_ids == ids
    assert row.response_mask == mask
    assert row.response_logprobs == pytest.approx(logprobs)
    assert sum(row.response_mask) == sum(len(response) for _, _, response in server.calls)


@pytest.mark.parametrize("context", ["append", "rebuild"])
@pytest.mark.parametrize("banner", ["", "hello_"])
def test_template_arguments_and_system_prompt_reach_every_request(banner: str, context: str) -> None:
    tokenizer = bpe_tokenizer("chatml", chat_template="{{ banner }}" + TEMPLATES["chatml"])
    words = ["+gem.system_prompt=Play_well.", f"+gem.context={context}"]
    words += [f"+data.apply_chat_template_kwargs.banner={banner}"] * bool(banner)
    _, server, _ = play("test:VerlScripted", ["one<|im_end|>"], *words, tokenizer=tokenizer)
    begins = f"{banner}<|im_start|>system\nPlay_well.<|im_end|>\n<|im_start|>user\n"
    assert len(server.calls) == 3
    assert all(tokenizer.decode(prompt).startswith(begins) for prompt, _, _ in server.calls)


def test_thinking_is_switched_off_in_every_request() -> None:
    for words, ends in (
        ([], "<|im_start|>assistant\n"),
        (["+data.apply_chat_template_kwargs.enable_thinking=False"], "<think>\n\n</think>\n\n"),
    ):
        tokenizer = bpe_tokenizer("qwen3")
        _, server, _ = play("test:VerlScripted", ["one<|im_end|>"], *words, tokenizer=tokenizer)
        assert len(server.calls) == 3
        assert all(tokenizer.decode(prompt).endswith(ends) for prompt, _, _ in server.calls)


def test_an_episode_without_a_response_has_the_version_of_the_weights() -> None:
    (row,), server, _ = play("test:VerlNoReset", ["one"], validate=True)
    assert server.calls == []
    fields = row.as_dict()["extra_fields"]
    assert (fields["min_global_steps"], fields["max_global_steps"]) == (6, 6)  # step 7 samples with these


def test_the_time_of_an_episode_is_split_between_engine_and_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr(gem_loop, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    generate, step = ScriptedServer.generate, ScriptedEnv.step

    async def slow_generate(self: Any, *args: Any, **options: Any) -> TokenOutput:
        clock[0] += 3.0
        return await generate(self, *args, **options)

    def slow_step(self: Any, action: str) -> Any:
        clock[0] += 0.5
        return step(self, action)

    monkeypatch.setattr(ScriptedServer, "generate", slow_generate)
    monkeypatch.setattr(ScriptedEnv, "step", slow_step)
    (row,), _, _ = play("test:VerlScripted", ["one<|im_end|>"])
    assert (row.metrics.generate_sequences, row.metrics.tool_calls) == (9.0, 1.5)


def test_each_turns_reward_is_on_its_last_token() -> None:
    (row,), server, _ = play(
        "test:VerlScripted", ["one<|im_end|>", "three words now<|im_end|>", "x<|im_end|>"]
    )
    fields = row.as_dict()
    assert row.reward_score == 1.5
    assert fields["rm_scores"].dtype.is_floating_point
    assert fields["rm_scores"].shape == fields["responses"].shape == fields["response_mask"].shape
    ends = [
        n
        for n, (a, b) in enumerate(zip(row.response_mask, [*row.response_mask[1:], 0], strict=True))
        if a > b
    ]
    assert [float(fields["rm_scores"][n]) for n in ends] == [0.0, 0.5, 1.0]
    assert float(fields["rm_scores"].sum()) == 1.5
    assert "token_rewards" not in fields
    info = fields["extra_fields"]["reward_extra_info"]
    assert (info["gem/return"], info["gem/success"], info["gem/turns"]) == (1.5, 1.0, 3.0)
    assert fields["extra_fields"]["gem"].keys() == {"turns", "episode"}  # the runs of the mask are the turns
    assert server.calls[0][1]["max_tokens"] == 300


def test_a_response_may_use_the_whole_length_unless_a_limit_is_set() -> None:
    for words, limit in (([], 2000), (["+gem.max_tokens_per_turn=700"], 700)):
        _, server, _ = play("test:VerlScripted", ["one<|im_end|>"], "data.max_response_length=2000", *words)
        assert server.calls[0][1]["max_tokens"] == limit


def test_turn_rows() -> None:
    texts = ["one<|im_end|>", "two<|im_end|>", "three<|im_end|>"]
    rows, server, _ = play("test:VerlScripted", texts, "+gem.context=rebuild")
    assert [row.prompt_ids for row in rows] == [prompt for prompt, _, _ in server.calls]
    assert [row.response_ids for row in rows] == [response for _, _, response in server.calls]
    assert [float(row.as_dict()["rm_scores"][-1]) for row in rows] == [0.0, 0.5, 1.0]
    assert {row.num_turns for row in rows} == {6}
    watched, _, _ = play("test:VerlScripted", texts, "+gem.rows=turn", validate=True)
    assert [float(row.as_dict()["rm_scores"].sum()) for row in watched] == [0.0, 0.0, 1.5]


def test_outlines_do_not_grow_with_the_square_of_the_turns() -> None:
    def size(turns: int) -> int:
        rows, _, _ = play("test:VerlEndless", ["a<|im_end|>"], f"+gem.max_turns={turns}", "+gem.rows=turn",
                          "data.max_response_length=2000", "data.max_prompt_length=2000")  # fmt: skip
        assert len(rows) == turns
        return sum(len(json.dumps(row.extra_fields)) for row in rows)

    assert size(40) < 2.2 * size(20)


@pytest.mark.parametrize("same", [True, False])
def test_request_ids_repeat_only_if_the_run_is_deterministic(same: bool) -> None:
    overrides = ["actor_rollout_ref.rollout.full_determinism=True"] if same else []
    ids = [play("test:VerlScripted", ["one<|im_end|>"], *overrides)[1].request_ids for _ in range(2)]
    assert len(set(ids[0])) == 1  # verl sends all turns of an episode to one server
    assert (ids[0] == ids[1]) == same


def test_counts_of_speculative_decoding_cover_all_turns() -> None:
    async def generate(**asked: Any) -> TokenOutput:
        fields = {"spec_num_draft_tokens": 3, "min_global_steps": 6}
        return TokenOutput(token_ids=[1], log_probs=[-0.1], stop_reason="completed", extra_fields=fields)

    policy = ServerPolicy(SimpleNamespace(generate=generate), {}, {1})
    for _ in range(2):
        asyncio.run(policy.generate([1, 2], max_tokens=9, request_id="r"))
    assert policy.extra_fields == {"spec_num_draft_tokens": 6, "min_global_steps": 6}


def test_an_env_that_raises_leaves_no_row_in_training_and_a_masked_one_in_validation() -> None:
    rows, server, _ = play("test:VerlScripted", ["one<|im_end|>"], fail_at=1)
    assert rows == []
    assert len(server.calls) == 2
    (row,), _, _ = play("test:VerlScripted", ["one<|im_end|>"], fail_at=1, validate=True)
    assert (row.response_mask, row.reward_score) == ([0], 0.0)
    fields = row.as_dict()
    assert fields["rm_scores"].tolist() == [0.0]
    assert fields["rollout_log_probs"].tolist() == [0.0]
    info = fields["extra_fields"]["reward_extra_info"]
    assert (info.pop("gem/error_rate"), info.pop("gem/retry_rate")) == (1.0, 0.0)
    assert set(info.values()) == {None}  # verl's means skip None
    early, server, _ = play("test:VerlScripted", ["one"], rewards=[], fail_at=0)
    assert early == []
    assert server.calls


def test_a_failed_episode_is_played_again_on_request() -> None:
    texts, retry = ["one<|im_end|>"], "+gem.on_env_error=retry"
    rows, server, _ = play("test:VerlScripted", texts, retry, "+gem.max_env_retries=3", fail_at=1)
    assert rows == []
    assert len(server.calls) == 2 * (1 + 3)
    (row,), server, _ = play("test:VerlFailsOnce", texts, retry)
    info = row.extra_fields["reward_extra_info"]
    assert (info["gem/error_rate"], info["gem/retry_rate"], len(server.calls)) == (0.0, 1.0, 2 + 3)


def test_an_env_that_never_ends_is_cut_by_the_response_length() -> None:
    (row,), server, _ = play("test:VerlEndless", ["abc<|im_end|>"], "+gem.max_tokens_per_turn=8")
    assert len(row.response_ids) <= 300
    assert row.extra_fields["reward_extra_info"]["gem/truncation_rate"] == 1.0
    assert row.response_mask[-1] == 1
    assert len(server.calls) > 5
    (short,), _, _ = play("test:VerlEndless", ["abc<|im_end|>"], "+gem.max_turns=2")
    assert short.num_turns == 4


def test_a_cut_response_is_distinguished_from_a_complete_one_of_the_same_length() -> None:
    tokenizer = bpe_tokenizer("chatml")
    whole = "abc<|im_end|>"
    length = len(tokenizer.encode(whole, add_special_tokens=False))
    limit = f"+gem.max_tokens_per_turn={length}"
    for text, rate in ((whole, 0.0), (whole.replace("<|im_end|>", "defghijk"), 1.0)):
        (row,), _, _ = play("test:VerlEndless", [text], limit, "+gem.max_turns=1", tokenizer=tokenizer)
        assert row.extra_fields["reward_extra_info"]["gem/format_error_rate"] == rate


@pytest.mark.parametrize(
    ("text", "said", "reason"),
    [
        ("abc", "length", "length"),
        ("abc", "completed", "stop"),
        ("abc<|im_end|>", "length", "stop"),
        ("", "length", "stop"),
    ],
)
def test_a_response_that_the_server_cut_earlier_is_cut(text: str, said: str, reason: str) -> None:
    tokenizer = bpe_tokenizer("chatml")
    ids = tokenizer.encode(text, add_special_tokens=False)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")

    async def generate(**asked: Any) -> TokenOutput:
        return TokenOutput(token_ids=ids, log_probs=[-0.1] * len(ids), stop_reason=said)

    policy = ServerPolicy(SimpleNamespace(generate=generate), {}, {end})
    assert asyncio.run(policy.generate([1, 2], max_tokens=99, request_id="r")).finish_reason == reason


@pytest.mark.parametrize(
    ("overrides", "limit"),
    [
        (["actor_rollout_ref.rollout.name=vllm"], 200),
        (["actor_rollout_ref.rollout.name=sglang"], 199),
        (["actor_rollout_ref.rollout.max_model_len=150", "actor_rollout_ref.rollout.name=vllm"], 150),
        (["actor_rollout_ref.rollout.max_model_len=150", "actor_rollout_ref.rollout.name=sglang"], 149),
    ],
)
def test_no_request_is_longer_than_the_servers_take(
    overrides: list[str], limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(self: Any, *args: Any, **options: Any) -> None:
        group = _failures.group.get()
        assert group is not None
        limits.append(gem_loop.context_length(self.rollout_config, group.position_limit))

    limits: list[int] = []
    monkeypatch.setattr(_Worker, "_run_prompt", run)
    worker = GemAgentLoopWorker.__new__(GemAgentLoopWorker)
    worker.config = verl_config("data.max_prompt_length=256", "data.max_response_length=300", *overrides)
    worker.rollout_config = omega_conf_to_dataclass(worker.config.actor_rollout_ref.rollout)
    worker.model_config = SimpleNamespace(hf_config=SimpleNamespace(max_position_embeddings=200))
    asyncio.run(worker._run_prompt({}, {}, {"validate": False}))
    assert limits == [limit]

    monkeypatch.setattr(gem_loop, "context_length", lambda *args: limit)
    (row,), server, _ = play("test:VerlEndless", ["word " * 8 + "<|im_end|>"])
    assert all(len(prompt) + params["max_tokens"] <= limit for prompt, params, _ in server.calls)
    assert limit - 40 < len(row.prompt_ids + row.response_ids) <= limit


def test_traces_hold_every_episode(tmp_path: Path) -> None:
    for validate in (False, True):
        play("test:VerlScripted", ["one<|im_end|>"], f"+gem.traces={tmp_path}", validate=validate)
    for split in ("train", "eval"):
        (episode,) = read_traces(tmp_path / f"{split}.jsonl")
        assert episode.rewards == [0.0, 0.5, 1.0]
        assert episode.metadata == {"step": 7, "group": "u", "sample": 1, "split": split}
        assert all(math.isfinite(p) for turn in episode.turns for p in turn.logprobs or [])


def test_a_canceled_episode_leaves_nothing_open() -> None:
    tokenizer = bpe_tokenizer("chatml")
    words = ("data.max_prompt_length=256", "data.max_response_length=300")
    config = verl_config("actor_rollout_ref.rollout.name=vllm", *words)
    row = verl_row(TaskRow(env_id=ENV_ID, env_kwargs={}, seed=11, index=0))
    row["raw_prompt"] = row.pop("prompt")
    settings, server = DictConfigWrap(config), ScriptedServer(tokenizer, ["5<|im_end|>"])
    data = DictConfigWrap(config.data)

    async def work() -> None:
        loop = GemAgentLoop(settings, server, tokenizer, None, RLHFDataset, data, hf_model_type="qwen2")
        _failures.group.set(_failures.Group(2, 10_000))
        await loop.run({"temperature": 1.0, "logprobs": True}, uid="u", session_id=1, global_steps=7, **row)

    asyncio.run(work())
    player = _player(config, tokenizer, None)[0]
    assert cancel_everywhere(work, lambda: player._envs) >= 6


@pytest.mark.parametrize("rows", ["auto", "turn"])
def test_a_foreign_agent_has_the_outputs_of_the_own_loop(rows: str) -> None:
    pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")
    texts = ["one<|im_end|>", "<think>hm</think>\ntwo<|im_end|>", " three<|im_end|>"]
    words = ("actor_rollout_ref.rollout.full_determinism=True", f"+gem.rows={rows}")
    native, server, _ = play("test:VerlScripted", texts, *words)
    agent = "+gem.harness='tests.trainers.talker:talk'"
    foreign, other, _ = play("test:VerlScripted", texts, *words, agent)
    assert (server.calls, server.request_ids) == (other.calls, other.request_ids)
    assert len(foreign) == len(native) == (3 if rows == "turn" else 1)
    for mine, theirs in zip(native, foreign, strict=True):
        expected, found = mine.as_dict(), theirs.as_dict()
        metrics = found["extra_fields"]["reward_extra_info"]
        added = {name: metrics.pop(name) for name in HARNESS_METRICS}
        assert (added["gem/recognized"], added["gem/rows"], added["gem/lost"]) == (1.0, 1.0, 0.0)
        assert metrics == expected["extra_fields"]["reward_extra_info"]
        for name in ("prompt_ids", "response_ids", "response_mask", "response_logprobs", "reward_score"):
            assert getattr(mine, name) == getattr(theirs, name)
        assert expected["rm_scores"].tolist() == found["rm_scores"].tolist()
        mine_facts, their_facts = (one["extra_fields"]["gem"] for one in (expected, found))
        if "episode" in their_facts:
            assert {*their_facts["episode"].pop("metadata")} == {"gateway"}
            del mine_facts["episode"]["metadata"]
        assert mine_facts == their_facts
