"""`CutTurns`: warns if the default limit on tokens per turn is too small."""

from __future__ import annotations

import logging

from gem_core.rollout import Episode

logger = logging.getLogger(__name__)


class CutTurns:
    """Counts the turns that a default limit on tokens per turn cuts, and warns once if there are many.

    Add every episode if the limit is a default. No warning is needed for a limit that the user set.

        cut_turns = CutTurns(limit, "max_tokens_per_turn")
        cut_turns.add(episode)

    Args:
        limit: Maximum number of tokens in a response.
        option: Name of the option that raises the limit.

    Attributes:
        SHARE: Share of cut turns above which it warns.
        TURNS: Minimum number of turns over which the share is computed.
    """

    SHARE = 0.01
    TURNS = 100

    def __init__(self, limit: int, option: str) -> None:
        self._limit = limit
        self._option = option
        self._turns = self._cut = 0
        self._warned = False

    def add(self, *episodes: Episode) -> None:
        """Count the turns of trainable episodes, in tokens or in messages.

        In messages, an answer counts if any length limit cut it, because without tokens the limits cannot be
        distinguished.
        """
        for episode in episodes:
            if episode.trainable:
                self._turns += len(episode.turns)
                limit = 0 if episode.context_mode == "messages" else self._limit
                self._cut += sum(
                    turn.finish_reason == "length" and len(turn.response_ids) >= limit
                    for turn in episode.turns
                )
        if self._turns < self.TURNS:
            return
        if self._cut > self.SHARE * self._turns and not self._warned:
            self._warned = True
            logger.warning(
                "%d of the last %d turns were cut at %d tokens, the default limit of one response, and count "
                "as invalid unless on_length_cut says otherwise; raise %s if the model needs more",
                self._cut, self._turns, self._limit, self._option,
            )  # fmt: skip
        self._turns = self._cut = 0
