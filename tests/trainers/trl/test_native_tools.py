"""Native tool calls in TRL, and texts that spell special tokens, in the trainer's own steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from gem_core.rollout import Generation
from gem_lab._engines.sampling import BatchingPolicy
from tests.trainers import forging, tool_episodes
from tests.trainers.evidence import GAMMA, oracle
from tests.trainers.trl import harness


@pytest.mark.parametrize("name", tool_episodes.FORMATS)
def test_tool_episodes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = AutoTokenizer.from_pretrained(harness.MODEL)
    tokenizer.chat_template = tool_episodes.template(name, "<|ROLE|>", "<|end|>")
    scripts = tool_episodes.scripts(name, "<|end|>")
    asked: dict[str, list[list[int]]] = {}

    async def generate(
        self: Any, prompt_ids: Any, *, max_tokens: int, request_id: str, **_: Any
    ) -> Generation:
        prompts = asked.setdefault(request_id, [])
        texts, _ = scripts[list(asked).index(request_id) % len(scripts)]
        prompts.append(list(prompt_ids))
        ids = tokenizer.encode(texts[len(prompts) - 1], add_special_tokens=False)
        return Generation(ids, [-1.0] * len(ids), "stop")

    monkeypatch.setattr(BatchingPolicy, "generate", generate)
    trainer = harness.Spied(
        harness.MODEL,
        args=harness.config(tmp_path, max_steps=1, gradient_accumulation_steps=1, max_completion_length=1500),
        train_dataset=harness.tasks(tool_episodes.ENV, 2),
        processing_class=tokenizer,
        gem=harness.gem(max_tokens_per_turn=400),
    )
    trainer.train()
    (episodes,) = trainer.rollouts
    assert len(episodes) == 4
    rewards = sorted(episode.rewards for episode in episodes)
    assert rewards == sorted(rewards for _, rewards in scripts)
    wanted = dict(
        zip(
            (tuple(episode.rows()[0].response_ids) for episode in episodes),
            oracle([episode.rewards for episode in episodes], GAMMA),
            strict=True,
        )
    )
    rows = [row for loss in trainer.losses for row in harness.rows_of_loss(loss)]
    assert len(rows) == 4
    for row in rows:
        assert harness.turns_of(row) == pytest.approx(wanted[tuple(row.response)], abs=1e-5)
        text = tokenizer.decode(row.response)
        calls, results = text.count("<tool_call>"), text.count(" is empty")
        assert calls == results + text.count("The call was not made")
    prompts = [tokenizer.decode(prompts[-1]) for prompts in asked.values()]
    assert all(prompt.count("Looks into a box.") == 1 for prompt in prompts)
    assert not any("Result of" in prompt for prompt in prompts)


def test_texts_of_an_environment_spell_no_special_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of TRL's step, only the part runs that makes and scores the rows."""
    tokenizer = AutoTokenizer.from_pretrained(harness.MODEL)
    tokenizer.chat_template = tool_episodes.template("hermes", "<|ROLE|>", "<|end|>")

    def play_once(env_id: str, texts: list[str], parse_special: bool) -> forging.Asked:
        asked: dict[str, list[list[int]]] = {}

        async def generate(self: Any, prompt_ids: Any, *, max_tokens: int, request_id: str) -> Generation:
            prompts = asked.setdefault(request_id, [])
            prompts.append(list(prompt_ids))
            ids = tokenizer.encode(texts[len(prompts) - 1], add_special_tokens=False)
            return Generation(ids, [-1.0] * len(ids), "stop")

        monkeypatch.setattr(BatchingPolicy, "generate", generate)
        trainer = harness.Spied(
            harness.MODEL,
            args=harness.config(tmp_path, per_device_train_batch_size=2, max_completion_length=1500),
            train_dataset=harness.tasks(env_id, 1),
            processing_class=tokenizer,
            gem=harness.gem(max_tokens_per_turn=400, parse_special=parse_special),
        )
        trainer.model.train()
        trainer._generate_and_score_completions([trainer.train_dataset[0]] * 2)
        one, other = asked.values()
        assert one == other
        return forging.Asked(one, trainer._metrics["train"]["gem/forged_tokens"][-1])

    forging.check(play_once, tokenizer, "<|end|>")
