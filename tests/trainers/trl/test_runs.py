"""Runs with failing environments, evaluation, a resumed run, and TRL's own rollouts and advantages."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gem_trl import GemGRPOTrainer, _policies, episode_return, rollout, tasks
from gem_trl._trainer import ScoredRow
from trl import GRPOTrainer

from gem_core.errors import EnvError
from gem_core.rollout import Episode, Generation, Turn, read_traces
from gem_core.rollout._estimator_inputs import EpisodeTurns
from gem_lab._engines.sampling import BatchingPolicy
from tests.trainers import chaos
from tests.trainers.evidence import assert_update_is_right, played
from tests.trainers.trl import harness


def test_environments_that_fail_in_every_way(tmp_path: Path, spy: Path, tokenizer: Any, model: Any) -> None:
    options = harness.gem(
        wrappers="spy",
        on_env_error="retry",
        max_env_retries=1,
        step_timeout=float(chaos.STEP_TIMEOUT),
        traces=str(tmp_path / "traces"),
    )
    trainer = harness.train(
        tmp_path, [chaos.CHAOS, harness.GAME], options=options, per_device_train_batch_size=8, max_steps=2
    )
    traces = list(read_traces(tmp_path / "traces" / "train.jsonl"))
    episodes, failed = played(spy, tokenizer), 0
    for step, (update, metrics) in enumerate(zip(trainer.updates, trainer.logged("gem/return"), strict=True)):
        assert_update_is_right(update, episodes, tokenizer, model)
        chaos.assert_rates_are_right(metrics, [e for e in traces if e.metadata["step"] == step])
        failed += sum(row.is_pad for row in update.rows)
    assert failed == sum(not episode.trainable for episode in traces)
    chaos.assert_every_failure_is_counted(traces, spy)


def test_a_step_without_a_trainable_episode_is_a_clear_error(tmp_path: Path) -> None:
    trainer = harness.Spied(
        harness.MODEL, args=harness.config(tmp_path), train_dataset=tasks("test:Raises", 8), gem=harness.gem()
    )
    # Adam's momentum would move the weights even with a gradient of zero.
    weights = [p.detach().clone() for p in trainer.model.parameters()]
    with pytest.raises(EnvError, match=r"step 1: no episode is trainable: 8 of 8 .* the environment broke"):
        trainer.train()
    assert all(map(torch.equal, weights, trainer.model.parameters()))


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_engine_that_fails_leaves_no_unfinished_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    calls = 0

    async def generate(self: Any, prompt_ids: Any, *, max_tokens: int, request_id: str) -> Generation:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise error("the engine broke")
        await asyncio.sleep(0.01)
        return Generation([5], [-1.0], "length")

    monkeypatch.setattr(BatchingPolicy, "generate", generate)
    trainer = harness.Spied(
        harness.MODEL, args=harness.config(tmp_path), train_dataset=tasks(harness.GAME, 8), gem=harness.gem()
    )
    with pytest.raises(error, match="the engine broke"):
        trainer.train()
    assert not asyncio.all_tasks(trainer.rollout_func._loop._loop)


def test_evaluation_of_several_environments_and_datasets(tmp_path: Path, spy: Path) -> None:
    options = harness.gem(traces=str(tmp_path / "traces"))
    args = harness.config(
        tmp_path,
        max_steps=1,
        eval_strategy="steps",
        eval_steps=1,
        per_device_eval_batch_size=4,
        num_generations_eval=1,
    )
    sets = {
        "mix": tasks([harness.GAME, harness.OTHER], 10, split="eval"),
        "few": tasks(harness.GAME, 3, split="eval"),
    }
    trainer = GemGRPOTrainer(
        harness.MODEL, args=args, train_dataset=tasks(harness.GAME, 8), eval_dataset=sets, gem=options
    )
    trainer.train()
    episodes = list(read_traces(tmp_path / "traces" / "eval.jsonl"))
    assert len(episodes) == 13
    logged = {k: v for entry in trainer.state.log_history for k, v in entry.items() if k.startswith("eval_")}
    for env in (harness.GAME, harness.OTHER):
        mine = [e.total_reward for e in episodes[:10] if e.env_id == env]
        assert len(mine) == 5
        assert logged[f"eval_mix_{env}/gem/return"] == pytest.approx(sum(mine) / 5)
    total = [e.total_reward for e in episodes[:10]]
    assert logged["eval_mix_gem/return"] == pytest.approx(sum(total) / 10)
    assert logged["eval_few_gem/return"] == pytest.approx(sum(e.total_reward for e in episodes[10:]) / 3)
    assert not any(key.startswith("eval_few_") and harness.OTHER in key for key in logged)
    (trained,) = [entry for entry in trainer.state.log_history if "gem/return" in entry]
    assert trained["gem/error_rate"] == 0
    returned = trainer.evaluate(sets["few"])
    last = list(read_traces(tmp_path / "traces" / "eval.jsonl"))[13:]
    assert returned["eval_gem/return"] == pytest.approx(sum(e.total_reward for e in last) / 3)


def test_a_failing_evaluation_does_not_stop_the_run(tmp_path: Path) -> None:
    trainer = GemGRPOTrainer(
        harness.MODEL,
        args=harness.config(tmp_path, per_device_eval_batch_size=2, num_generations_eval=1),
        train_dataset=tasks(harness.GAME, 8),
        eval_dataset=tasks("test:Raises", 4, split="eval"),
        gem=harness.gem(),
    )
    assert trainer.evaluate()["eval_gem/error_rate"] == 1


def test_episodes_that_ranks_repeat_at_the_end_count_once(tmp_path: Path) -> None:
    trainer = GemGRPOTrainer(
        harness.MODEL, args=harness.config(tmp_path), train_dataset=tasks(harness.GAME, 4), gem=harness.gem()
    )
    played = [
        Episode("game", seed, [Turn([1], [2], None, reward, "", "", "stop")], True, False, "terminated")
        for seed, reward in enumerate([1.0, 2.0, 3.0, 1.0])
    ]
    rows = [ScoredRow("game", EpisodeTurns([], []), "", episode) for episode in played]
    trainer._evaluation, trainer._evaluated = ("eval_one", 3), rows
    logs = {"eval_one_runtime": 1.0}
    trainer.log(logs)
    assert logs["eval_one_gem/return"] == logs["eval_one_game/gem/return"] == 2.0
    later = {"loss": 0.5}
    trainer.log(later)
    assert not any("gem/" in name for name in later)


def test_the_limits_of_a_response_and_of_a_whole_episode(tmp_path: Path, spy: Path) -> None:
    """A long prompt leaves less than ``max_completion_length``."""
    trainer = harness.train(
        tmp_path,
        ["test:Endless", "test:Endless(asked=12)"],
        options=harness.gem(max_total_tokens=200, wrappers="spy"),
        max_steps=1,
        max_completion_length=100,
    )
    (episodes,) = trainer.rollouts
    assert {episode.stop_reason for episode in episodes} == {"token_budget"}
    rows = {bool(episode.env_kwargs): episode.rows()[0] for episode in episodes}
    assert rows.keys() == {False, True}
    assert len(rows[False].response_ids) <= 100 < len(rows[True].prompt_ids)
    assert len(rows[True]) <= 200


def test_a_resumed_run_plays_the_same_episodes(tmp_path: Path) -> None:
    options = harness.gem()
    whole = harness.train(tmp_path, options=options, max_steps=3, save_strategy="steps", save_steps=2)
    shutil.rmtree(tmp_path / "out" / "checkpoint-3")
    args = harness.config(tmp_path, max_steps=3)
    again = harness.Spied(harness.MODEL, args=args, train_dataset=tasks(harness.GAME, 64), gem=options)
    again.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))

    def tokens(rollouts: Any) -> list[list[list[int]]]:
        return [[episode.rows()[0].token_ids for episode in episodes] for episodes in rollouts]

    assert tokens(again.rollouts) == tokens(whole.rollouts[2:])


def test_the_rollout_alone_in_trls_own_trainer(tmp_path: Path, spy: Path) -> None:
    played_by = rollout(harness.gem(wrappers="spy"))
    losses: list[Any] = []

    class Stock(GRPOTrainer):  # type: ignore[misc]
        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            losses.append(inputs["advantages"])
            return super()._compute_loss(model, inputs)

    trainer = Stock(
        harness.MODEL,
        reward_funcs=episode_return,
        args=harness.config(tmp_path, max_steps=1),
        train_dataset=tasks([harness.GAME, "test:Raises"], 8),
        rollout_func=played_by,
    )
    trainer.train()
    (entry,) = [e for e in trainer.state.log_history if "reward" in e]
    returns = [e.total_reward for e in played_by.episodes if e.trainable]
    assert 0 < len(returns) < 8  # TRL leaves the failed ones out of its statistics
    assert entry["reward"] == pytest.approx(sum(returns) / len(returns), abs=1e-6)
    assert losses
    assert all(advantages.dim() == 1 for advantages in losses)


TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' + tone + ' ' + style }}{% endif %}"
)


def test_what_shapes_prompt_and_response_reaches_the_engine(tmp_path: Path, spy: Path) -> None:
    """Template variables of TRL and GEM, system prompt, the given tokenizer's template, and limits."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(harness.MODEL)
    tokenizer.chat_template = TEMPLATE
    args = harness.config(tmp_path, max_steps=1, chat_template_kwargs={"tone": "calm"})
    options = harness.gem(
        system_prompt="Play to win.",
        template_kwargs={"style": "brief"},
        wrappers="spy",
        max_turns=2,
        max_tokens_per_turn=5,
    )
    trainer = harness.Spied(
        harness.MODEL,
        args=args,
        train_dataset=tasks("math:Arithmetic-v0-retry", 8),  # goes on after any wrong answer
        gem=options,
        processing_class=tokenizer,
    )
    trainer.train()
    requests = [json.loads(line) for line in (spy / "engine.jsonl").read_text().splitlines()]
    assert len(requests) == 16
    for request in requests:
        text = tokenizer.decode(request["prompt"])
        assert text.startswith("<|system|>Play to win.<|end|><|user|>")
        assert text.endswith("<|assistant|>calm brief")
    assert max(len(request["response"]) for request in requests) == 5
    trained = {tuple(row.prompt) for loss in trainer.losses for row in harness.rows_of_loss(loss)}
    assert trained == {
        tuple(r["prompt"]) for r in requests if tokenizer.decode(r["prompt"]).count("calm") == 1
    }


