"""TextArena: ``textarena:NAME`` as an environment, for one player or several."""

from __future__ import annotations

from typing import Any

from gem_bridges.textarena._env import TextArenaEnv
from gem_bridges.textarena._game import number_of_players
from gem_bridges.textarena._samples import check_pattern, sample_pattern
from gem_bridges.textarena._table import TextArenaTable
from gem_core import Env
from gem_core.errors import ConfigError
from gem_envs._one_agent import Player, one_side

__all__ = ["make_textarena"]

_MAX_TURNS = 200


def make_textarena(
    game: str,
    opponent: str | Player | None = None,
    agent: str | None = None,
    players: int | None = None,
    sample: str | None = None,
    max_turns: int = _MAX_TURNS,
    success_at: float = 1.0,
    settings: dict[str, Any] | None = None,
) -> Env:
    r"""Build a game of TextArena.

    Args:
        game: TextArena's id, such as "TicTacToe-v0".
        opponent: Player of the other agents: "random" (draws from `sample`, legal or not),
            ``module:function``, or "self", which leaves every agent to policies. None means "random" if a
            pattern is known.
        agent: The agent to play, such as "player_0"; None draws one at each reset.
        players: Number of players; None means the smallest number that the game allows.
        sample: Pattern of random actions, such as "[<0..8>]" or "[<up|down>]"; None means the known pattern
            of the game, if any.
        max_turns: Number of actions of all players after which an episode is truncated.
        success_at: Smallest reward that counts as a success.
        settings: Keyword arguments of the game's constructor.

    Returns:
        A `TextArenaEnv` for a game of one player; for more players one side of a `TextArenaTable`, or the
        table itself with ``opponent="self"``.

    Raises:
        ConfigError: TextArena has no such game, it cannot be started, or an argument is wrong.
        DataError: The game needs a download.
    """
    count = number_of_players(game, players, settings)
    pattern = sample_pattern(game) if sample is None else check_pattern(sample)
    if count == 1:
        if opponent is not None or agent is not None:
            raise ConfigError(f"textarena:{game} has one player; omit opponent and agent")
        return TextArenaEnv(game, pattern, max_turns, success_at, settings)
    if opponent is None:
        if pattern is None:
            raise ConfigError(
                f"textarena:{game} has {count} players, and its legal actions are unknown; pass "
                "opponent='self' or 'module:function', or a pattern of actions, such as sample='[<0..8>]'"
            )
        opponent = "random"
    table = TextArenaTable(game, count, pattern, max_turns, success_at, settings)
    return one_side(table, opponent, agent)
