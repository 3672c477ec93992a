"""`SessionLog`: what a trace says of an episode beside its turns, such as why each row was opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gem_agents._api import Refused, Request
from gem_agents._history import Found
from gem_agents._turns import Draft, ModelCall

_MOST = 20
"""Maximum number of refused requests, foreign answers, and lost responses that are kept, of each."""
_SHOWN = 200
"""Number of characters of a text that is kept."""


class SessionLog:
    """Notes what happens in an episode.

    Attributes:
        opened: The draft that began each row.
        newest: The newest draft of each row.
    """

    def __init__(self) -> None:
        self.opened: list[Draft] = []
        self.newest: dict[int, Draft] = {}
        self._refused: list[tuple[int, str, str]] = []
        self._foreign: dict[str, list[int]] = {}

    def add(self, draft: Draft) -> None:
        """Note a draft."""
        if draft.why is not None:
            self.opened.append(draft)
        self.newest[draft.segment] = draft

    def refuse(self, refused: Refused, calls: int) -> None:
        """Note a request that gets an error, after a number of sampled responses."""
        if len(self._refused) < _MOST:
            self._refused.append((calls, refused.code, str(refused)[:_SHOWN]))

    def note_foreign(self, request: Request, found: Found[ModelCall], calls: int) -> None:
        """Note the answers in a request that were not sampled here."""
        for message in map(request.messages.__getitem__, found.foreign):
            text = message.content.strip() or f"calls of {', '.join(one.name for one in message.calls)}"
            if text[:_SHOWN] in self._foreign or len(self._foreign) < _MOST:
                self._foreign.setdefault(text[:_SHOWN], [calls, 0])[1] += 1

    def record(self, calls: Sequence[ModelCall]) -> dict[str, Any]:
        """Return the log as data for the trace.

        Args:
            calls: The sampled responses.

        Returns:
            "opened": by the index of the turn that begins a row, "kind" and "why" (see
            `gem_agents._reasons`), and "turn", the index of the turn to which the reason refers, if any.
            "refused", "foreign", and "lost": lists of requests, answers, and responses, with "after", the
            number of turns before.
        """
        turns = {id(call): index for index, call in enumerate(call for call in calls if call.delivered)}

        def after(count: int) -> int:
            return sum(call.delivered for call in calls[:count])

        opened: dict[str, Any] = {}
        continued: set[int] = set()
        for call in calls:
            if not call.delivered:
                continue
            parent = call.draft.parent
            if (parent is None or id(parent) in continued) and call.draft.why is not None:
                why = call.draft.why
                about = None if why.call is None else turns.get(id(why.call))
                opened[str(turns[id(call)])] = {
                    "kind": why.kind, "why": why.text, **({} if about is None else {"turn": about})
                }  # fmt: skip
            continued.add(id(parent))
        lost = [(index, call) for index, call in enumerate(calls) if not call.delivered][:_MOST]
        return {
            "opened": opened,
            "refused": [
                {"after": after(count), "code": code, "why": why} for count, code, why in self._refused
            ],
            "foreign": [
                {"after": after(first), "text": text, "count": count}
                for text, (first, count) in self._foreign.items()
            ],
            "lost": [
                {
                    "after": after(index),
                    "text": call.message.content[:_SHOWN],
                    "tokens": len(call.generation.token_ids),
                }
                for index, call in lost
            ],
        }
