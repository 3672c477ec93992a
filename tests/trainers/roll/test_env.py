"""Our environments in gem-llm's `gem.make`, stepped like in ROLL's env managers. Needs no ROLL."""

from __future__ import annotations

import os
import threading
import time
from collections import UserDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gem
import pytest
from gem.envs.registration import ENV_REGISTRY
from gem_roll.env import PREFIX, GemEnv, read_env_type, register

import gem_core
from gem_core.core import Env
from gem_core.errors import ConfigError, UnknownEnv
from tests.support import ImageEnv

GUESS = "game:GuessTheNumber-v0-easy"
ROLL_FIELDS = {
    "observation", "actions_left", "messages", "reward", "llm_response", "prompt_ids", "response_ids",
    "infer_logprobs", "suffix", "use_tool", "state_hash", "action_content",
}  # fmt: skip
"""Fields of the history into which ROLL copies every info."""


class Counting(Env):
    """Takes three steps; its info contains many names that ROLL uses."""

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.begin_episode(seed)
        self.actions: list[str] = []
        return "Count.", {"suffix": "Now."}

    def step(self, action: str) -> Any:
        self.actions.append(action)
        done = len(self.actions) == 3
        info = {"reward": 99.0, "messages": "x", "suffix": "Next.", "use_tool": True}
        info["metrics"] = {"seen": 2, "no": None}
        info |= {"success": True} if done else {}
        return "Go on.", 1, done, False, info


@pytest.fixture(autouse=True, scope="module")
def known() -> None:
    gem_core.register("test:Counting", Counting)


def made(env_id: str = GUESS, **config: Any) -> Any:
    """Return an environment as ROLL's env managers create it."""
    return gem.make(env_id=register(env_id), **config)


def test_ours_stand_beside_those_of_gem_llm() -> None:
    theirs, ours = gem.make(GUESS), made()
    assert type(theirs).__module__.startswith("gem.envs")
    assert isinstance(ours, GemEnv)
    assert ours.env_id == PREFIX + GUESS
    assert "gem_core" not in Path(gem.__file__).parts
    assert not hasattr(gem, "__path__") or all("gem_core" not in Path(p).parts for p in gem.__path__)


def test_registering_again_changes_nothing() -> None:
    first = ENV_REGISTRY[register(GUESS)]
    assert ENV_REGISTRY[register(GUESS)] is first


def test_threads_register_an_environment_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register like ROLL's env managers, many of which run concurrently in a worker."""
    original = gem.register

    def slow(*args: Any, **kwargs: Any) -> None:
        time.sleep(0.05)
        original(*args, **kwargs)

    monkeypatch.setattr(gem, "register", slow)
    id = "game:TowerofHanoi-v0-hard"
    monkeypatch.delitem(ENV_REGISTRY, PREFIX + id, raising=False)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(register, [id] * 4)) == [PREFIX + id] * 4


def test_an_unknown_id_has_neighbors() -> None:
    with pytest.raises(UnknownEnv, match=r"Did you mean game:GuessTheNumber"):
        register("game:GuesTheNumber-v0-easy")


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(ConfigError, match="accepted keyword arguments"):
        made(high=4).build()


@pytest.mark.parametrize("text", [GUESS, "sokoban", "None"])
def test_an_environment_of_somebody_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"write {PREFIX}<id>"):
        read_env_type(text, "custom_envs.Guess.env_type")


def test_the_reset_brings_the_instruction() -> None:
    observation, info = made().reset(seed=3)
    wanted, _ = gem_core.make(GUESS).reset(seed=3)
    assert observation == ""
    assert info["env_instruction"].startswith(str(wanted))
    assert info["metrics"] == {}
    assert not ROLL_FIELDS & info.keys()


def test_the_info_is_no_field_of_rolls_history() -> None:
    env = made("test:Counting")
    _, info = env.reset(seed=0)
    assert info["env_instruction"] == "Count.\nNow."
    for _ in range(3):
        observation, reward, terminated, truncated, info = env.step(action="a")
        assert (observation, reward) == ("Go on.\nNext.", 1.0)
        assert not ROLL_FIELDS & info.keys()
        assert all(type(value) is float for value in info["metrics"].values())
    assert (terminated, truncated) == (True, False)
    assert info["metrics"] == {"seen": 2.0, "action_is_valid": 1.0, "format_error": 0.0, "success": 1.0}
    assert info["metrics_agg_mode"]["success"] == "last"


def test_a_limit_ends_the_episode() -> None:
    env = made("test:Counting", wrappers="time_limit(max_turns=2)")
    env.reset(seed=0)
    assert env.step(action="a")[2:4] == (False, False)
    assert env.step(action="a")[2:4] == (True, True)


@pytest.mark.parametrize("end", ["<|im_end|>", "<|im_end|>\n<|endoftext|>", "</s>", " <end_of_turn>\n", ""])
def test_special_tokens_are_no_part_of_an_action(end: str) -> None:
    env = made("test:Counting")
    env.reset(seed=0)
    env.step(action=f"x <|y|> z{end}")
    assert env.build().actions == ["x <|y|> z"]


def test_the_arguments_may_come_from_a_yaml() -> None:
    """OmegaConf passes its own dicts and lists."""
    assert "from 1 to 30 " in made(max_number=30).reset(seed=0)[1]["env_instruction"]
    gem_core.register("test:Keeping", Keeping)
    kept = made("test:Keeping", nested=UserDict({"a": UserDict({"b": (1, 2)})})).build().nested
    assert (type(kept), kept) == (dict, {"a": {"b": [1, 2]}})


class Keeping(Counting):
    """Stores an argument."""

    def __init__(self, nested: Any = None) -> None:
        self.nested = nested


def test_threads_do_not_disturb_each_other() -> None:
    """ROLL steps the environments of a worker in threads; an episode depends only on its seed."""

    def play(seed: int) -> list[Any]:
        env = made("game:Minesweeper-v0-easy")
        seen = [env.reset(seed=seed)[1]["env_instruction"]]
        for _ in range(20):
            step = env.step(action=env.build().sample_random_action())
            seen.append(step[:4])
            if step[2]:
                break
        return seen

    alone = [play(seed) for seed in range(8)]
    together: dict[int, list[Any]] = {}
    start = threading.Barrier(8)

    def run(seed: int) -> None:
        start.wait()
        for _ in range(5):
            together[seed] = play(seed)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[seed] for seed in range(8)] == alone
    assert len({str(episode) for episode in alone}) > 1


@pytest.mark.skipif(not os.environ.get("ROLL_HOME"), reason="ROLL_HOME names no checkout of ROLL")
def test_roll_imports_the_same_gem() -> None:
    import roll.pipeline.agentic.env

    assert roll.pipeline.agentic.env.gem is gem


def test_images_are_refused_when_the_env_is_built() -> None:
    gem_core.register("test:RollImages", ImageEnv)
    with pytest.raises(
        ConfigError, match="test:RollImages shows images, but ROLL's env managers support text"
    ):
        GemEnv("test:RollImages").build()
