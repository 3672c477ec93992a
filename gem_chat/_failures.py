"""Messages about episodes that are not trainable, the same in every trainer."""

from __future__ import annotations

from collections.abc import Sequence

from gem_core.errors import EnvError
from gem_core.rollout._trajectory import Episode


def describe_failures(episodes: Sequence[Episode]) -> str:
    """Return one line with the number of episodes that are not trainable and the cause for the first one.

    Args:
        episodes: Episodes of a step or an evaluation; at least one is not trainable.
    """
    failures = [episode for episode in episodes if not episode.trainable]
    first = next((episode for episode in failures if episode.error), failures[0])
    return (
        f"{len(failures)} of {len(episodes)} episodes cannot be trained on; the first is "
        f"{first.env_id or 'an environment without an id'} with seed {first.seed}: "
        f"{first.error or 'no turn was played (' + first.stop_reason + ')'}"
    )


def nothing_trainable(episodes: Sequence[Episode], what: str) -> EnvError:
    """Return the error that ends a run if no episode of an update is trainable.

    Args:
        episodes: All episodes of the update, none of them trainable.
        what: Name of the update, such as "step 3".

    Returns:
        The error to raise; its message includes `describe_failures`.
    """
    if not episodes:
        return EnvError(f"{what}: there are no episodes to train on")
    return EnvError(f"{what}: no episode is trainable: {describe_failures(episodes)}")
