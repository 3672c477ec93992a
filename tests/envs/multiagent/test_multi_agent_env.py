"""The base class, used like in code written for GEM."""

from __future__ import annotations

import json

import pytest

import gem_core
from gem_core._core import check_reset_options
from gem_core.errors import ConfigError, ResetNeeded
from gem_core.multiagent import AgentSelector, MultiAgentEnv


class Counting(MultiAgentEnv):
    """Counts its steps and rewards "good"; "exit" leaves.

    It is written in GEM's style: `reset` only takes a seed, `state_fields` has no additions, and the flags of
    the base class are set in place.
    """

    def __init__(self, mode="sequential", num_agents=3, limit=10):
        super().__init__()
        for number in range(num_agents):
            self.possible_agents.append(f"agent_{number}")
        self.agent_selector = AgentSelector(self.possible_agents, mode)
        self.steps_left = self.limit = limit

    def reset(self, seed=None):
        self.steps_left = self.limit
        return super().reset(seed)

    def observe(self, agent):
        return f"{agent} sees {self.limit - self.steps_left}"

    def _process_actions(self, actions):
        self.steps_left -= 1
        self.terminations.update((agent, True) for agent, action in actions.items() if action == "exit")
        if self.steps_left <= 0:
            self.truncations.update(dict.fromkeys(self.agents, True))
        paid = dict.fromkeys((agent for agent in actions if actions[agent] == "good"), 1.0)
        seen = {agent: self.observe(agent) for agent in actions}
        return seen, paid, self.terminations, self.truncations, {}


def turns(env, moves):
    """Return the agents that act at each of `moves` steps, with the actions."""
    seen = []
    for action in moves:
        seen.append(env.active_agents())
        env.step(dict.fromkeys(env.active_agents(), action))
    return seen


def test_agents_take_turns_and_are_paid_for_theirs():
    env = Counting()
    observations, infos = env.reset(seed=1)
    assert observations == {f"agent_{i}": f"agent_{i} sees 0" for i in range(3)}
    assert infos == {f"agent_{i}": {} for i in range(3)}
    assert turns(env, ["good", "bad", "good", "good"]) == [["agent_0"], ["agent_1"], ["agent_2"], ["agent_0"]]
    assert [env.get_state(agent)[1] for agent in env.agents] == [2.0, 0.0, 1.0]
    assert env.get_active_states() == {"agent_1": ("agent_1 sees 4", 0.0, False, False, {})}


def test_all_act_at_once_in_parallel_mode():
    env = Counting("parallel")
    env.reset()
    assert env.agent_selector.get_active_agents() == env.agents
    result = env.step({"agent_0": "good", "agent_1": "exit", "agent_2": "bad"})
    assert result[1] == {"agent_0": 1.0, "agent_1": 0.0, "agent_2": 0.0}
    assert result[2] == {"agent_0": False, "agent_1": True, "agent_2": False}  # includes the agent that left
    assert env.agents == ["agent_0", "agent_2"]


@pytest.mark.parametrize("leaver", [0, 1, 2])
def test_no_agent_is_skipped_when_another_finishes(leaver):
    env = Counting()
    env.reset()
    moves = ["good"] * leaver + ["exit"] + ["good"] * 4
    order = [agent for (agent,) in turns(env, moves)]
    rest = [f"agent_{i}" for i in range(3) if i != leaver]
    after = (rest + rest)[leaver:] if leaver < 2 else rest
    assert order[leaver] == f"agent_{leaver}"
    assert order[leaver + 1 : leaver + 3] == after[:2]
    assert order[leaver + 3] == order[leaver + 1]


def test_an_agent_removed_between_turns_or_while_it_acts():
    env = Counting()
    env.reset()
    env.remove_agent("agent_0")  # it was next to act
    assert [agent for (agent,) in turns(env, ["good"] * 3)] == ["agent_1", "agent_2", "agent_1"]

    class Resigning(Counting):
        def _process_actions(self, actions):
            if "exit" in actions.values():
                self.remove_agent(*actions)
            return {}, {}, {}, {}, {}

    env = Resigning()
    env.reset()
    assert [agent for (agent,) in turns(env, ["exit", "good", "good"])] == ["agent_1"] * 0 + [
        "agent_0", "agent_1", "agent_2",
    ]  # fmt: skip


