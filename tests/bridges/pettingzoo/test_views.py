"""The two views, in our tests and in PettingZoo's own tests."""

from __future__ import annotations

from functools import partial

import pytest

import gem_core
from gem_core.errors import ConfigError, ResetNeeded
from tests.envs.multiagent.test_multi_agent_env import Counting
from tests.envs.multiagent.test_one_agent import Duel

zoo = pytest.importorskip("pettingzoo.test", reason="the views derive from PettingZoo's classes")

from gem_bridges.gymnasium._spaces import TextSpace  # noqa: E402
from gem_bridges.pettingzoo import AECEnv, ParallelEnv  # noqa: E402

IDS = gem_core.list_envs("multi:*")


def table(id):
    return gem_core.make(id, opponent="self")


@pytest.mark.parametrize("view", [AECEnv, ParallelEnv])
@pytest.mark.parametrize("env", ["multi:KuhnPoker-v0", None, gem_core.make("game:Wordle-v0")])
def test_a_view_is_one_of_a_multi_agent_environment(view, env):
    with pytest.raises(ConfigError, match=r"env=.*: expected a MultiAgentEnv, such as gem_core.make"):
        view(env)


def test_a_game_agent_by_agent():
    env = AECEnv(table("multi:TicTacToe-v0"))
    env.reset(seed=0)
    rewards = {}
    order = []
    moves = iter((1, 4, 2, 5, 3))
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, info = env.last()
        order.append(agent)
        rewards[agent] = rewards.get(agent, 0) + reward
        if terminated or truncated:
            assert info["success"] is (agent == "player_1")
            env.step(None)
        else:
            assert observation == env.observe(agent)
            env.step(f"\\boxed{{{next(moves)}}}")
    assert order == ["player_1", "player_2", "player_1", "player_2", "player_1", "player_1", "player_2"]
    assert rewards == {"player_1": 1, "player_2": -1}
    with pytest.raises(ResetNeeded):
        env.last()


def test_rewards_since_the_last_action():
    env = AECEnv(Counting())
    env.reset()
    for agent, action in zip(env.agent_iter(4), ["good", "bad", "good", "bad"], strict=True):
        assert env.last(observe=False)[0] is None
        if env.agents.index(agent) == 0 and env.env.steps_left < env.env.limit:
            assert env.last()[1] == 1.0  # reward of its own action, seen at its next turn
        env.step(action)
    assert env.rewards == {"agent_0": 0.0, "agent_1": 0.0, "agent_2": 0.0}


def test_agents_that_act_at_once_go_one_after_the_other():
    env = AECEnv(Duel())
    env.reset(seed=0)
    seen = []
    for agent in env.agent_iter():
        _, reward, terminated, _, _ = env.last()
        seen.append((agent, reward))
        env.step(None if terminated else {"left": "5", "right": "2"}[agent])
    assert seen[:4] == [("left", 0.0), ("right", 0.0), ("left", 3.0), ("right", -3.0)]
    assert seen[-2:] == [("left", 3.0), ("right", -3.0)]


def test_parallel_steps_take_an_action_of_everyone():
    env = ParallelEnv(table("multi:KuhnPoker-v0"))
    observations, infos = env.reset(seed=1)
    assert set(observations) == set(env.agents) == {"player_1", "player_2"}
    assert infos["player_1"]["active"]
    assert not infos["player_2"]["active"]
    result = env.step({"player_1": r"\boxed{bet}", "player_2": "is not asked"})
    assert result[4]["player_2"]["active"]
    assert all(set(part) == {"player_1", "player_2"} for part in result)
    result = env.step({"player_1": "", "player_2": r"\boxed{fold}"})
    assert result[1] == {"player_1": 1.0, "player_2": -1.0}
    assert env.agents == []


def test_misuse_is_reported_in_one_line():
    env = ParallelEnv(table("multi:KuhnPoker-v0"))
    env.reset(seed=0)
    with pytest.raises(ConfigError, match="actions for player_1: expected one for each of"):
        env.step({"player_1": "a"})
    aec = AECEnv(table("multi:KuhnPoker-v0"))
    aec.reset(seed=0)
    with pytest.raises(ConfigError, match="action=None of player_1: expected a text"):
        aec.step(None)
    aec.step("junk")
    with pytest.raises(ConfigError, match="expected None, because it has finished"):
        aec.step("more")


def test_spaces_hold_texts():
    env = AECEnv(table("multi:TicTacToe-v0"))
    env.reset(seed=0)
    assert env.action_space("player_1") is env.action_space("player_1")
    assert env.action_space("player_1").sample().startswith("\\boxed{")
    assert env.action_space("player_2").sample() == ""
    assert "text" in TextSpace()
    assert 3 not in TextSpace()
    assert (env.num_agents, env.max_num_agents) == (2, 2)
    assert env.state()["running"]
    env.close()


class Saying(Counting):
    """`Counting` with random actions, as required by PettingZoo's tests."""

    def random_action(self, agent, random):
        return random.choice(["good", "bad", "exit"])


MAKERS = [*(partial(table, id) for id in IDS), Duel, Saying]


@pytest.mark.filterwarnings("error:Live agent", "error:Agent was given")
@pytest.mark.parametrize("make", MAKERS)
def test_pettingzoo_finds_nothing_to_complain_about(make, capsys):
    zoo.api_test(AECEnv(make()), num_cycles=30)
    zoo.parallel_api_test(ParallelEnv(make()), num_cycles=30)
    zoo.seed_test(lambda: AECEnv(make()), num_cycles=30)
    zoo.parallel_seed_test(lambda: ParallelEnv(make()), num_cycles=30)
