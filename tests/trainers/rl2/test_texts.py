"""rl-square 0.0.2: a stub of RL2's loop drives an environment with texts."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gem_rl2._rows import rl2_row
from gem_rl2._session import Session
from gem_rl2._texts import read_response

import gem_core
from gem_chat import AppendContext
from gem_core import Env
from gem_core.errors import ConfigError, PolicyError
from gem_core.rollout import read_traces
from gem_core.tasks import TaskRow
from tests.support import ForgingEnv, ScriptedEnv
from tests.trainers.rl2.configs import gem_config

pytestmark = pytest.mark.imports("index")
END = "<|end|>"


class NeverReady(Env):
    """Raises in reset."""

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        raise RuntimeError("no server")

    def step(self, action: str) -> Any:
        raise AssertionError


class NeverBuilt(NeverReady):
    """Raises in its constructor."""

    def __init__(self) -> None:
        raise RuntimeError("no client")


@pytest.fixture(scope="module", autouse=True)
def environments() -> None:
    gem_core.register("rl2texts:Scripted", ScriptedEnv)
    gem_core.register("rl2texts:Forging", ForgingEnv)
    gem_core.register("rl2texts:Failing", ScriptedEnv, fail_at=1)
    gem_core.register("rl2texts:NeverReady", NeverReady)
    gem_core.register("rl2texts:NeverBuilt", NeverBuilt)


def session(tiny: Path, *overrides: str) -> Session:
    config, upstream = gem_config(f"actor.model_name={tiny}", *overrides)
    return Session(config, upstream)


def rollout(
    playing: Session, env: str, responses: list[str], tokenizer: Any, max_turns: int = 8
) -> dict[str, Any]:
    """Act like RL2's loop: make the same calls and append tokens in the same way, with given responses."""
    row = rl2_row(TaskRow(env_id=env, env_kwargs={}, seed=7, index=3))
    encode: Callable[[str], list[int]] = lambda text: tokenizer.encode(text, add_special_tokens=False)  # noqa: E731

    async def play() -> dict[str, Any]:
        state, extra = await playing.reset(row["extra_info"])
        rows, rewards, score = [[(token, 0) for token in encode(state)]], [], 0.0
        for turn, response in enumerate(itertools.cycle(responses), start=1):
            answer = await playing.step(state, response, extra)
            rows[-1] += [(token, 1) for token in encode(response)]
            rewards.append(answer["reward"])
            score += answer["score"]
            if turn == max_turns or answer["done"]:
                return {"rows": rows, "rewards": rewards, "score": score, "done": answer["done"]}
            if answer["next_state"].startswith(state + response):
                rows[-1] += [(token, 0) for token in encode(answer["next_state"][len(state + response) :])]
            else:
                rows.append([(token, 0) for token in encode(answer["next_state"])])
            state, extra = answer["next_state"], answer["extra_info"]
        raise AssertionError

    return asyncio.run(play())


def test_tokens_match_the_context(tiny: Path, tokenizer: Any) -> None:
    playing = session(tiny)
    made = rollout(playing, "rl2texts:Scripted", ["one" + END, "two" + END], tokenizer)
    assert made["rewards"] == [0.0, 0.5, 1.0]
    assert (made["score"], made["done"]) == (1.5, True)
    context = AppendContext(tokenizer)
    ids = [token for token, _ in made["rows"][0]]
    text = tokenizer.decode(ids)
    assert END + END not in text
    env = gem_core.make("rl2texts:Scripted")
    first, _ = env.reset(seed=7)
    wanted = context.first(first)
    for response in ("one", "two", "one"):
        sampled = tokenizer.encode(response + END, add_special_tokens=False)
        observation, _, terminated, _, _ = env.step(response)
        wanted += sampled if terminated else sampled + context.extend(observation, sampled)
    assert ids == wanted


def test_the_trace_has_the_tokens_of_rl2(tiny: Path, tokenizer: Any, tmp_path: Path) -> None:
    playing = session(tiny, f"+gem.traces={tmp_path}")
    made = rollout(playing, "rl2texts:Forging", ["one" + END], tokenizer)
    playing.report("train", 1)
    (episode,) = read_traces(tmp_path / "train.jsonl")
    tokens = [token for turn in episode.turns for token in (*turn.context_ids, *turn.response_ids)]
    assert tokens == [token for token, _ in made["rows"][0]]
    assert "<\u2060|end|>" in tokenizer.decode(episode.turns[1].context_ids)


def test_a_text_without_its_end_was_cut(tiny: Path, tokenizer: Any, tmp_path: Path) -> None:
    playing = session(tiny, f"+gem.traces={tmp_path}")
    made = rollout(playing, "rl2texts:Scripted", ["one", "two" + END], tokenizer)
    text = tokenizer.decode([token for token, _ in made["rows"][0]])
    assert "one" + END in text  # closed by the context
    metrics = playing.report("train", 4)
    (episode,) = read_traces(tmp_path / "train.jsonl")
    assert [turn.action for turn in episode.turns] == ["", "two", ""]
    assert [turn.info.get("invalid") for turn in episode.turns] == ["length", None, "length"]
    assert (episode.seed, episode.metadata["step"], episode.metadata["index"]) == (7, 4, 3)
    assert metrics["gem/format_error_rate"] == pytest.approx(2 / 3)
    assert metrics["gem/return"] == 1.5
    assert playing.report("train", 5) == {"gem/filled": 0.0}


