"""Native tool calls in verl, and texts that spell special tokens, in verl's agent loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from verl import DataProto
from verl.trainer.ppo.ray_trainer import compute_advantage

from tests.rollout.tokenizers import bpe_tokenizer
from tests.trainers import forging, tool_episodes
from tests.trainers.verl.configs import verl_config
from tests.trainers.verl.test_estimators import oracle
from tests.trainers.verl.test_loop import play, queue

assert queue  # a fixture
LONG = ("data.max_response_length=2000", "data.max_prompt_length=2000")


@pytest.mark.parametrize("name", tool_episodes.FORMATS)
def test_tool_episodes(name: str) -> None:
    template = tool_episodes.template(name, "<|im_start|>ROLE\n", "<|im_end|>")
    tokenizer = bpe_tokenizer("chatml", chat_template=template)
    scripts = tool_episodes.scripts(name, "<|im_end|>")
    rows = []
    for texts, rewards in scripts:
        (row,), server, _ = play(tool_episodes.ENV, texts, *LONG, tokenizer=tokenizer)
        rows.append(row)
        assert len(server.calls) == len(texts)
        prompt, _, response = server.calls[-1]
        assert [*row.prompt_ids, *row.response_ids] == [*prompt, *response]
        tool_episodes.assert_native(tokenizer.decode(prompt), texts)
        assert row.reward_score == pytest.approx(sum(rewards))
        sampled = [id for id, on in zip(row.response_ids, row.response_mask, strict=True) if on]
        assert sampled == [id for _, _, ids in server.calls for id in ids]
    width = max(len(row.response_ids) for row in rows)
    scores, mask = torch.zeros(len(rows), width), torch.zeros(len(rows), width, dtype=torch.long)
    for index, row in enumerate(rows):
        found = row.as_dict()["rm_scores"]
        scores[index, : len(row.response_ids)] = found[: len(row.response_ids)]
        mask[index, : len(row.response_ids)] = torch.tensor(row.response_mask)
    algorithm = verl_config("algorithm.adv_estimator=rebn", "algorithm.gamma=0.5").algorithm
    data = DataProto.from_dict(
        tensors={"token_level_rewards": scores, "response_mask": mask},
        non_tensors={"uid": np.array(["a"] * len(rows), dtype=object)},
    )
    result = compute_advantage(data, adv_estimator="rebn", gamma=0.5, config=algorithm).batch["advantages"]
    starts = [
        (index, place)
        for index in range(len(rows))
        for place in range(width)
        if mask[index, place] and not (place and mask[index, place - 1])
    ]
    wanted = oracle([rewards for _, rewards in scripts], 0.5)
    assert [float(result[place]) for place in starts] == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("context", ["append", "rebuild"])
def test_texts_of_an_environment_spell_no_special_token(context: str) -> None:
    tokenizer = bpe_tokenizer("chatml", tool_episodes.template("hermes", "<|im_start|>ROLE\n", "<|im_end|>"))

    def play_once(env_id: str, texts: list[str], parse_special: bool) -> forging.Asked:
        rows, server, _ = play(
            env_id, texts, *LONG, f"+gem.context={context}", f"+gem.parse_special={parse_special}",
            tokenizer=tokenizer,
        )  # fmt: skip
        info = rows[0].as_dict()["extra_fields"]["reward_extra_info"]
        return forging.Asked([prompt for prompt, _, _ in server.calls], info["gem/forged_tokens"])

    forging.check(play_once, tokenizer, "<|im_end|>", native=context == "append")
