"""`OneAgent`: one side of a `MultiAgentEnv` as an ordinary environment, the others played by fixed players.

    env = gem_core.make("multi:KuhnPoker-v0", opponent="oracle", agent="player_1")

Whatever plays an `Env` plays it with no change: vector environments, the runner, every trainer's plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from gem_core._util.entry_points import load_attribute
from gem_core._util.seeds import derive_rng
from gem_core.core import Env, ResetOptions, ResetResult, Split, StepResult
from gem_core.envs.multiagent.ledger import Ledger
from gem_core.envs.multiagent.multi_agent_env import MultiAgentEnv
from gem_core.errors import ConfigError, EnvError

if TYPE_CHECKING:
    from typing_extensions import Self

Player: TypeAlias = Callable[[MultiAgentEnv, str, Random], str]
"""Answers for an agent whose turn it is: ``player(env, agent, random) -> response``.

It may look at the whole environment, must leave it alone, and draws from `random` only, so that an
episode can be repeated.
"""

MAX_MOVES = 1000
"""Steps that the others may make between two turns of the agent."""


def random_player(env: MultiAgentEnv, agent: str, random: Random) -> str:
    """Plays a random legal action."""
    return env.random_action(agent, random)


def best_player(env: MultiAgentEnv, agent: str, random: Random) -> str:
    """Plays a best action.

    Raises:
        ConfigError: The environment knows none.
    """
    action = env.best_action(agent, random)
    if action is None:
        raise ConfigError(f"{env!r} knows no best action for {agent}; the oracle cannot play it")
    return action


PLAYERS: dict[str, Player] = {"random": random_player, "oracle": best_player}


def find_player(name: str | Player) -> Player:
    """The player of that name: "random", "oracle", or ``module:function``; a function is itself.

    Raises:
        ConfigError: There is no such player.
    """
    if callable(name):
        return name
    if name in PLAYERS:
        return PLAYERS[name]
    if not isinstance(name, str) or name.count(":") != 1:
        raise ConfigError(
            f"no player {name!r}: expected {', '.join(map(repr, PLAYERS))} or 'module:function'"
        )
    player: Player = load_attribute("the player", name)
    return player


def one_side(env: MultiAgentEnv, opponent: str | Player, agent: str | None) -> Env:
    """What a registered id of several agents makes.

    Args:
        env: The game.
        opponent: Plays the other agents, as in `find_player`; "self" leaves every agent to policies.
        agent: The agent to play; None draws it at each reset.

    Returns:
        A `OneAgent`, or `env` itself for "self".

    Raises:
        ConfigError: An unknown player or agent, or an agent with "self".
    """
    if opponent != "self":
        return OneAgent(env, agent, opponent)
    if agent is not None:
        raise ConfigError(f"agent={agent!r} chooses one side; with opponent='self' all are played")
    return env


class OneAgent(Env):
    """One agent of a `MultiAgentEnv`.

    A step takes the agent's response and lets the others play until the agent is to act again; its
    reward is the sum of what it was paid meanwhile. The info says whose view it is under "agent". There
    is no `max_return`: the best that can be had depends on the others.

    Args:
        env: The environment with several agents; closed with this one.
        agent: Which one to play; None draws one at each reset.
        others: Who plays the others, as in `find_player`.

    Raises:
        ConfigError: `env` has no several agents, or no such agent; or there is no such player.
    """

    state_fields: ClassVar[tuple[str, ...]] = ("agent", "others_seed", "moves")

    def __init__(self, env: MultiAgentEnv, agent: str | None = None, others: str | Player = "random") -> None:
        if not isinstance(env, MultiAgentEnv):
            raise ConfigError(f"{env!r} has one agent only; a MultiAgentEnv is expected")
        if agent is not None and agent not in env.possible_agents:
            raise ConfigError(f"no agent {agent!r}; {env!r} has {', '.join(env.possible_agents)}")
        self.env = env
        self.chosen = agent
        self.player = find_player(others)
        self.blocking = env.blocking or getattr(self.player, "blocking", False)
        self.format_error_reward = env.format_error_reward
        self._ledger = Ledger(env)
        self.agent = agent or env.possible_agents[0]
        self.others_seed = 0
        self.moves = 0

    def reset(self, seed: int | None = None, *, options: ResetOptions | None = None) -> ResetResult:
        self.begin_episode(seed)
        if options is not None and "state" in options:
            self.resume_episode(options["state"])
        else:
            self._ledger.reset(seed, options)
            self.others_seed = self.random.getrandbits(64)
            self.moves = 0
            # Named streams: the environment draws from a generator with the same seed.
            self.agent = self.chosen or derive_rng("seat", self.others_seed).choice(self.env.possible_agents)
            self._play_others()
        observation, _, terminated, truncated, info = self._ledger.collect(self.agent)
        if terminated or truncated:
            raise EnvError(f"the others ended the episode before {self.agent} had a turn")
        return observation, {**info, "agent": self.agent}  # type: ignore[typeddict-unknown-key]

    def step(self, action: str) -> StepResult:
        self.require_reset()
        if not isinstance(action, str):
            raise TypeError(f"an action is the response as a str, not {type(action).__name__}")
        others = [agent for agent in self._ledger.active() if agent != self.agent]
        self._ledger.step({self.agent: action} | {agent: self._answer(agent) for agent in others})
        self._play_others()
        observation, reward, terminated, truncated, info = self._ledger.collect(self.agent)
        if terminated or truncated:
            self.end_episode()
        told: Any = {**info, "agent": self.agent}
        return observation, reward, terminated, truncated, told

    def close(self) -> None:
        self.env.close()

    def items(self, split: Split) -> Sequence[int] | None:
        return self.env.items(split)

    def sample_random_action(self) -> str:
        self.require_reset()
        return self.env.random_action(self.agent, self.action_random)

    def oracle_action(self) -> str | None:
        self.require_reset()
        return self.env.best_action(self.agent, self.action_random)

    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {"env": self.env.get_state(), "ledger": self._ledger.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self.env.set_state(state["env"])
        self._ledger.set_state(state["ledger"])

    def spawn(self, same_state: bool = False) -> Self:
        sibling = type(self)(self.env.spawn(), self.chosen, self.player)
        sibling.spec = self.spec
        if same_state:
            sibling.set_state(self.get_state())
        return sibling

    def _play_others(self) -> None:
        """Let the others act until it is the agent's turn, or the agent is through."""
        for _ in range(MAX_MOVES):
            active = self._ledger.active() if self.agent not in self._ledger.ends else [self.agent]
            if self.agent in active:
                return
            self._ledger.step({agent: self._answer(agent) for agent in active})
        raise EnvError(f"{self.agent} did not get a turn within {MAX_MOVES} moves of the others")

    def _answer(self, agent: str) -> str:
        # A generator a move, not one for all: nothing to save, and a move does not hang on the number
        # of draws before it.
        self.moves += 1
        return self.player(self.env, agent, derive_rng(self.others_seed, self.moves))
