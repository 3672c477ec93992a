"""The agent in a scripted worker makes the right rows.

`ScriptedWorker` replaces OpenRLHF's rollout worker behind its own interface.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gem_openrlhf._executor import GemExecutor
from gem_openrlhf._labels import openrlhf_row, played_of
from gem_openrlhf._options import VARIABLE, GemOptions
from openrlhf.trainer.ray.vllm_engine import _load_agent_executor
from vllm import SamplingParams
from vllm.logprobs import Logprob
from vllm.outputs import CompletionOutput, RequestOutput

import gem_core
from gem_core.errors import ConfigError
from gem_core.rollout import read_traces
from gem_core.tasks import TaskRow
from tests.cancels.plugins import ENV_ID, cancel_everywhere
from tests.rollout.tokenizers import bpe_tokenizer
from tests.support import ScriptedEnv
from tests.trainers.openrlhf.args import experiences
from tests.trainers.spies import gem_trouble


class NotBuilt(gem_trouble.Endless):
    """Raises in its constructor, the first time."""

    built = 0

    def __init__(self) -> None:
        NotBuilt.built += 1
        if NotBuilt.built == 1:
            raise RuntimeError("no server")
        super().__init__()


gem_core.register("test:OpenRLHFScripted", ScriptedEnv)
gem_core.register("test:OpenRLHFNotBuilt", NotBuilt)
gem_trouble.register()


class ScriptedWorker:
    """Returns scripted texts, cut to the budget, and records each request."""

    def __init__(self, tokenizer: Any, texts: list[str]) -> None:
        self.tokenizer, self.texts = tokenizer, texts
        self.calls: list[tuple[list[int], SamplingParams, list[int]]] = []

    async def generate(
        self, prompt_ids: list[int], params: SamplingParams, multi_modal_data: None = None
    ) -> RequestOutput:
        text = self.texts[len(self.calls) % len(self.texts)]
        whole = self.tokenizer.encode(text, add_special_tokens=False)
        ids = whole[: params.max_tokens]
        self.calls.append((list(prompt_ids), params, ids))
        await asyncio.sleep(0)
        logprobs = [{token: Logprob(-0.01 * n)} for n, token in enumerate(ids)]
        sample = CompletionOutput(
            index=0,
            text=text,
            token_ids=ids,
            cumulative_logprob=None,
            logprobs=logprobs if params.logprobs is not None else None,
            finish_reason="length" if len(ids) < len(whole) else "stop",
        )
        return RequestOutput("", None, prompt_ids, None, [sample], finished=True)


def play(
    env_id: str,
    texts: list[str],
    *,
    executor: GemExecutor | None = None,
    samples: int = 1,
    max_length: int = 400,
    tokenizer: Any = None,
    **params: Any,
) -> tuple[list[dict[str, Any]], ScriptedWorker, SamplingParams]:
    """Call the agent as OpenRLHF's worker does: all samples of a prompt at once, with the same parameters."""
    tokenizer = tokenizer or bpe_tokenizer("chatml")
    executor = executor or GemExecutor({})
    row = openrlhf_row(TaskRow(env_id=env_id, env_kwargs={}, seed=11, index=3))
    worker = ScriptedWorker(tokenizer, texts)
    shared = SamplingParams(**{"max_tokens": 32, "min_tokens": 1, "logprobs": 1, **params})

    async def run() -> list[dict[str, Any]]:
        calls = (
            executor.execute(
                prompt=row["input"],
                label=row["label"],
                sampling_params=shared,
                max_length=max_length,
                hf_tokenizer=tokenizer,
                llm_engine=worker,
                images=None,
            )
            for _ in range(samples)
        )
        return await asyncio.gather(*calls)

    return asyncio.run(run()), worker, shared


