"""A small client in GEM's style: with one changed import, its calls work here."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import gem_core as gem
from gem_core import Env, Wrapper, _registration, register
from gem_core.wrappers import ConcatWithAction, EpisodeStatistics
from tests.support import ScriptedEnv

GAMES = (
    *("Crosswords", "FifteenPuzzle", "Game2048", "GuessTheNumber", "Hangman", "Mastermind", "Minesweeper"),
    *("Sokoban", "Sudoku", "TowerofHanoi", "WikiGame", "WordSearch", "Wordle"),
)


class Polite(Wrapper):
    """A wrapper as GEM's users write it: `reset` and `step` in full; `reset` takes a seed but no options."""

    def reset(self, seed: int | None = None) -> Any:  # type: ignore[override]
        observation, info = self.env.reset(seed=seed)
        return f"Please: {observation}", info

    def step(self, action: str) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return f"Please: {observation}", reward, terminated, truncated, info


def play(env: Env, seed: int) -> tuple[float, int]:
    """Play randomly until the end."""
    env.reset(seed)
    total, turns = 0.0, 0
    while True:
        observation, reward, terminated, truncated, _ = env.step(env.sample_random_action())
        assert isinstance(observation, str)
        total += reward
        turns += 1
        if terminated or truncated:
            return total, turns


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("variant", ["", "-easy", "-hard", "-random"])
def test_ids_and_the_episode_loop(game: str, variant: str) -> None:
    env = gem.make(f"game:{game}-v0{variant}")
    assert play(env, 42) == play(env.spawn(), 42)


def test_first_id_of_the_original_readme_is_registered() -> None:
    assert "game:GuessTheNumber-v0" in gem.list_envs()


def test_print_envs(capsys: pytest.CaptureFixture[str]) -> None:
    gem.print_envs()
    printed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert printed == gem.list_envs()


def test_keyword_arguments_override_the_spec() -> None:
    env = gem.make("game:GuessTheNumber-v0-easy", min_number=5, max_number=6, max_turns=3)
    assert "from 5 to 6" in env.reset(seed=0)[0]


def test_register_a_class_or_a_string(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_registration._envs, "_values", _registration._envs.registered())
    register("compat:Class-v0", ScriptedEnv, rewards=[1.0])
    register("compat:String-v0", "tests.support:ScriptedEnv", rewards=[1.0])
    for name in ("Class", "String"):
        assert play(gem.make(f"compat:{name}-v0"), 0) == (1.0, 1)


def test_spawn_state_and_unwrapped() -> None:
    env = gem.make("game:GuessTheNumber-v0")
    env.reset(seed=1)
    env.step(env.sample_random_action())
    action = env.sample_random_action()
    fork = env.spawn(same_state=True)
    other = env.spawn()
    other.set_state(env.get_state())
    assert fork.step(action) == other.step(action) == env.step(action)
    wrapped = EpisodeStatistics(ConcatWithAction(env))
    assert wrapped.unwrapped is env
    assert wrapped.env.env is env


def test_episode_tracking() -> None:
    env = EpisodeStatistics(gem.make("game:Mastermind-v0-easy"))
    total, turns = play(env, 3)
    assert (env.step_counter, env.cumulative_rewards) == (turns, total)
    _, info = env.reset(4)
    assert (info["prev_ep_step_counter"], info["prev_ep_cumulative_rewards"]) == (turns, total)
    assert (env.step_counter, env.cumulative_rewards) == (0, 0.0)


def test_wrappers_that_override_whole_methods() -> None:
    env = Polite(ConcatWithAction(Polite(gem.make("game:GuessTheNumber-v0"))))
    assert env.reset(0)[0].startswith("Please: Please: ")
    assert env.step(r"\boxed{3}")[0].count("Please: ") == 3


@pytest.mark.parametrize("async_mode", [False, True])
def test_make_vec_with_callables_and_vec_kwargs(async_mode: bool) -> None:
    ids = ["game:GuessTheNumber-v0-easy", "game:GuessTheNumber-v0-easy", "game:TowerofHanoi-v0-easy"]
    envs = gem.make_vec(
        ids,
        wrappers=[Polite, partial(ConcatWithAction, max_history=2), EpisodeStatistics],
        vec_kwargs=[{"max_number": 5}, {"max_number": 9, "seed": 7}, {}],
        async_mode=async_mode,
        seed=0,
    )
    with envs:
        assert envs.num_envs == 3
        observations, infos = envs.reset()
        assert "from 1 to 5" in observations[0]
        assert "from 1 to 9" in observations[1]
        assert all(observation.startswith("Please: ") for observation in observations)
        actions = [r"\boxed{1}", r"\boxed{2}", r"\boxed{A C}"]
        observations, rewards, terminated, truncated, infos = envs.step(actions)
        assert len(observations) == len(rewards) == len(terminated) == len(truncated) == len(infos) == 3
        assert infos[2]["step_counter"] == 1
        assert r"\boxed{A C}" in observations[2]


def test_vector_results_do_not_depend_on_async_mode_or_neighbors() -> None:
    def run(ids: list[str], seed: int, async_mode: bool) -> list[Any]:
        with gem.make_vec(ids, async_mode=async_mode, seed=seed) as envs:
            seen = [envs.reset()[0]]
            seen += [envs.step([r"\boxed{4}"] * len(ids))[0] for _ in range(3)]
            return [[observations[-1] for observations in seen]]

    two = ["game:GuessTheNumber-v0", "game:GuessTheNumber-v0"]
    assert run(two, 5, False) == run(two, 5, True) == run(two[:1], 6, False)
