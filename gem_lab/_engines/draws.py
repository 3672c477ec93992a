"""`Draws`: names the requests of an episode, so that no two of them share their random numbers."""

from __future__ import annotations

from collections import Counter


class Draws:
    """Names requests by the id of their episode, the length of the prompt, and how often both came before.

    The names do not depend on what other episodes do, so an episode draws the same numbers in any batch. An
    episode whose prompts grow never repeats a length; calls in parallel, and prompts that are rebuilt, can.
    """

    def __init__(self) -> None:
        self._counts: dict[str, Counter[int]] = {}

    def name(self, request_id: str, length: int) -> str:
        """Return the name of the next request with a prompt of `length` tokens."""
        counts = self._counts.setdefault(request_id, Counter())
        counts[length] += 1
        earlier = counts[length] - 1
        return f"{request_id}/{length}/{earlier}" if earlier else f"{request_id}/{length}"

    def forget(self, request_id: str) -> None:
        """Forget the requests of an episode that has ended; if it is played again, it gets the same names."""
        self._counts.pop(request_id, None)

    def clear(self) -> None:
        """Forget all requests."""
        self._counts.clear()
