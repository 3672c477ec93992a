"""Facts about the rows of a batch that a trainer's own columns cannot hold; they travel with the rows.

    facts = pack_facts(episode, rows)                               # in the worker that played the episode
    batch = unpack_facts(facts, keys, indices, read_mask)           # in the process that trains
    metrics = batch_metrics(unpack_outlines(facts))                 # of gem_core.trainers._failures

Estimators need to know which turns of which episode are in a row and which turn each token belongs to; the
metrics need the outlines of the episodes.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gem_core.advantages._declaration import Need
from gem_core.advantages._inputs import number_keys
from gem_core.advantages._stats import ReturnStats
from gem_core.rollout import Episode, Row
from gem_core.rollout._estimator_inputs import EpisodeTurns
from gem_core.rollout._metrics import without_tokens
from gem_core.rollout._rows import Spans, turn_ids_of

if TYPE_CHECKING:
    import torch


@dataclass
class BatchFacts:
    """Facts about the rows of a batch.

    Attributes:
        turn_ids: Index of the turn within its row, (rows, tokens), -1 outside of responses. None if the runs
            of 1s in the response mask are the turns.
        episodes: Number of each row's episode; None if every row is an episode.
        turns: Indices within their episode of the turns in each row; None if every row is an episode.
        played: Data about the episode of each row, for the estimator; None if no row has any.
        values: Values that the trainer's critic predicts at each token, (rows, tokens), if the estimator
            needs them.
        stats: Statistics of the returns, set by the estimator.
    """

    turn_ids: torch.Tensor | None = None
    episodes: list[int] | None = None
    turns: list[list[int]] | None = None
    played: list[EpisodeTurns | None] | None = None
    values: torch.Tensor | None = None
    stats: ReturnStats = field(default_factory=ReturnStats)


def pack_facts(episode: Episode, rows: Sequence[Row], needs: Collection[Need] = ()) -> list[dict[str, Any]]:
    """Return the facts about each row of an episode, as objects that JSON can represent.

    Args:
        episode: The episode.
        rows: The rows, as returned by `Episode.rows`.
        needs: What the estimator needs.
    """
    facts: list[dict[str, Any]] = [{"turns": list(row.turns)} for row in rows]
    # Once, because its size grows with the number of turns.
    facts[0]["episode"] = without_tokens(episode, needs).to_dict()
    for row, entry in zip(rows, facts, strict=True):
        if row.has_adjacent_turns:
            entry |= {"spans": row.spans, "prompt_length": row.prompt_length}
    return facts


def unpack_facts(
    facts: Sequence[Mapping[str, Any] | None],
    keys: Sequence[Hashable],
    indices: Sequence[int],
    read_mask: Callable[[], torch.Tensor],
) -> BatchFacts:
    """Return the facts about the rows of a batch.

    Args:
        facts: Result of `pack_facts` for each row; None for a row that GEM did not play.
        keys: Key of the episode of each row.
        indices: Index of each row among the rows of its episode. A row that GEM did not play has the turns
            that follow those of the rows with smaller indices.
        read_mask: Returns the response mask, (rows, tokens); called only if the facts do not tell the turns.
    """
    batch = BatchFacts()
    whole = [entry is None or entry["turns"] == list(range(len(entry["turns"]))) for entry in facts]
    if len(set(keys)) < len(keys) or not all(whole):
        batch.episodes = number_keys(keys).tolist()
        listed = [None if entry is None else list(entry["turns"]) for entry in facts]
        batch.turns = _with_counted_turns(listed, batch.episodes, indices, read_mask)
    if any(entry and "spans" in entry for entry in facts):
        spans = [
            (entry["spans"], entry["prompt_length"]) if entry and "spans" in entry else None
            for entry in facts
        ]
        batch.turn_ids = batch_turn_ids(spans, read_mask())
    return batch


def _with_counted_turns(
    turns: Sequence[list[int] | None],
    episodes: Sequence[int],
    indices: Sequence[int],
    read_mask: Callable[[], torch.Tensor],
) -> list[list[int]]:
    """Return the turns of each row; where they are not known, the runs of 1s in its mask."""
    if None not in turns:
        return [entry or [] for entry in turns]
    from gem_core.advantages._tensors import turn_ids_from_mask

    runs = (turn_ids_from_mask(read_mask()).amax(1) + 1).tolist()
    counted: list[list[int]] = [[] for _ in turns]
    following: dict[int, int] = {}
    for row in sorted(range(len(turns)), key=indices.__getitem__):
        entry, first = turns[row], following.get(episodes[row], 0)
        counted[row] = list(range(first, first + runs[row])) if entry is None else entry
        following[episodes[row]] = first + len(counted[row])
    return counted


def unpack_outlines(facts: Iterable[Mapping[str, Any] | None]) -> list[Episode]:
    """Return the episodes of a batch without tokens, in the order of their first rows.

    Args:
        facts: As in `unpack_facts`.
    """
    with _without_garbage_collection():
        return [
            Episode.from_dict(entry["episode"], check_types=False)
            for entry in facts
            if entry is not None and "episode" in entry
        ]


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Pause the garbage collector.

    While hundreds of thousands of objects are created, it would traverse all objects of the process several
    times, which takes up to five times as long as creating them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def batch_turn_ids(spans: Sequence[Spans | None], response_mask: torch.Tensor) -> torch.Tensor:
    """Return the turn ids of the rows of a batch.

    Args:
        spans: The spans of each row; None if the runs of 1s in the mask are its turns.
        response_mask: Response mask, (rows, tokens); read only in rows without spans.

    Returns:
        Integers (rows, tokens) on the device of the mask: index of the turn on response tokens, -1 elsewhere.
    """
    import torch

    from gem_core.advantages._tensors import turn_ids_from_mask

    known_ids = turn_ids_of([entry or ((), 0) for entry in spans], response_mask.shape[1])
    turn_ids = torch.from_numpy(known_ids).to(response_mask.device)
    if unknown := [number for number, entry in enumerate(spans) if entry is None]:
        mask_ids = turn_ids_from_mask(response_mask[unknown])
        turn_ids = turn_ids.to(mask_ids.dtype)
        turn_ids[unknown] = mask_ids
    return turn_ids