@pytest.mark.parametrize("family", ["chatml", "qwen3"])
def test_a_row_is_what_the_engine_was_given_and_sampled(family: str) -> None:
    texts = ["I say \\boxed{5}<|im_end|>", "then \\boxed{7}, or\n\n8<|im_end|>", " 9 <|im_end|>"]
    (response,), worker, _ = play("test:OpenRLHFScripted", texts, tokenizer=bpe_tokenizer(family))
    assert len(worker.calls) == 3
    last_prompt, _, last_ids = worker.calls[-1]
    assert response["observation_tokens"] == last_prompt + last_ids
    for (prompt, _, ids), (start, end) in zip(worker.calls, response["action_ranges"], strict=True):
        assert response["observation_tokens"][:start] == prompt
        assert response["observation_tokens"][start:end] == ids
    mask = experiences([response]).action_mask[0].tolist()
    spans = [range(start - 1, end - 1) for start, end in response["action_ranges"]]
    assert [n for n, on in enumerate(mask) if on] == [n for span in spans for n in span]
    sampled = [-0.01 * n for _, _, ids in worker.calls for n, _ in enumerate(ids)]
    on = [response["rollout_log_probs"][n + 1] for n, bit in enumerate(mask) if bit]
    assert on == pytest.approx(sampled)
    played = played_of(response["label"])
    assert played is not None
    assert response["reward"] == pytest.approx(sum(played.episode.rewards))
    assert played.spans == response["action_ranges"]
    assert played.episode.seed == 11
    assert response["extra_logs"] == {}


def test_samples_of_a_prompt_share_no_parameters() -> None:
    """OpenRLHF passes one object for all samples."""
    texts = ["a<|im_end|>", "b b b<|im_end|>"]
    before = SamplingParams(max_tokens=32, min_tokens=1, logprobs=1)
    responses, worker, shared = play("test:OpenRLHFScripted", texts, samples=3)
    assert repr(shared) == repr(before)
    assert len({id(params) for _, params, _ in worker.calls}) == len(worker.calls) == 9
    assert {params.max_tokens for _, params, _ in worker.calls} == {32}
    assert {params.min_tokens for _, params, _ in worker.calls} == {0}  # nothing is held back
    assert len(responses) == 3
    assert len({json.dumps(r["observation_tokens"][: r["action_ranges"][0][0]]) for r in responses}) == 1


def test_budgets() -> None:
    """--rollout.max_new_tokens limits a response; --data.max_len limits the row."""
    texts = ["x y z " * 40]
    (response,), worker, _ = play("test:Endless", texts, max_length=150, max_tokens=20)
    assert next(len(ids) for _, _, ids in worker.calls) == 20
    assert len(response["observation_tokens"]) <= 150
    assert response["truncated"]
    played = played_of(response["label"])
    assert played is not None
    assert played.episode.stop_reason == "token_budget"
    assert {turn.info["invalid"] for turn in played.episode.turns} == {"length"}
    executor = GemExecutor({"max_turns": 2, "max_tokens_per_turn": 5})
    (response,), worker, _ = play("test:Endless", texts, executor=executor)
    assert [len(ids) for _, _, ids in worker.calls] == [5, 5]