def test_a_limit_ends_it_for_all_and_then_a_reset_is_needed():
    env = Counting("parallel", limit=1)
    with pytest.raises(ResetNeeded):
        env.step({})
    env.reset()
    _, _, terminated, truncated, _ = env.step({"agent_0": "exit", "agent_1": "a", "agent_2": "a"})
    assert terminated == {"agent_0": True, "agent_1": False, "agent_2": False}
    assert truncated == {"agent_0": False, "agent_1": True, "agent_2": True}  # one of the two, not both
    assert env.agents == []
    with pytest.raises(ResetNeeded):
        env.step({})


def test_agents_may_join_and_talk():
    env = Counting()
    env.reset()
    env.add_agent("agent_3")
    env.send_message("agent_0", "agent_3", "hello")
    env.broadcast_message("agent_3", "hello all")
    assert env.agents[-1] == "agent_3"
    assert [(m["from"], m["to"]) for m in env.shared_memory] == [
        ("agent_0", "agent_3"), ("agent_3", "agent_0"), ("agent_3", "agent_1"), ("agent_3", "agent_2"),
    ]  # fmt: skip
    assert [agent for (agent,) in turns(env, ["a"] * 4)][-1] == "agent_3"
    env.remove_agent("agent_3")
    assert "agent_3" not in env.agents


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda env: env.step("text"), "actions must be a dict by agent, not a str"),
        (lambda env: env.step({}), "no action for agent 'agent_0'; active agents: agent_0"),
        (
            lambda env: env.step({"agent_0": "a", "agent_1": "b"}),
            "'agent_1' does not act now; active agents: agent_0",
        ),
        (lambda env: env.step({"nobody": "a"}), "'nobody' is unknown; active agents: agent_0"),
        (lambda env: env.get_state("nobody"), r"unknown agent 'nobody'\. Agents in the episode: agent_0"),
        (lambda env: env.send_message("agent_0", "nobody", ""), "unknown agent 'nobody'"),
        (lambda env: env.broadcast_message("nobody", ""), "unknown agent 'nobody'"),
        (lambda env: env.agent_selector.select("nobody"), "unknown agent 'nobody'"),
    ],
)
def test_misuse_is_reported_in_one_line(call, message):
    env = Counting()
    env.reset()
    with pytest.raises(ValueError, match=message) as caught:  # GEM raises ValueError
        call(env)
    assert isinstance(caught.value, ConfigError)
    assert "\n" not in str(caught.value)


def test_actions_are_texts():
    env = Counting()
    env.reset()
    with pytest.raises(TypeError, match="not int"):
        env.step({"agent_0": 1})


def test_the_selector_alone():
    selector = AgentSelector(["a", "b", "c", "d"])
    assert (selector.selected, selector.is_first(), selector.is_last()) == ("a", True, False)
    for _ in range(3):
        selector.next()
    assert (selector.selected, selector.is_last()) == ("d", True)
    selector.remove_agent("a")
    assert selector.selected == "d"
    selector.remove_agent("d")
    assert selector.selected == "b"
    selector.reinit(["x"])
    selector.add_agent("y")
    selector.remove_agent("x")
    assert selector.selected == "y"
    selector.remove_agent("y")
    assert selector.selected is None
    assert selector.get_active_agents() == []
    with pytest.raises(ValueError, match="mode='other': expected sequential or parallel"):
        AgentSelector(["a"], mode="other")


def test_state_survives_json_with_whose_turn_it_is():
    env = gem_core.make("multi:KuhnPoker-v0", opponent="self")
    env.reset(seed=3)
    env.step({"player_1": r"\boxed{check}"})
    state = json.loads(json.dumps(env.get_state()))
    twin = env.spawn()
    twin.reset(options={"state": state})
    assert twin.active_agents() == ["player_2"]
    assert twin.get_state() == env.get_state()
    assert twin.step({"player_2": r"\boxed{check}"}) == env.step({"player_2": r"\boxed{check}"})


def test_options_of_a_reset():
    env = gem_core.make("multi:KuhnPoker-v0", opponent="self")
    with pytest.raises(ConfigError, match=r"unknown reset options \['index'\]; KuhnPoker accepts 'state'"):
        env.reset(options={"index": 1})
    check_reset_options(None, (), "anything")
