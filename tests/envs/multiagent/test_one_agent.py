from __future__ import annotations

import pytest

import gem_core
from gem_core.errors import ConfigError, EnvError
from gem_core.multiagent import AgentSelector, MultiAgentEnv
from gem_envs.multiagent import OneAgent
from gem_lab import check_env
from tests.envs.multiagent.test_multi_agent_env import Counting


class Duel(MultiAgentEnv):
    """Both agents name a number simultaneously, three times; the higher one earns the difference."""

    state_fields = (*MultiAgentEnv.state_fields, "rounds")

    def __init__(self):
        super().__init__()
        self.possible_agents = ["left", "right"]
        self.agent_selector = AgentSelector(self.possible_agents, mode="parallel")

    def new_episode(self, index):
        self.rounds = 0

    def observe(self, agent):
        return f"round {self.rounds}"

    def random_action(self, agent, random):
        return str(random.randint(0, 9))

    def _process_actions(self, actions):
        self.rounds += 1
        left, right = (int(actions[agent]) for agent in ("left", "right"))
        done = dict.fromkeys(self.agents, self.rounds == 3)
        rewards = {"left": float(left - right), "right": float(right - left)}
        return {agent: self.observe(agent) for agent in self.agents}, rewards, done, {}, {}


def always_two(env, agent, random):
    return "2"


def mean_return(id, episodes, **kwargs):
    env = gem_core.make(id, **kwargs)
    total = 0.0
    for seed in range(episodes):
        env.reset(seed=seed)
        ended = False
        while not ended:
            _, reward, terminated, truncated, _ = env.step(env.oracle_action())
            total += reward
            ended = terminated or truncated
    return total / episodes


def test_the_others_play_until_it_is_the_agents_turn():
    env = gem_core.make("multi:TicTacToe-v0", agent="player_2", opponent="oracle")
    observation, info = env.reset(seed=0)
    assert observation.startswith("You play tic-tac-toe with O")
    assert "Your opponent took cell" in observation
    assert info["agent"] == "player_2"
    observation, reward, terminated, truncated, info = env.step(
        r"\boxed{5}" if " 5 " in observation else r"\boxed{1}"
    )
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert (info["invalid"], info["agent"]) == (None, "player_2")


def test_a_loss_that_the_other_player_causes_is_paid():
    env = gem_core.make("multi:TicTacToe-v0", agent="player_1", opponent="oracle")
    env.reset(seed=0)
    lost = False
    for seed in range(20):
        env.reset(seed=seed)
        ended = False
        while not ended:
            _, reward, terminated, truncated, info = env.step(env.sample_random_action())
            ended = terminated or truncated
        assert reward in (-1.0, 0.0)  # perfect play cannot be beaten
        lost |= reward == -1.0
        assert info["success"] is False
    assert lost


def test_the_seat_is_drawn_by_the_seed_unless_it_is_named():
    env = gem_core.make("multi:KuhnPoker-v0")
    seats = [env.reset(seed=seed)[1]["agent"] for seed in range(40)]
    assert seats == [env.reset(seed=seed)[1]["agent"] for seed in range(40)]
    assert 10 < seats.count("player_1") < 30
    stream = [env.reset()[1]["agent"] for _ in range(40)]
    assert set(stream) == {"player_1", "player_2"}
    cards = {seat: set() for seat in set(seats)}
    for seed in range(40):
        _, info = env.reset(seed=seed)
        cards[info["agent"]].add(env.env.cards["player_1"])
    assert all(len(seen) == 3 for seen in cards.values())  # the seat reveals nothing about the deal


def test_known_returns_against_the_others():
    assert mean_return("multi:TicTacToe-v0", 30, opponent="oracle") == 0.0
    assert mean_return("multi:TicTacToe-v0", 60) > 0.8
    assert abs(mean_return("multi:KuhnPoker-v0", 1500) - 1 / 6) < 0.12
    assert abs(mean_return("multi:KuhnPoker-v0", 1500, opponent="oracle", agent="player_1") + 1 / 18) < 0.12


def test_agents_that_act_at_once_and_a_custom_player():
    env = OneAgent(Duel(), "right", always_two)
    env.reset(seed=0)
    assert [env.step("5")[1:3] for _ in range(3)] == [(3.0, False), (3.0, False), (3.0, True)]
    named = OneAgent(Duel(), "right", f"{__name__}:always_two")
    named.reset(seed=0)
    assert named.step("0")[1] == -2.0
    check_env(lambda: OneAgent(Duel()), rules=["forks_are_equal_and_independent", "twins_are_equal"])


def test_vector_envs_play_one_side():
    with gem_core.make_vec("multi:TicTacToe-v0", 4, opponent="oracle", seed=0) as envs:
        observations, _ = envs.reset()
        assert len(observations) == 4
        for _ in range(12):
            *_, infos = envs.step([r"\boxed{1}"] * 4)
        assert any("final_info" in info for info in infos)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: gem_core.make("multi:TicTacToe-v0", agent="player_3"),
            "unknown agent 'player_3' of .* player_1, player_2",
        ),
        (
            lambda: gem_core.make("multi:TicTacToe-v0", opponent="stockfish"),
            "player='stockfish': expected random, oracle, or module:function",
        ),
        (lambda: gem_core.make("multi:TicTacToe-v0", opponent="no.such:thing"), "cannot be imported"),
        (
            lambda: gem_core.make("multi:TicTacToe-v0", opponent="self", agent="player_1"),
            "expected None with opponent",
        ),
        (
            lambda: gem_core.make("multi:TicTacToe-v0", opponent="self", wrappers="concat"),
            "has several agents",
        ),
        (lambda: gem_core.make_vec("multi:TicTacToe-v0", 2, opponent="self"), "has several agents"),
        (lambda: check_env("multi:TicTacToe-v0", opponent="self"), "has several agents"),
        (lambda: OneAgent(gem_core.make("game:Mastermind-v0")), "has a single agent"),
    ],
)
def test_misuse_is_reported_in_one_line(make, message):
    with pytest.raises(ConfigError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_an_opponent_without_a_best_action():
    env = OneAgent(Duel(), "left", "oracle")
    env.reset(seed=0)
    with pytest.raises(ConfigError, match="has no oracle action for right"):
        env.step("1")


def test_an_agent_whose_turn_never_comes():
    class Hogging(Counting):
        def _process_actions(self, actions):
            self.agent_selector.select("agent_0")
            return {}, {}, {}, {}, {}

        def random_action(self, agent, random):
            return "more"

    with pytest.raises(EnvError, match="agent_1 did not get a turn within 1000 moves"):
        OneAgent(Hogging(), "agent_1").reset(seed=0)

    class Nobody(Counting):
        def active_agents(self):
            return []

    with pytest.raises(EnvError, match="no agent is active although the episode of agent_0"):
        OneAgent(Nobody(), "agent_1").reset(seed=0)