def test_the_prompt_has_the_system_prompt_and_the_variables_of_the_template(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The options travel as in a run: in the environment variable, to an agent without arguments."""
    tokenizer = bpe_tokenizer("qwen3")
    options = {"system_prompt": "Be brief.", "template_kwargs": {"enable_thinking": False}, "max_turns": 1}
    monkeypatch.setenv(VARIABLE, GemOptions.load(options).to_text())
    _, worker, _ = play("test:Endless", ["a<|im_end|>"], executor=GemExecutor(), tokenizer=tokenizer)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say something."}]
    shown = [
        tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, enable_thinking=on
        )
        for on in (False, True)
    ]
    assert shown[0] != shown[1]
    ((prompt, _, _),) = worker.calls
    assert tokenizer.decode(prompt) == shown[0]


def test_without_a_correction_no_logprobs_are_kept() -> None:
    (response,), _, _ = play("test:OpenRLHFScripted", ["a<|im_end|>"], logprobs=None)
    assert response["rollout_log_probs"] is None


def test_the_end_of_turn_token_stops_an_engine_that_does_not_know_it() -> None:
    tokenizer = bpe_tokenizer("chatml")
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    _, worker, _ = play("test:OpenRLHFScripted", ["a<|im_end|>"], tokenizer=tokenizer)
    assert worker.calls[0][1].stop_token_ids == sorted({tokenizer.eos_token_id, end})


@pytest.mark.parametrize(
    ("env", "cause"),
    [
        ("test:Raises", "the environment broke"),
        ("test:OpenRLHFNotBuilt", "constructor failed: RuntimeError: no server"),
    ],
)
def test_a_failed_episode_is_a_row_without_a_trained_token(env: str, cause: str) -> None:
    NotBuilt.built = 0
    (response,), _, _ = play(env, ["a<|im_end|>"])
    assert response["action_ranges"] == []
    assert response["reward"] == 0.0
    row = experiences([response])
    assert not row.action_mask.any()
    assert row.rollout_log_probs.shape == row.action_mask.shape
    played = played_of(row.labels[0])
    assert played is not None
    assert cause in str(played.episode.error)


def test_a_failed_episode_is_played_again() -> None:
    NotBuilt.built = 0
    executor = GemExecutor({"on_env_error": "retry", "max_turns": 2})
    (response,), _, _ = play("test:OpenRLHFNotBuilt", ["a<|im_end|>"], executor=executor)
    played = played_of(response["label"])
    assert played is not None
    assert len(response["action_ranges"]) == 2
    assert (played.episode.trainable, played.episode.env_retries) == (True, 1)


def test_traces_distinguish_training_from_evaluation_by_the_seed(tmp_path: Path) -> None:
    executor = GemExecutor({"traces": str(tmp_path)})
    play("test:OpenRLHFScripted", ["a<|im_end|>"], executor=executor)  # seed 11 is for evaluation
    (episode,) = read_traces(tmp_path / "eval.jsonl")
    assert episode.metadata == {"split": "eval", "group": 3}
    assert not list(read_traces(tmp_path / "train.jsonl"))


def test_openrlhf_loads_the_installed_file_and_one_of_your_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gem_openrlhf.agent

    monkeypatch.setenv("GEM_OPENRLHF", '{"estimator": "rebn", "max_turns": 4}')
    assert _load_agent_executor(gem_openrlhf.agent.__file__).options.max_turns == 4
    own = tmp_path / "own.py"
    own.write_text(
        "from gem_openrlhf import GemExecutor\n"
        "class AgentExecutor(GemExecutor):\n"
        "    def __init__(self):\n"
        "        super().__init__({'max_turns': 8})\n"
    )
    assert _load_agent_executor(str(own)).options.max_turns == 8


def test_rows_that_cannot_be_played_are_rejected() -> None:
    executor, tokenizer = GemExecutor({}), bpe_tokenizer("chatml")
    arguments = ("p", "", SamplingParams(), 100, tokenizer, None)
    with pytest.raises(ConfigError, match="names no task"):
        asyncio.run(executor.execute(*arguments))
    with pytest.raises(ConfigError, match="images"):
        asyncio.run(executor.execute(*arguments, images=["x.png"]))


def test_a_canceled_episode_leaves_nothing_open() -> None:
    executor, tokenizer = GemExecutor({}), bpe_tokenizer("chatml")
    row = openrlhf_row(TaskRow(env_id=ENV_ID, env_kwargs={}, seed=11, index=3))
    worker, shared = ScriptedWorker(tokenizer, ["5<|im_end|>"]), SamplingParams(max_tokens=32, logprobs=1)

    async def work() -> None:
        await executor.execute(row["input"], row["label"], shared, 400, tokenizer, worker)

    assert cancel_everywhere(work, lambda: executor._player and executor._player._envs) >= 6


def test_a_foreign_agent_has_the_row_of_the_own_loop() -> None:
    pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")
    texts = ["I say \\boxed{5}<|im_end|>", "<think>or 8</think>\n\\boxed{7}<|im_end|>", " 9 <|im_end|>"]
    (native,), worker, _ = play("test:OpenRLHFScripted", texts)
    executor = GemExecutor({"harness": "tests.trainers.talker:talk"})
    (foreign,), other, _ = play("test:OpenRLHFScripted", texts, executor=executor)
    assert [(prompt, ids) for prompt, _, ids in worker.calls] == [(p, ids) for p, _, ids in other.calls]
    assert len(worker.calls) == 3
    for name in ("observation_tokens", "action_ranges", "rollout_log_probs", "reward", "extra_logs"):
        assert native[name] == foreign[name]
    mine, theirs = (played_of(row["label"]) for row in (native, foreign))
    assert mine is not None
    assert theirs is not None
    assert theirs.episode.metadata["gateway"]["recognized"] == 3  # one in the second call, two in the third
    assert mine.episode == replace(theirs.episode, metadata={})
