"""Several outputs of an agent loop for a sample: the turns of one episode, also in verl's own trainer modes.

An agent loop may return a list of outputs, such as one per context. verl makes a row of each, copies the
score of the last output to all of them, and passes nothing to an estimator that tells which rows belong
together. `join_sessions` reads it from the keys of the rows, so that gem_core's estimators see one episode,
whose score is the reward of its last turn.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

from gem_core.advantages._declaration import Need
from gem_core.rollout import Episode
from gem_core.rollout._estimator_inputs import EpisodeTurns
from gem_core.trainers import BatchFacts, unpack_facts
from gem_core.trainers._imports import replaced
from gem_verl import _estimators
from gem_verl._options import estimator_names


def session_of(key: str) -> str:
    """Return the part of a row's key that identifies its episode."""
    return key.rsplit("_", 1)[0]


def index_of(key: str) -> int:
    """Return the part of a row's key that counts the rows of its episode."""
    return int(key.rsplit("_", 1)[1])


def unpack_played(
    facts: Sequence[Mapping[str, Any] | None],
    keys: Sequence[Hashable],
    episodes: Sequence[Episode],
    needs: Collection[Need],
) -> list[EpisodeTurns | None]:
    """Return the data about the episode of each row that an estimator needs; None for other rows.

    Args:
        facts: As in `unpack_facts`.
        keys: Key of the episode of each row.
        episodes: Result of `unpack_outlines`.
        needs: What the estimator needs.
    """
    first = [key for key, entry in zip(keys, facts, strict=True) if entry and "episode" in entry]
    turns = [EpisodeTurns.of(episode, needs) for episode in episodes]
    by_key = dict(zip(first, turns, strict=True))
    return [by_key[key] if entry else None for key, entry in zip(keys, facts, strict=True)]


def copied_scores(sessions: Sequence[str], facts: BatchFacts) -> list[int]:
    """Return the rows whose score is a copy: those that do not hold the last turn of their session."""
    last: dict[str, tuple[int, int]] = {}
    for row, (session, turns) in enumerate(zip(sessions, facts.turns or (), strict=True)):
        last[session] = max(last.get(session, (-1, row)), (max(turns, default=-1), row))
    return [row for row, session in enumerate(sessions) if last[session][1] != row]


def join_sessions(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return verl's ``compute_advantage_for_multi_trajectories``, the only call with the keys of the rows.

    Args:
        compute: verl's function. Its own estimators, and GEM's trainer modes, see no difference.
    """

    @functools.wraps(compute)
    def joined(data: Any, batch_keys: Sequence[str], adv_estimator: Any, **options: Any) -> Any:
        sessions = [session_of(key) for key in batch_keys]
        ours = str(adv_estimator) in estimator_names() and _estimators.batch_facts is None
        if not ours or len(set(sessions)) == len(sessions):
            return compute(data, batch_keys, adv_estimator, **options)
        indices = [index_of(key) for key in batch_keys]
        facts = unpack_facts([None] * len(sessions), sessions, indices, lambda: data.batch["response_mask"])
        copies = copied_scores(sessions, facts)
        rewards = data.batch["token_level_rewards"].clone()
        rewards[copies] -= data.batch["token_level_scores"][copies]  # a KL penalty stays
        data.batch["token_level_rewards"] = rewards
        with replaced(_estimators, "batch_facts", facts):
            return compute(data, batch_keys, adv_estimator, **options)

    return joined
