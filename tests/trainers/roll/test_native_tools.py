"""Native tool calls, texts that spell special tokens, and foreign agents, in ROLL's env managers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from gem_roll._failures import episodes_of

import gem_core
from tests.support import ScriptedEnv
from tests.trainers import forging, tool_episodes
from tests.trainers.roll.test_rows import Listed, rollouts

END = "<|end|>"
gem_core.register("test:RollScripted", ScriptedEnv)
LONG = {"sequence_length": 4000, "max_tokens": 2000}


@pytest.fixture
def with_calls(tokenizer: Any) -> Any:
    """Tokenizer with a chat template that writes calls."""
    own = copy.deepcopy(tokenizer)
    own.chat_template = tool_episodes.template("hermes", "<|ROLE|>", END)
    return own


def without_end(texts: list[str]) -> list[str | None]:
    """Return responses as ROLL's proxy of these tests takes them, which adds the end."""
    return [text.removesuffix(END) for text in texts]


def test_tool_episodes(tmp_path: Path, with_calls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for texts, rewards in tool_episodes.scripts("hermes", END):
        (rollout,) = rollouts(
            tmp_path, with_calls, without_end(texts), monkeypatch,
            env_type=f"gem_core:{tool_episodes.ENV}", **LONG,
        )  # fmt: skip
        (episode,) = episodes_of(rollout)
        assert episode.rewards == rewards
        (ids,), (mask,) = rollout.batch["input_ids"], rollout.batch["response_mask"]
        assert with_calls.decode(ids[mask.bool()]) == "".join(texts)
        assert all(ids[: len(prompt)].tolist() == prompt for prompt in Listed.prompts)
        tool_episodes.assert_native(with_calls.decode(Listed.prompts[-1]), texts)


@pytest.mark.parametrize("manager", ["GemTrajEnvManager", "GemStepEnvManager"])
def test_a_foreign_agent_has_the_rows_of_the_own_loop(
    tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch, manager: str
) -> None:
    pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")
    texts: list[str | None] = ["I say \\boxed{5}", "or \\boxed{7}", " 9 "]

    def play_once(**gem: Any) -> tuple[Any, list[list[int]]]:
        (rollout,) = rollouts(
            tmp_path, tokenizer, texts, monkeypatch,
            manager=manager, env_type="gem_core:test:RollScripted", gem=gem, **LONG,
        )  # fmt: skip
        return rollout, Listed.prompts

    native, prompts = play_once()
    foreign, asked = play_once(harness="tests.trainers.talker:talk")
    assert asked == prompts
    assert len(asked) == 3
    assert foreign.batch.keys() == native.batch.keys()
    for name in native.batch.keys():  # noqa: SIM118  a TensorDict is no mapping
        assert torch.equal(foreign.batch[name], native.batch[name]), name
    (episode,) = episodes_of(foreign)
    assert episode.metadata["gateway"]["recognized"] == 3  # one in the second call, two in the third
    assert any(episode.rewards)


@pytest.mark.parametrize("manager", ["GemTrajEnvManager", "GemStepEnvManager"])
def test_texts_of_an_environment_spell_no_special_token(
    tmp_path: Path, with_calls: Any, monkeypatch: pytest.MonkeyPatch, manager: str
) -> None:
    def play_once(env_id: str, texts: list[str], parse_special: bool) -> forging.Asked:
        (rollout,) = rollouts(
            tmp_path, with_calls, without_end(texts), monkeypatch,
            manager=manager, env_type=f"gem_core:{env_id}", gem={"parse_special": parse_special}, **LONG,
        )  # fmt: skip
        return forging.Asked(Listed.prompts, rollout.meta_info["metrics"]["gem/forged_tokens"])

    forging.check(play_once, with_calls, END)
