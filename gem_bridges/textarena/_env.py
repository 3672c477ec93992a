r"""`TextArenaEnv`: a game of one player.

A response is the action as TextArena reads it, usually in square brackets: ``[4]``. An observation holds only
the messages that are new since the last action, as an append context requires. The reward comes at the end,
from TextArena. As in TextArena, a second invalid action in a row usually loses the game.
"""

from __future__ import annotations

from typing import Any

from gem_bridges._foreign import ForeignEnv
from gem_bridges.textarena._game import Game
from gem_bridges.textarena._samples import draw_action
from gem_core._core import ResetResult, StepResult


class TextArenaEnv(ForeignEnv):
    """A game of one player; `make_textarena` builds it.

    Args:
        game: TextArena's id.
        sample: Pattern of random actions; None if unknown.
        max_turns: Number of actions after which an episode is truncated.
        success_at: Smallest reward that counts as a success.
        settings: Keyword arguments of the game's constructor.
    """

    legal_random_actions = False

    def __init__(
        self,
        game: str,
        sample: str | None,
        max_turns: int,
        success_at: float,
        settings: dict[str, Any] | None,
    ) -> None:
        super().__init__(f"textarena:{game}", max_turns, success_at)
        self.game = Game(game, 1, settings)
        self.sample = sample

    def begin(self, seed: int) -> ResetResult:
        self.game.start(seed)
        return self.game.observe(), {}

    def advance(self, action: str) -> StepResult:
        done, invalid = self.game.take(action)
        info: dict[str, Any] = {"invalid": invalid}
        if not done:
            return self.game.observe(), 0.0, False, False, info
        return self.game.reason(0), self.game.rewards.get(0, 0.0), True, False, info

    def sample_random_action(self) -> str:
        self.require_reset()
        if self.sample is None:
            raise NotImplementedError(
                f"{self.name}: the legal actions are unknown; pass a pattern such as sample='[<0..8>]'"
            )
        return draw_action(self.sample, self.action_random)
