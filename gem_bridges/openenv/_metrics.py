"""Counters of a server, in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable

from gem_bridges.openenv._wire import ERROR_CODES

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
"""Upper bounds of the buckets of response times, in seconds."""


class Metrics:
    """Counters since the start of the server.

    Attributes:
        events: Number of answers by event; see `SessionReply.event`.
        opened: Number of sessions opened.
        episodes: Number of episodes that ended by a step.
        ends: Number of connections that the server ended, by reason.
    """

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.opened = 0
        self.episodes = 0
        self._buckets = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0

    def count(self, event: str, seconds: float) -> None:
        """Count one answer and the time from its message to the answer."""
        self.events[event] += 1
        self._buckets[bisect_left(BOUNDS, seconds)] += 1
        self._seconds += seconds

    def render(self, gauges: dict[str, tuple[str, float]]) -> str:
        """Return all metrics as text.

        Args:
            gauges: Further values by name, with a description.
        """
        lines: list[str] = []

        def add(name: str, kind: str, text: str, samples: list[tuple[str, float]]) -> None:
            lines.append(f"# HELP gem_core_{name} {text}")
            lines.append(f"# TYPE gem_core_{name} {kind}")
            lines.extend(f"gem_core_{name}{labels} {value:g}" for labels, value in samples)

        for name, (text, value) in gauges.items():
            add(name, "gauge", text, [("", value)])
        add("sessions_opened_total", "counter", "Sessions opened.", [("", self.opened)])
        add("episodes_total", "counter", "Episodes that ended by a step.", [("", self.episodes)])
        kinds = [key for key in self.events if key not in ERROR_CODES]
        add("answers_total", "counter", "Answered messages by type.", _labeled("type", self.events, kinds))
        add("errors_total", "counter", "Error answers by code.", _labeled("code", self.events, ERROR_CODES))
        ends = _labeled("reason", self.ends, self.ends)
        add("connections_ended_total", "counter", "Connections that the server ended.", ends)
        samples: list[tuple[str, float]] = []
        total = 0
        for bound, number in zip((*BOUNDS, float("inf")), self._buckets, strict=True):
            total += number
            edge = "+Inf" if bound == float("inf") else f"{bound:g}"
            samples.append((f'_bucket{{le="{edge}"}}', total))
        samples += [("_sum", self._seconds), ("_count", total)]
        add("answer_seconds", "histogram", "Time from a message to its answer.", samples)
        return "\n".join(lines) + "\n"


def _labeled(label: str, counts: Counter[str], keys: Iterable[str]) -> list[tuple[str, float]]:
    return [(f'{{{label}="{key}"}}', counts[key]) for key in keys]
