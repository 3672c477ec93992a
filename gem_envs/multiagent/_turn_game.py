r"""`TurnGame`: the base class of two-player games in which the players move in turn.

The move is the last readable ``\boxed{...}`` of a response. A response without a readable move, or with an
illegal one, forfeits the game: the player gets `format_error_reward`, which is at most the worst payoff of
the game, and the opponent gets 0. The turn limit truncates the game for both players.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, ClassVar, Generic, TypeVar

from gem_core._core import InvalidKind
from gem_core.multiagent import AgentSelector, MultiAgentEnv
from gem_core.multiagent._multi_agent_env import StepResults
from gem_envs._text import boxes, plain

Move = TypeVar("Move")

PLAYERS = ("player_1", "player_2")
"""Names of the agents; the first one moves first."""


class TurnGame(MultiAgentEnv, Generic[Move]):
    """Base class of two-player games. A subclass defines the setup, the moves, and the observations."""

    state_fields: ClassVar[tuple[str, ...]] = (
        *MultiAgentEnv.state_fields, "turn", "turn_limit", "news", "moved"
    )  # fmt: skip

    turn: int
    """Number of moves made in this game, by both players."""
    turn_limit: int
    """Number of moves in this game; the last one truncates it."""

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = list(PLAYERS)
        self.agent_selector = self.selector = AgentSelector(self.possible_agents)

    # -- hooks --------------------------------------------------------------------------------

    def new_game(self) -> None:
        """Set `turn_limit` and the initial position, drawing from `self.random` only."""
        raise NotImplementedError

    def rules(self, agent: str) -> str:
        """Return the first observation of `agent`: the task and the answer format."""
        raise NotImplementedError

    def board(self, agent: str) -> str:
        """Return the position as `agent` sees it, shown below each observation."""
        return ""

    def parse(self, text: str) -> Move | None:
        """Read a move from the stripped content of a box; None is a format error."""
        raise NotImplementedError

    def refusal(self, agent: str, move: Move) -> str | None:
        """Return why the move is illegal; None if it is legal."""
        raise NotImplementedError

    def play(self, agent: str, move: Move) -> Mapping[str, float] | None:
        """Play a legal move. Tell the opponent about it with `tell`.

        Returns:
            The payoff of each player if the move ends the game, else None.
        """
        raise NotImplementedError

    def random_move(self, agent: str, random: Random) -> str:
        """Return a legal move, drawn from `random`, as the content of a box."""
        raise NotImplementedError

    def best_move(self, agent: str, random: Random) -> str | None:
        """Return a best move given the player's knowledge, as the content of a box; None if unknown."""
        return None

    # -- for hooks ----------------------------------------------------------------------------

    def other(self, agent: str) -> str:
        """Return the opponent of `agent`."""
        return PLAYERS[1 - PLAYERS.index(agent)]

    def tell(self, agent: str, text: str) -> None:
        """Add a line to the next observation of `agent`."""
        self.news[agent].append(text)

    # -- the contract -------------------------------------------------------------------------

    def new_episode(self, index: int | None) -> None:
        self.turn = 0
        self.news: dict[str, list[str]] = {agent: [] for agent in self.possible_agents}
        self.moved: list[str] = []
        self.new_game()

    def observe(self, agent: str) -> str:
        intro = [] if agent in self.moved else [self.rules(agent)]
        return "\n".join(part for part in (*intro, *self.news[agent], self.board(agent)) if part)

    def random_action(self, agent: str, random: Random) -> str:
        return f"\\boxed{{{self.random_move(agent, random)}}}"

    def best_action(self, agent: str, random: Random) -> str | None:
        move = self.best_move(agent, random)
        return None if move is None else f"\\boxed{{{move}}}"

    def _process_actions(self, actions: dict[str, str]) -> StepResults:
        ((agent, action),) = actions.items()
        self.turn += 1
        self.news[agent] = []
        if agent not in self.moved:
            self.moved.append(agent)
        content = move = None
        for content in boxes(action):
            move = self.parse(content.strip())
            if move is None:
                move = self.parse(plain(content))
            if move is not None:
                break
        if content is None or move is None:
            reason = "No \\boxed{} was found." if content is None else "The box holds no readable move."
            return self._forfeit(agent, "format", reason)
        refusal = self.refusal(agent, move)
        if refusal is not None:
            return self._forfeit(agent, "illegal", refusal)
        payoffs = self.play(agent, move)
        info = {"invalid": None, "parsed_action": content.strip()}
        if payoffs is not None:
            for player in self.agents:
                self.tell(player, f"The game is over. You get {payoffs[player]:g}.")
            return self._results(agent, info, payoffs, ended=True)
        if self.turn >= self.turn_limit:
            for player in self.agents:
                self.tell(player, "No turns are left.")
            return self._results(agent, info, {}, cut=True)
        self.selector.next()  # before observing, so that the next player sees its options
        return self._results(agent, info, {})

    def _forfeit(self, agent: str, kind: InvalidKind, reason: str) -> StepResults:
        self.tell(agent, f"{reason} You forfeit the game.")
        self.tell(self.other(agent), "Your opponent has forfeited the game.")
        return self._results(agent, {"invalid": kind}, {agent: self.format_error_reward}, ended=True)

    def _results(
        self,
        agent: str,
        info: dict[str, Any],
        payoffs: Mapping[str, float],
        *,
        ended: bool = False,
        cut: bool = False,
    ) -> StepResults:
        infos: dict[str, dict[str, Any]] = {player: {} for player in self.agents}
        infos[agent] = info
        if ended or cut:
            for player in self.agents:
                infos[player]["success"] = payoffs.get(player, 0.0) > 0
        return (
            {player: self.observe(player) for player in self.agents},
            dict(payoffs),
            dict.fromkeys(self.agents, ended),
            dict.fromkeys(self.agents, cut),
            infos,
        )
