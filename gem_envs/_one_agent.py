"""`OneAgent`: one side of a `MultiAgentEnv` as a single-agent environment; fixed players play the others.

    env = gem_core.make("multi:KuhnPoker-v0", opponent="oracle", agent="player_1")

Everything that plays an `Env` can play it: vector environments, the runner, every trainer plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from gem_core._core import Env, ResetOptions, ResetResult, Split, StepResult
from gem_core._util.checks import expected
from gem_core._util.entry_points import load_attribute
from gem_core._util.messages import join_or
from gem_core._util.seeds import derive_rng
from gem_core.errors import ConfigError, EnvError
from gem_core.multiagent import MultiAgentEnv
from gem_core.multiagent._ledger import MAX_MOVES, Ledger

if TYPE_CHECKING:
    from typing_extensions import Self

Player: TypeAlias = Callable[[MultiAgentEnv, str, Random], str]
"""Responds for an agent whose turn it is: ``player(env, agent, random) -> response``.

A player may read the whole environment, must not change it, and draws from `random` only, so that an
episode can be repeated.
"""


def random_player(env: MultiAgentEnv, agent: str, random: Random) -> str:
    """Play a random legal action."""
    return env.random_action(agent, random)


def best_player(env: MultiAgentEnv, agent: str, random: Random) -> str:
    """Play the environment's best action.

    Raises:
        ConfigError: The environment has no oracle action.
    """
    action = env.best_action(agent, random)
    if action is None:
        raise ConfigError(f"{env!r} has no oracle action for {agent}, so the oracle cannot play it")
    return action


PLAYERS: dict[str, Player] = {"random": random_player, "oracle": best_player}


def find_player(name: str | Player) -> Player:
    """Return a player by name: "random", "oracle", or ``module:function``. A function is returned unchanged.

    Raises:
        ConfigError: The player is unknown.
    """
    if callable(name):
        return name
    if name in PLAYERS:
        return PLAYERS[name]
    if not isinstance(name, str) or name.count(":") != 1:
        raise expected("player", name, join_or([*PLAYERS, "module:function"]))
    player: Player = load_attribute("the player", name)
    return player


def one_side(env: MultiAgentEnv, opponent: str | Player, agent: str | None) -> Env:
    """Build the environment of a registered multi-agent id.

    Args:
        env: The game.
        opponent: Player of the other agents, as in `find_player`; "self" leaves every agent to policies.
        agent: The agent to play; None draws one at each reset.

    Returns:
        A `OneAgent`, or `env` itself for ``opponent="self"``.

    Raises:
        ConfigError: The player or agent is unknown, or `agent` is combined with "self".
    """
    if opponent != "self":
        return OneAgent(env, agent, opponent)
    if agent is not None:
        raise ConfigError(f"agent={agent!r}: expected None with opponent='self'")
    return env


class OneAgent(Env):
    """One agent of a `MultiAgentEnv`.

    A step takes the agent's response and lets the other agents act until it is the agent's turn again; the
    reward is the sum of the agent's rewards in between. ``info["agent"]`` names the agent. There is no
    `max_return`, because the best possible return depends on the other agents.

    Args:
        env: The multi-agent environment; closed with this one.
        agent: The agent to play; None draws one at each reset.
        others: Player of the other agents, as in `find_player`.

    Raises:
        ConfigError: `env` is not a `MultiAgentEnv`, or the agent or player is unknown.
    """

    state_fields: ClassVar[tuple[str, ...]] = ("agent", "others_seed", "moves")

    def __init__(self, env: MultiAgentEnv, agent: str | None = None, others: str | Player = "random") -> None:
        if not isinstance(env, MultiAgentEnv):
            raise ConfigError(f"{env!r} has a single agent: expected a MultiAgentEnv")
        if agent is not None and agent not in env.possible_agents:
            raise ConfigError(
                f"unknown agent {agent!r} of {env!r}. Available: {', '.join(env.possible_agents)}"
            )
        self.env = env
        self.chosen = agent
        self.player = find_player(others)
        self.blocking = env.blocking or getattr(self.player, "blocking", False)
        self.format_error_reward = env.format_error_reward
        self.legal_random_actions = env.legal_random_actions
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
            # A named stream, because the environment's generator has the same seed.
            self.agent = self.chosen or derive_rng("seat", self.others_seed).choice(self.env.possible_agents)
            self._play_others()
        observation, _, terminated, truncated, info = self._ledger.collect(self.agent)
        if terminated or truncated:
            raise EnvError(f"the other agents ended the episode before the first turn of {self.agent}")
        return observation, {**info, "agent": self.agent}

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
        own_info: Any = {**info, "agent": self.agent}
        return observation, reward, terminated, truncated, own_info

    def close(self) -> None:
        self.env.close()

    @property
    def call_readers(self) -> Sequence[Any]:
        return self.env.readers_of(self.agent)

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
        """Let the other agents act until the agent acts next or has finished."""
        for _ in range(MAX_MOVES):
            active = self._ledger.active() if self.agent not in self._ledger.ends else [self.agent]
            if self.agent in active:
                return
            self._ledger.step({agent: self._answer(agent) for agent in active})
        raise EnvError(f"{self.agent} did not get a turn within {MAX_MOVES} moves of the other agents")

    def _answer(self, agent: str) -> str:
        # One generator per move: there is no generator state to save, and a move does not depend on the
        # number of draws before it.
        self.moves += 1
        return self.player(self.env, agent, derive_rng(self.others_seed, self.moves))