@pytest.mark.parametrize("ends", [[4, 40], [41, 4, 42], 4], ids=str)
def test_every_end_token_of_the_model_ends_a_response(
    ends: Any, tmp_path: Path, spy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[set[int]] = []
    original = BatchingPolicy.__init__

    def noted(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        asked.append(set(self.eos_token_ids))

    monkeypatch.setattr(BatchingPolicy, "__init__", noted)
    trainer = harness.Spied(
        harness.MODEL, args=harness.config(tmp_path, max_steps=1), train_dataset=tasks(harness.GAME, 8),
        gem=harness.gem(wrappers="spy"),
    )  # fmt: skip
    trainer.model.generation_config.eos_token_id = ends
    trainer.train()
    assert asked == [{4, *(ends if isinstance(ends, list) else [ends])}]
    found = {
        turn.response_ids[-1] for e in trainer.rollouts[0] for turn in e.turns if turn.finish_reason == "stop"
    }
    assert found <= asked[0]


class Colocated:
    """The parts of TRL's vLLM engine that a rollout uses, without vLLM."""

    temperature, top_p, top_k, min_p, repetition_penalty = 1.0, 1.0, 0, None, 1.0
    generation_kwargs: dict[str, Any] = {}  # noqa: RUF012
    llm = SimpleNamespace(llm_engine=None)

    def sync_weights(self) -> None:
        pass


def with_vllm(trainer: harness.Spied, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Let a trainer sample as with vLLM, with `harness.answer_by_row`'s tokens; return vLLM's arguments."""
    made: list[dict[str, Any]] = []

    class Stepped:
        def __init__(self, engine: Any, sampling: dict[str, Any], **options: Any) -> None:
            made.append({**sampling, **options})

        async def generate(self, prompt_ids: Any, **options: Any) -> Generation:
            return await BatchingPolicy.generate(self, prompt_ids, **options)  # type: ignore[arg-type]

    harness.answer_by_row(monkeypatch)
    monkeypatch.setattr(_policies, "SteppedVllmPolicy", Stepped)
    trainer.use_vllm, trainer.vllm_generation, trainer._last_loaded_step = True, Colocated(), 0
    return made


@pytest.mark.parametrize(("limit", "own"), [(130, None), (200, 130), (130, 200)])
def test_the_shortest_limit_of_tokens_applies(
    limit: int, own: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's limit and gem-core's apply to an episode that would be longer."""
    trainer = harness.Spied(
        harness.MODEL,
        args=harness.config(
            tmp_path, max_steps=1, vllm_max_model_length=limit, vllm_importance_sampling_correction=False
        ),
        train_dataset=tasks("test:Endless", 8),
        gem=harness.gem(max_total_tokens=own),
    )
    made = with_vllm(trainer, monkeypatch)
    trainer.train()
    assert made[0]["min_p"] == 0.0
    (episodes,) = trainer.rollouts
    assert {episode.stop_reason for episode in episodes} == {"token_budget"}
    assert 100 < max(len(episode.rows()[0]) for episode in episodes) <= 130


def test_an_episode_that_trl_masks_is_in_no_statistic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default TRL drops an episode whose importance ratio is above 3, after it has made the rows."""
    trainer = harness.Spied(
        harness.MODEL,
        args=harness.config(tmp_path, max_steps=1, loss_type="grpo", per_device_train_batch_size=8),
        train_dataset=tasks("test:Endless", 8),
        gem=harness.gem(estimator="reinforce", max_turns=2),
    )
    with_vllm(trainer, monkeypatch)
    answer = BatchingPolicy.generate
    rare = {f"train/0/1/0/{row}" for row in (1, 6, 7, 12)}

    async def generate(self: Any, prompt_ids: Any, *, max_tokens: int, request_id: str) -> Generation:
        made = await answer(self, prompt_ids, max_tokens=max_tokens, request_id=request_id)
        ids = torch.tensor([[*prompt_ids, *made.token_ids]])
        with torch.no_grad():
            logps = trainer.model(ids).logits[0, len(prompt_ids) - 1 : -1].log_softmax(-1)
        sampled = [float(row[token]) for row, token in zip(logps, made.token_ids, strict=True)]
        if request_id in rare:
            sampled = [value - 5.0 for value in sampled]
        return Generation(made.token_ids, sampled, made.finish_reason)

    monkeypatch.setattr(BatchingPolicy, "generate", generate)
    assert trainer.args.vllm_importance_sampling_mode == "sequence_mask"
    trainer.vllm_importance_sampling_correction = True
    trainer.train()
    (entry,) = trainer.logged("gem/return")
    assert (entry["gem/played/test:Endless"], entry["gem/failed/test:Endless"]) == (12, 4)
    assert (entry["rebn/turns"], entry["gem/error_rate"]) == (24, 0)
    masks = [loss["completion_mask"] * loss["tool_mask"] for loss in trainer.losses]
    ratios = torch.cat([loss["importance_sampling_ratio"][:, 0] for loss in trainer.losses])
    assert torch.equal(torch.cat([mask.any(1) for mask in masks]), ratios > 0)
    assert int((ratios > 0).sum()) == 12
    counted = {float(loss["num_items_in_batch"]) for loss in trainer.losses}
    assert counted == {float(sum(mask.sum() for mask in masks))}


def test_a_model_card_names_the_estimator(tmp_path: Path) -> None:
    options = harness.gem()
    harness.train(tmp_path, options=options, max_steps=1, save_strategy="steps", save_steps=1)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "trained with rebn, an estimator of gem-core." in card
    assert "GRPO" not in card
    assert "- grpo\n" not in card
    assert "- trl\n" in card
    assert GRPOTrainer._name == "GRPO"


def test_a_notebook_with_a_running_loop(tmp_path: Path) -> None:
    async def cell() -> Any:
        return harness.train(tmp_path, max_steps=1, options=harness.gem())

    assert [len(episodes) for episodes in asyncio.run(cell()).rollouts] == [8]