def test_every_stop_of_the_engine_ends_a_response(tiny: Path, tokenizer: Any, tmp_path: Path) -> None:
    """The user's stop tokens and strings, of either split, as well as the end of a turn."""
    (own,) = tokenizer.encode("7", add_special_tokens=False)
    playing = session(
        tiny,
        f"+rollout.train_sampling_params.stop_token_ids=[{own}]",
        "+rollout.test_sampling_params.stop=[';']",
        f"+gem.traces={tmp_path}",
    )
    made = rollout(playing, "rl2texts:Scripted", ["one 7", "two;", "three"], tokenizer)
    assert made["done"]
    playing.report("train", 1)
    (episode,) = read_traces(tmp_path / "train.jsonl")
    assert [turn.finish_reason for turn in episode.turns] == ["stop", "stop", "length"]


def test_a_stop_token_outside_the_vocabulary_ends_nothing(tiny: Path, tmp_path: Path) -> None:
    """It has no text, and each text ends with an empty one."""
    model = shutil.copytree(tiny, tmp_path / "model")
    ends = json.loads((tiny / "generation_config.json").read_text())["eos_token_id"]
    more = [*(ends if isinstance(ends, list) else [ends]), 10**6]
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": more}))
    playing = session(model)
    assert 10**6 in playing._player.stop_ids
    assert read_response("one", playing._tokenizer, playing._stop_texts).finish_reason == "length"
    assert read_response("one" + END, playing._tokenizer, playing._stop_texts).finish_reason == "stop"


def test_both_limits_of_turns_end_an_episode(tiny: Path, tokenizer: Any) -> None:
    playing = session(tiny, "rollout.max_turns=2")
    made = rollout(playing, "rl2texts:Scripted", ["one" + END], tokenizer, max_turns=2)
    assert made["done"]
    assert playing.report("train", 1)["gem/truncation_rate"] == 1
    playing = session(tiny, "+gem.max_turns=1")
    assert len(rollout(playing, "rl2texts:Scripted", ["one" + END], tokenizer)["rewards"]) == 1


def test_rebuilt_prompts_are_rows_of_their_own(tiny: Path, tokenizer: Any) -> None:
    playing = session(tiny, "+gem.context=rebuild")
    made = rollout(playing, "rl2texts:Scripted", ["one" + END], tokenizer)
    assert len(made["rows"]) == 3
    assert made["rewards"] == [0.0, 0.5, 1.0]


@pytest.mark.parametrize(("env", "turns"), [("Failing", 2), ("NeverReady", 1), ("NeverBuilt", 1)])
def test_a_failing_environment_ends_its_trajectory_in_nan(
    tiny: Path, tokenizer: Any, env: str, turns: int
) -> None:
    playing = session(tiny)
    made = rollout(playing, f"rl2texts:{env}", ["one" + END], tokenizer)
    assert made["done"]
    assert len(made["rewards"]) == turns
    assert math.isnan(made["rewards"][-1])
    assert math.isnan(made["score"])
    name = f"rl2texts:{env}"
    counts = {f"gem/played/{name}": 0.0, f"gem/failed/{name}": 1.0, "gem/filled": 0.0}
    assert playing.report("train", 1) == {"gem/error_rate": 1.0, "gem/retry_rate": 0.0, **counts}


def test_a_response_without_a_token_and_a_row_with_a_prompt_are_rejected(tiny: Path) -> None:
    playing = session(tiny)

    async def step(text: str) -> None:
        state, extra = await playing.reset(
            rl2_row(TaskRow(env_id="rl2texts:Scripted", env_kwargs={}, seed=0, index=0))["extra_info"]
        )
        await playing.step(state, text, extra)

    with pytest.raises(PolicyError, match="without a token"):
        asyncio.run(step(""))
    with pytest.raises(ConfigError, match="has its own prompt"):
        asyncio.run(playing.step("Guess.", "5" + END, {}))
    with pytest.raises(ConfigError, match=r"env_id is missing; generate the data with `gem-core export"):
        asyncio.run(playing.reset({}))


def test_64_episodes_at_once_do_not_mix(tiny: Path) -> None:
    playing = session(tiny)

    async def one(number: int) -> float:
        task = TaskRow(env_id="game:GuessTheNumber-v0-easy", env_kwargs={}, seed=number, index=number)
        state, extra = await playing.reset(rl2_row(task)["extra_info"])
        env = gem_core.make(task["env_id"])
        env.reset(seed=number)
        total = 0.0
        for guess in itertools.cycle(range(1, 11)):
            action = f"\\boxed{{{guess}}}"
            answer = await playing.step(state, action + END, extra)
            _, reward, terminated, truncated, _ = env.step(action)
            assert answer["reward"] == reward
            total += reward
            if answer["done"] or terminated or truncated:
                return total
            state, extra = answer["next_state"], answer["extra_info"]
        raise AssertionError

    async def all_of_them() -> list[float]:
        return await asyncio.gather(*map(one, range(64)))

    totals = asyncio.run(all_of_them())
    assert len(set(totals)) > 1
    assert playing.report("train", 1)["gem/return"] == pytest.approx(sum(totals) / 64)
