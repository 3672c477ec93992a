"""Counts the episodes of each source of rows, and ends a run that loses all episodes of a source.

    ledger = SourceLedger()
    metrics = ledger.close_step("step 3", played=["openai/gsm8k"], lost=[("game:Sudoku-v0-easy", "KeyError")])

A source is the file or the environment that a row comes from. Rows that vanish are easy to overlook: the run
continues with the other sources, and its metrics look right.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping

from gem_core._registration import spec
from gem_core._tasks import EnvChoice
from gem_core.errors import EnvError, GemError
from gem_core.rollout._calls import jsonable
from gem_core.rollout._trajectory import Episode

PATIENCE = 3
"""Number of consecutive steps that lose all episodes of a source; then the run ends."""
MANY = 8
"""Number of lost episodes in one step, all of a source that was never played; then the run ends at once."""

PLAYED = "gem/played/"
"""Prefix of the metric with the number of episodes of a source."""


def split_by_source(episodes: Iterable[Episode]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the environment of each trainable episode, and that of each other one with the reason."""
    played, lost = [], []
    for episode in episodes:
        if episode.trainable:
            played.append(_source_of(episode))
        else:
            lost.append((_source_of(episode), f"seed {episode.seed}: {episode.error or 'it has no turn'}"))
    return played, lost


def _source_of(episode: Episode) -> str:
    """Return the id of an episode's environment, with the arguments that differ from those of the id.

    An episode whose environment failed in its constructor lacks the arguments of the id.
    """
    try:
        defaults = jsonable(spec(episode.env_id).kwargs)
    except GemError:  # not registered in this process
        defaults = {}
    given = {
        name: value for name, value in episode.env_kwargs.items() if defaults.get(name, _MISSING) != value
    }
    return EnvChoice(episode.env_id, given).label


_MISSING = object()


class SourceLedger:
    """The episodes of each source in a run."""

    def __init__(self) -> None:
        self._played: set[str] = set()
        self._lost_steps: Counter[str] = Counter()

    def restore(self, history: Iterable[Mapping[str, float]]) -> None:
        """Continue after the steps of an interrupted run.

        Args:
            history: Metrics of each step, with those that `close_step` returned among them.
        """
        for metrics in history:
            played = {
                name.removeprefix(PLAYED): count for name, count in metrics.items() if name.startswith(PLAYED)
            }
            self._count({source for source, count in played.items() if count}, played.keys())

    def close_step(
        self, step: str, played: Iterable[str], lost: Iterable[tuple[str, str]], filled: int = 0
    ) -> dict[str, float]:
        """Count the episodes of a step.

        Args:
            step: Name of the step, for the message.
            played: Source of each episode that is trained on.
            lost: Source of each episode that is not, and why.
            filled: Number of rows that only fill the batch up.

        Returns:
            ``gem/played/<source>`` and ``gem/failed/<source>``, the number of episodes of each source in this
            step, and ``gem/filled``, the number of rows that only fill the batch up.

        Raises:
            EnvError: A source lost all of its episodes of this step, and this is the third such step in a
                row; or the source was never played, and the step has many of its episodes (`MANY`), so that
                chance is no explanation.
        """
        counts, causes = Counter(played), defaultdict(list)
        for source, cause in lost:
            causes[source].append(cause)
        self._count(counts.keys(), counts.keys() | causes.keys())
        metrics = {"gem/filled": float(filled)}
        for source in sorted(counts.keys() | causes.keys()):
            metrics[f"{PLAYED}{source}"] = float(counts[source])
            metrics[f"gem/failed/{source}"] = float(len(causes[source]))
        for source, steps in self._lost_steps.items():
            never = source not in self._played and len(causes[source]) >= MANY
            if source in causes and steps and (never or steps >= PATIENCE):
                before = (
                    "none was played before" if source not in self._played else f"for {steps} steps in a row"
                )
                raise EnvError(
                    f"{step}: all {len(causes[source])} episodes of {source} are lost ({before}), so the run "
                    f"would train on its other sources only: {causes[source][0]}"
                )
        return metrics

    def _count(self, played: Collection[str], present: Collection[str]) -> None:
        """Count a step with episodes of these sources; all episodes were lost of those not in `played`."""
        self._played.update(played)
        for source in present:
            self._lost_steps[source] = 0 if source in played else self._lost_steps[source] + 1
