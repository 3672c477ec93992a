"""The rows of an episode, and why each was opened, for the viewer: `segments_of`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gem_core._util.urls import data_without_secrets
from gem_core.rollout import Episode
from gem_core.rollout._turn import parents_of

HARNESS_KEYS = ("gateway", "gateway_log", "harness_error")
"""Metadata of an episode that an agent played, which the viewer shows as lists instead of as JSON."""

_COMPARED = 32
"""Maximum number of earlier rows with which a prompt is compared."""
_SHOWN = 12
"""Number of tokens that are shown before a difference, and of each side of it."""
_SAME = 8
"""Number of equal tokens after which two prompts are the same again."""
_FEWEST = 2
"""Number of equal tokens at the end of a prompt after which they are."""
_SOUGHT = 4096
"""Number of tokens in which that place is sought."""
_OWN = 0.1
"""Share of a prompt up to which an equal beginning, such as the system prompt, makes no common history."""
_DIFFER = frozenset({"", "rewritten", "foreign", "template"})
"""Kinds of reasons to which the first token that differs is added; for the others, it says nothing."""

_Tokens = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Measured:
    """A row, its tokens as an array, and the spans of its responses."""

    turns: Sequence[int]
    tokens: _Tokens
    spans: Sequence[tuple[int, int]]


def segments_of(episode: Episode, vocabulary: Mapping[int, str | None]) -> dict[str, Any] | None:
    """Return the rows, the threads, and what a gateway noted, as data for the page.

    Args:
        episode: The episode.
        vocabulary: Texts of its tokens, as far as they are known.

    Returns:
        None for an episode of one row that no agent of its own loop played.
    """
    harness = _harness(episode.metadata)
    several = any(turn.parent != -1 for turn in episode.turns[1:]) or bool(episode.threads)
    if harness is None and not several:
        return None
    threads = _threads(episode)
    rows: list[dict[str, Any]] = []
    if several and episode.context_mode != "messages":
        rows = _rows(episode, {thread["number"]: thread["kind"] for thread in threads}, vocabulary)
    return {"rows": rows, "threads": threads, "harness": harness}


def _rows(
    episode: Episode, kinds: Mapping[int, str], vocabulary: Mapping[int, str | None]
) -> list[dict[str, Any]]:
    rows = [
        _Measured(row.turns, np.asarray(row.token_ids, dtype=np.int64), row.spans)
        for row in replace(episode, trainable=True).rows()
    ]
    parents = parents_of(episode.turns)
    log = _mapping(_mapping(episode.metadata.get("gateway_log")).get("opened"))
    entries = []
    for index, row in enumerate(rows):
        first = row.turns[0]
        noted = _mapping(log.get(str(first)))
        difference = None
        if not noted:
            noted = _known(episode, parents, kinds, first)
        if noted.get("kind", "") in _DIFFER:
            difference = _difference(row, rows[max(index - _COMPARED, 0) : index], vocabulary)
        if not noted:
            noted = _reason(difference, row.spans[0][0])
        prompt, sampled = row.spans[0][0], sum(end - start for start, end in row.spans)
        about = noted.get("turn")
        entries.append(
            {
                "turns": row.turns,
                "prompt": prompt,
                "sampled": sampled,
                "between": len(row.tokens) - prompt - sampled,
                "kind": str(noted.get("kind", "")),
                "why": str(noted.get("why", "")),
                "about": about if isinstance(about, int) and 0 <= about < first else None,
                "difference": difference,
            }
        )
    return entries


def _known(
    episode: Episode, parents: Sequence[int | None], kinds: Mapping[int, str], first: int
) -> Mapping[str, Any]:
    """Return why a turn begins a row, as far as threads and parents say so; else nothing."""
    turns, parent = episode.turns, parents[first]
    if first == 0:
        return {"kind": "first", "why": "the first turn"}
    thread = turns[first].thread
    if thread in episode.threads and all(turn.thread != thread for turn in turns[:first]):
        called_by = episode.threads[thread].called_by
        return {"kind": "thread", "why": f"a new thread: {kinds[thread]}", "turn": called_by}
    if parent is None:
        return {}
    sibling = next(index for index in range(first) if parents[index] == parent)
    if turns[sibling].context_ids == turns[first].context_ids:
        return {"kind": "repeated", "why": "the same prompt again", "turn": sibling}
    after = np.asarray(turns[first].context_ids, dtype=np.int64)
    said = np.asarray(turns[sibling].response_ids, dtype=np.int64)
    if len(said) >= _FEWEST and _found(said, after) is not None:
        return {}  # the history goes on as before, and was rewritten in between
    return {"kind": "branch", "why": "another turn continues the same tokens", "turn": parent}


def _difference(
    row: _Measured, earlier: Sequence[_Measured], vocabulary: Mapping[int, str | None]
) -> dict[str, Any] | None:
    """Return where the first prompt of a row leaves the earlier row with which it shares most tokens."""
    first, prompt = row.turns[0], row.tokens[: row.spans[0][0]]
    best: tuple[int, _Measured, _Tokens] | None = None
    for other in reversed(earlier):
        tokens = other.tokens[: other.spans[other.turns.index(_last(other, first))][1]]
        size = min(len(tokens), len(prompt))
        equal = tokens[:size] == prompt[:size]
        shared = size if equal.all() else int(equal.argmin())
        if best is None or shared > best[0]:
            best = shared, other, tokens
    if best is None:
        return None
    at, other, old = best
    left_out, added = _found(prompt[at:], old[at:]), _found(old[at:], prompt[at:])
    if added is not None and not _begins(prompt[at + added :], old[at:]):
        added = None  # only a part of what follows is the same

    def text(tokens: _Tokens) -> str:
        pieces = (vocabulary.get(int(id)) for id in tokens)
        return "".join(
            f"⟨{id}⟩" if piece is None else piece for id, piece in zip(tokens, pieces, strict=True)
        )

    before = text(old[max(at - _SHOWN, 0) : at])
    dropped = left_out is not None and _is_thinking(before, text(old[at : at + left_out]))
    if left_out is not None and not dropped and not _begins(prompt[at:], old[at + left_out :]):
        left_out = None
    inside = [(turn, start) for turn, (start, end) in zip(other.turns, other.spans, strict=True) if at < end]
    place, start = inside[0] if at < len(old) else (_last(other, first), 0)
    return {
        "at": at,
        "turn": place,
        "part": "response" if at >= start else "prompt",
        "before": before,
        "was": text(old[at : at + _SHOWN]),
        "is": text(prompt[at : at + _SHOWN]),
        "left_out": left_out,
        "added": added,
        "thinking": dropped,
        "old": len(old),
    }


def _last(row: _Measured, first: int) -> int:
    """Return the last turn of a row before another one."""
    return max(turn for turn in row.turns if turn < first)


def _is_thinking(before: str, left_out: str) -> bool:
    """Return whether a text is the thinking of a response, with or without its tags, and nothing else."""
    inside = before.rpartition("<think>")[2] if "<think>" in before else "</think>"
    if "</think>" not in inside:
        return "</think>" not in left_out
    text = left_out.strip()
    return text.startswith("<think>") and text.find("</think>") == len(text) - len("</think>")


def _begins(tokens: _Tokens, beginning: _Tokens) -> bool:
    return len(tokens) >= len(beginning) and bool((tokens[: len(beginning)] == beginning).all())


def _found(beginning: _Tokens, tokens: _Tokens) -> int | None:
    """Return where tokens go on with the beginning of others, of which they may hold a part at their end."""
    sought, tokens = beginning[:_SAME], tokens[:_SOUGHT]
    for place in np.flatnonzero(tokens == sought[0]) if len(sought) else ():
        size = min(len(sought), len(tokens) - place)
        if size >= _FEWEST and (tokens[place : place + size] == sought[:size]).all():
            return int(place)
    return None


def _reason(difference: dict[str, Any] | None, size: int) -> dict[str, Any]:
    """Return why a prompt of `size` tokens begins a row, as far as its tokens say so."""
    if difference is None:
        return {"kind": "", "why": ""}
    at, turn = difference["at"], difference["turn"]
    if at < _OWN * size:
        return {"kind": "conversation", "why": f"another conversation: {at} of its {size} tokens are known"}
    where = {"turn": turn}
    if difference["thinking"]:
        what = f"{difference['left_out']} tokens of thinking were dropped"
        return {"kind": "thinking", "why": what, **where}
    if difference["left_out"]:
        return {"kind": "rewritten", "why": f"{difference['left_out']} tokens were left out", **where}
    if difference["added"]:
        return {"kind": "rewritten", "why": f"{difference['added']} tokens were added", **where}
    if at == difference["old"]:
        return {
            "kind": "continued",
            "why": "all earlier tokens are known, but the turn names no parent",
            **where,
        }
    if at == size:
        return {"kind": "cut back", "why": f"the prompt ends after {at} known tokens", **where}
    if size < difference["old"] / 2:
        what = f"a shorter history, or another conversation: {size} tokens, of which {at} are known"
        return {"kind": "shorter", "why": what, **where}
    return {"kind": "rewritten", "why": f"the prompt differs from token {at + 1} on", **where}


def _threads(episode: Episode) -> list[dict[str, Any]]:
    """Return the main thread and the side threads; nothing if there is only the main one."""
    if not episode.threads:
        return []
    turns: dict[int, list[int]] = {number: [] for number in (0, *episode.threads)}
    for index, turn in enumerate(episode.turns):
        turns.setdefault(turn.thread, []).append(index)
    return [
        {
            "number": number,
            "turns": own,
            "kind": "main" if number == 0 else _kind(episode, number, own, turns),
            "called_by": episode.threads[number].called_by if number in episode.threads else None,
            "returns_to": episode.threads[number].returns_to if number in episode.threads else None,
            "independent": number in episode.threads and episode.threads[number].independent,
        }
        for number, own in turns.items()
    ]


def _kind(episode: Episode, number: int, own: Sequence[int], turns: Mapping[int, Sequence[int]]) -> str:
    """Return what a side thread is, from the turns to which it belongs."""
    if number not in episode.threads:
        return "unknown"
    if any(episode.turns[index].info.get("side_turn") for index in own):
        return "compaction"
    called_by, returns_to, _ = episode.threads[number]
    if returns_to is None:
        return "background, its result is not used"
    if returns_to == called_by:
        beside = [n for n, thread in episode.threads.items() if thread[:2] == (called_by, returns_to)]
        return "sub-agent" if len(beside) == 1 else f"sub-agent, {len(beside)} in parallel"
    caller = 0 if called_by is None else episode.turns[called_by].thread
    between = [index for index in turns[caller] if (called_by is None or index > called_by)]
    if between and between[0] < returns_to:
        return "background"
    prompts = _prompts_of(episode, [own[0], returns_to] if own else [returns_to])
    if len(prompts) == 2 and prompts[0] == prompts[1]:
        return "rejected attempt"
    if called_by is not None:
        before = len(_prompts_of(episode, [called_by])[0]) + len(episode.turns[called_by].response_ids)
        if len(prompts[-1]) < before:
            return "compaction"
    return "side call"


def _prompts_of(episode: Episode, turns: Sequence[int]) -> list[list[int]]:
    """Return the whole prompts of some turns."""
    parents = parents_of(episode.turns)
    prompts = []
    for index in turns:
        parts, at = [episode.turns[index].context_ids], parents[index]
        while at is not None:
            parts += [episode.turns[at].response_ids, episode.turns[at].context_ids]
            at = parents[at]
        prompts.append([id for part in reversed(parts) for id in part])
    return prompts


def _harness(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a gateway noted of an episode; None if none served it."""
    if not isinstance(metadata.get("gateway"), dict):
        return None
    counts, log = metadata["gateway"], _mapping(metadata.get("gateway_log"))
    aside = [
        {"what": what, **entry}
        for key, what in (("refused", "refused"), ("foreign", "not sampled here"), ("lost", "lost"))
        for entry in _list(log.get(key))
        if isinstance(entry, dict)
    ]
    return {
        "counts": data_without_secrets(counts),
        "error": metadata.get("harness_error"),
        "aside": data_without_secrets({"aside": aside})["aside"],
    }


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
