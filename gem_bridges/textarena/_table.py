"""`TextArenaTable`: a game of several players, one of whom acts at a time."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, ClassVar

from gem_bridges._foreign import foreign_error
from gem_bridges.textarena._game import Game
from gem_bridges.textarena._samples import draw_action
from gem_core._core import InvalidKind
from gem_core.multiagent import AgentSelector, MultiAgentEnv
from gem_core.multiagent._multi_agent_env import StepResults

__all__ = ["TextArenaTable"]


class TextArenaTable(MultiAgentEnv):
    """A game of several players, the agents ``player_0``, ``player_1``, ...

    Each agent sees the messages since its last action. The rewards come at the end, from TextArena.

    Args:
        game: TextArena's id.
        players: Number of players.
        sample: Pattern of random actions; None if unknown.
        max_turns: Number of actions of all players after which an episode is truncated for all of them.
        success_at: Smallest reward that counts as a success.
        settings: Keyword arguments of the game's constructor.
    """

    legal_random_actions = False
    state_fields: ClassVar[tuple[str, ...]] = (*MultiAgentEnv.state_fields, "foreign_seed", "taken", "shown")

    def __init__(
        self,
        game: str,
        players: int,
        sample: str | None,
        max_turns: int,
        success_at: float,
        settings: dict[str, Any] | None,
    ) -> None:
        super().__init__()
        self.game = Game(game, players, settings)
        self.sample, self.max_turns, self.success_at = sample, max_turns, success_at
        self.possible_agents = [f"player_{seat}" for seat in range(players)]
        self.agent_selector = self.selector = AgentSelector(self.possible_agents)
        self.foreign_seed: int | None = None
        self.taken: list[str] = []
        self.shown: dict[str, str] = {}

    def new_episode(self, index: int | None) -> None:
        self._start(self.random.getrandbits(31))

    def observe(self, agent: str) -> str:
        return self.shown.get(agent, "")

    def _process_actions(self, actions: dict[str, str]) -> StepResults:
        ((agent, action),) = actions.items()
        done, invalid = self._take(action)
        infos: dict[str, dict[str, Any]] = {agent: {"invalid": invalid}}
        if not done and len(self.taken) < self.max_turns:
            return {self._current(): self.shown[self._current()]}, {}, {}, {}, infos
        rewards = {f"player_{player}": reward for player, reward in self.game.rewards.items()} if done else {}
        for name in self.agents:
            success = done and rewards.get(name, 0.0) >= self.success_at
            infos[name] = infos.get(name, {}) | {"success": success}
            if done:
                self.shown[name] = self.game.reason(self.possible_agents.index(name))
        ends = dict.fromkeys(self.agents, True)
        return dict(self.shown), rewards, ends if done else {}, {} if done else ends, infos

    def random_action(self, agent: str, random: Random) -> str:
        if self.sample is None:
            raise NotImplementedError(
                f"{self.game.name}: the legal actions are unknown; pass a pattern such as sample='[<0..8>]'"
            )
        return draw_action(self.sample, random)

    def set_state(self, state: Mapping[str, Any]) -> None:
        fields = state["fields"]
        if fields["foreign_seed"] is not None:
            self._start(fields["foreign_seed"])
            for action in fields["taken"]:
                self._take(action)
        super().set_state(state)

    # -- plumbing -----------------------------------------------------------------------------

    def _current(self) -> str:
        return self.possible_agents[self.game.current]

    def _start(self, seed: int) -> None:
        self.foreign_seed, self.taken = seed, []
        self.shown = dict.fromkeys(self.possible_agents, "")
        try:
            self.game.start(seed)
            self._look()
        except Exception as error:
            raise self._failure("the reset", error) from error

    def _take(self, action: str) -> tuple[bool, InvalidKind | None]:
        self.taken.append(action)
        try:
            done, invalid = self.game.take(action)
            if not done:
                self._look()
        except Exception as error:
            raise self._failure(f"step {len(self.taken)}", error) from error
        return done, invalid

    def _look(self) -> None:
        """Select the player whose turn it is, and collect the messages that are new to that player."""
        agent = self._current()
        self.shown[agent] = self.game.observe()
        if agent in self.agents:  # not while a state is restored
            self.selector.select(agent)

    def _failure(self, where: str, error: Exception) -> Exception:
        self.end_episode()
        return foreign_error(self.game.name, where, error)
