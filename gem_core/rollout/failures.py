"""What is said about episodes that cannot be trained on, the same in every trainer."""

from __future__ import annotations

from collections.abc import Sequence

from gem_core.errors import EnvError
from gem_core.rollout.trajectory import Episode


def describe_failures(episodes: Sequence[Episode]) -> str:
    """One line: how many episodes are not trainable, and environment, seed and cause of the first one.

    Args:
        episodes: Those of a step or an evaluation; at least one is not trainable.
    """
    failures = [episode for episode in episodes if not episode.trainable]
    first = next((episode for episode in failures if episode.error), failures[0])
    return (
        f"{len(failures)} of {len(episodes)} episodes cannot be trained on; the first of them, "
        f"{first.env_id or 'an environment without an id'} with seed {first.seed}: "
        f"{first.error or 'no turn was played (' + first.stop_reason + ')'}"
    )


def nothing_trainable(episodes: Sequence[Episode], what: str) -> EnvError:
    """The error that ends a run, for an update in which no episode is left to train on.

    Args:
        episodes: All of the update, none of them trainable.
        what: Names the update, such as "step 3".

    Returns:
        To be raised; the message says what `describe_failures` says.
    """
    if not episodes:
        return EnvError(f"{what}: there are no episodes to train on")
    return EnvError(f"{what}: nothing is left to train on: {describe_failures(episodes)}")
