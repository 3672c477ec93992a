"""TextArena's games here, compared with the same games played through TextArena's own interface."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

import gem_core
from gem_core.errors import ConfigError, DataError, EnvError
from gem_lab import check_env

ta = pytest.importorskip("textarena")
from gem_bridges.textarena._samples import draw_action  # noqa: E402

SOLO = ["GuessTheNumber-v0", "TowerOfHanoi-v0", "FrozenLake-v0", "Minesweeper-v0-small", "2048-v0-ultra-easy"]
DUELS = ["TicTacToe-v0", "KuhnPoker-v0", "ConnectFour-v0", "Nim-v0"]


def native(game, players, seed):
    """Start a game as TextArena's users do, with the random state that a `Game` starts from."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    env = ta.make(f"{game}-raw")
    env.reset(num_players=players, seed=seed)
    return env


@pytest.mark.parametrize("game", SOLO)
def test_five_episodes_equal_native_play(game):
    env = gem_core.make(f"textarena:{game}")
    for seed in range(5):
        env.reset(seed=seed)
        actions, total, ended = [], 0.0, False
        while not ended:
            actions.append(env.sample_random_action())
            _, reward, terminated, truncated, info = env.step(actions[-1])
            total, ended = total + reward, terminated or truncated
        theirs = native(game, 1, env.foreign_seed)
        done = [theirs.step(action)[0] for action in actions]
        assert done == [False] * (len(actions) - 1) + [terminated]
        assert total == (theirs.state.rewards or {0: 0.0})[0]
        assert info["success"] == (total >= 1.0)


@pytest.mark.parametrize("game", DUELS)
def test_five_games_of_two_equal_native_play(game):
    table = gem_core.make(f"textarena:{game}", opponent="self")
    for seed in range(5):
        table.reset(seed=seed)
        rewards, seats, actions = {}, [], []
        while table.agents:
            seats += table.active_agents()
            actions.append(table.sample_random_action())
            _, paid, terminated, _, infos = table.step({seats[-1]: actions[-1]})
            rewards = {agent: rewards.get(agent, 0.0) + reward for agent, reward in paid.items()}
        theirs = native(game, 2, table.foreign_seed)
        for seat, action in zip(seats, actions, strict=True):
            assert seat == f"player_{theirs.state.current_player_id}"
            done, _ = theirs.step(action)
        assert done
        assert all(terminated.values())
        assert rewards == {f"player_{player}": reward for player, reward in theirs.state.rewards.items()}
        assert {agent: infos[agent]["success"] for agent in rewards} == {
            a: r >= 1 for a, r in rewards.items()
        }


def test_the_rules_hold():
    rules = [
        "global_random_is_left_alone", "episodes_leave_no_trace", "threads_change_nothing", "specs_travel",
        "processes_change_nothing", "forks_are_equal_and_independent", "random_actions_are_legal",
    ]  # fmt: skip
    report = check_env("textarena:FrozenLake-v0", seeds=(0,), rules=rules)
    assert set(report.passed) == set(rules[:-1])
    assert "without knowing what is legal" in report.skipped["random_actions_are_legal"]


def test_one_side_keeps_the_rules_of_a_state():
    rules = [
        "forks_are_equal_and_independent",
        "resets_start_from_a_state",
        "specs_travel",
        "reset_is_needed",
    ]
    assert set(check_env("textarena:KuhnPoker-v0", seeds=(0, 1), rules=rules).passed) == set(rules)


def test_games_in_threads_do_not_mix_their_generators():
    def play(seed, out):
        env = gem_core.make("textarena:Minesweeper-v0-small")
        env.reset(seed=seed)
        out[seed] = [env.step(f"[{i} {i}]")[0] for i in range(3)]

    alone, together = {}, {}
    for seed in range(4):
        play(seed, alone)
    threads = [threading.Thread(target=play, args=(seed, together)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


def test_a_download_is_rejected_with_the_command_to_run(monkeypatch):
    import nltk

    called = []
    monkeypatch.setattr(nltk, "download", lambda *args, **kwargs: called.append(args))
    monkeypatch.setattr(nltk.data, "path", [])
    with pytest.raises(DataError, match=r"python -m nltk\.downloader words"):
        gem_core.make("textarena:Hangman-v0")
    assert not called


def test_unplayable_environments_are_reported_in_one_line():
    with pytest.raises(ConfigError, match=r"TextArena has no game 'TicTacTo-v0'\. Did you mean TicTacToe-v0"):
        gem_core.make("textarena:TicTacTo-v0")
    with pytest.raises(
        ConfigError, match="LiarsDice-v0 has 2 players, and its legal actions are unknown; pass"
    ):
        gem_core.make("textarena:LiarsDice-v0")
    with pytest.raises(ConfigError, match="GuessTheNumber-v0 has one player; omit opponent"):
        gem_core.make("textarena:GuessTheNumber-v0", opponent="random")
    for sample in ("[<1..", "[<>]", 3):
        with pytest.raises(ConfigError, match=r"sample=.*: expected a pattern of actions such as"):
            gem_core.make("textarena:GuessTheNumber-v0", sample=sample)
    with pytest.raises(ConfigError, match="settings='x=1': expected a dict"):
        gem_core.make("textarena:GuessTheNumber-v0", settings="x=1")
    with pytest.raises(ConfigError, match="the start with 3 players raised AssertionError"):
        gem_core.make("textarena:TicTacToe-v0", players=3)


def test_an_exception_of_a_game_names_the_step():
    env = gem_core.make("textarena:GuessTheNumber-v0")
    env.reset(seed=0)
    with pytest.raises(EnvError, match="textarena:GuessTheNumber-v0: step 1 raised ValueError"):
        env.step(f"[{'9' * 5000}]")


def test_a_turn_limit_truncates():
    env = gem_core.make("textarena:TowerOfHanoi-v0", max_turns=2)
    env.reset(seed=0)
    env.step("[A C]")
    *_, terminated, truncated, info = env.step("[A B]")
    assert (terminated, truncated, info["success"]) == (False, True, False)
    table = gem_core.make("textarena:TicTacToe-v0", opponent="self", max_turns=1)
    table.reset(seed=0)
    assert all(table.step({"player_0": "[4]"})[3].values())


def test_a_pattern_draws_numbers_and_words():
    draws = {draw_action("[<up|down> <1..2>]", random.Random(seed)) for seed in range(50)}
    assert draw_action("[Offer: 1 Ore -> <2..2> Brick]", random.Random(0)) == "[Offer: 1 Ore -> 2 Brick]"
    assert draws == {"[up 1]", "[up 2]", "[down 1]", "[down 2]"}
