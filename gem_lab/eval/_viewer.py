"""Export of traces to one HTML page that needs no network: `write_page`.

The page contains the trace as JSON in inert blocks, and a script that shows it. Each episode is one
line of JSON that is parsed when the episode is opened, so a page can hold thousands of episodes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from gem_core import Observation
from gem_core._observations import readable_text
from gem_core._util.files import write_atomically
from gem_core._util.urls import data_without_secrets, without_secrets
from gem_core._util.visible import visible
from gem_core.advantages import Threads, returns, with_threads
from gem_core.images import image_urls
from gem_core.rollout import Episode, Turn
from gem_lab.eval import _markup
from gem_lab.eval._segments import HARNESS_KEYS, segments_of


@dataclass(frozen=True)
class PageSummary:
    """Statistics of a page written by `write_page`."""

    episodes: int
    turns: int
    size: int
    """Size of the page in bytes."""


def write_page(
    episodes: Iterable[Episode],
    out: str | Path,
    *,
    title: str = "trace",
    token_text: Callable[[int], str | None] = lambda id: None,
    gamma: float = 1.0,
    head: str = "",
) -> PageSummary:
    """Write a page that shows episodes.

    Args:
        episodes: Episodes, numbered in this order.
        out: Path of the HTML file, which is written atomically.
        title: Heading of the page.
        token_text: Function that returns the text of a token id, or None if unknown; called for the ids that
            occur.
        gamma: Discount per turn of the return-to-go, for episodes without ``gamma`` in their metadata.
        head: Escaped HTML to place above the episodes.

    Returns:
        Statistics of the page.

    Raises:
        OSError: The page cannot be written.
    """
    index, texts, turns, segments = [], [], [], []
    vocabulary: dict[int, str | None] = {}
    strongest: float | None = None  # no turn has an advantage
    for episode in episodes:
        for turn in episode.turns:
            for id in (*turn.context_ids, *turn.response_ids):
                if id not in vocabulary:
                    vocabulary[id] = token_text(id)
            if turn.advantage is not None and math.isfinite(turn.advantage):
                strongest = max(strongest or 0.0, abs(turn.advantage))
        recorded = episode.metadata.get("gamma")
        discount = recorded if isinstance(recorded, (int, float)) and 0 <= recorded <= 1 else gamma
        index.append(_index_entry(episode, discount))
        texts_of_turns = [_turn_texts(turn, vocabulary) for turn in episode.turns]
        texts.append(_inert(texts_of_turns))
        turns.append(_inert(_turn_entries(episode, texts_of_turns, discount)))
        segments.append(_inert(segments_of(episode, vocabulary)))
    known = {id: text for id, text in vocabulary.items() if text is not None}
    number_of_turns = sum(entry["turns"] for entry in index)
    about = {
        "text": f"{len(index)} episodes, {number_of_turns} turns",
        "max_advantage": strongest,
        "has_vocabulary": bool(known),
    }
    folder = files("gem_lab.eval")
    script = "".join(folder.joinpath(f"{name}.js").read_text("utf-8") for name in ("segments", "viewer"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    values = {
        "POLICY": "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'",
        "TITLE": html.escape(visible(title, lines=False)),
        "HEAD": head,
        "INDEX": _inert({"name": visible(title, lines=False), "about": about, "episodes": index}),
        "VOCABULARY": _inert(known),
        "TEXTS": "\n".join(texts),
        "TURNS": "\n".join(turns),
        "SEGMENTS": "\n".join(segments),
        "SCRIPT": script,
    }
    template = folder.joinpath("viewer.html").read_text(encoding="utf-8")
    # A single pass over the template, so that __TURNS__ inside a trace is not replaced.
    page = re.sub(r"__([A-Z]+)__", lambda match: values[match[1]], template).encode(errors="replace")
    write_atomically(out, [page])
    return PageSummary(len(index), number_of_turns, len(page))


def _index_entry(episode: Episode, gamma: float) -> dict[str, Any]:
    metadata = data_without_secrets(episode.metadata)
    hidden = {"gamma", *HARNESS_KEYS} if isinstance(metadata.get("gateway"), dict) else {"gamma"}
    return {
        "env": without_secrets(episode.env_id),
        "run": str(episode.metadata.get("run", "")),
        "step": episode.metadata.get("step"),
        "seed": episode.seed,
        "return": sum(episode.rewards),  # not fsum, which rejects infinities of both signs
        "turns": len(episode.turns),
        "success": episode.success,
        "stop": episode.stop_reason,
        "trainable": episode.trainable,
        "error": episode.error,
        "mode": episode.context_mode,
        "kwargs": data_without_secrets(episode.env_kwargs),
        "gamma": gamma,
        "metadata": {key: value for key, value in metadata.items() if key not in hidden},
    }


def _turn_texts(turn: Turn, vocabulary: dict[int, str | None]) -> list[str | None]:
    """Return observation and response, the searchable texts of a turn.

    The response is the text passed to the environment. If that text is empty (for a response cut by the
    length limit), the response is decoded from its tokens, and a third entry holds the empty action.
    """
    observation = readable_text(turn.observation)
    if turn.action:
        return [observation, turn.action, None]
    if not turn.response_ids:  # a message-based episode, in which the runner keeps the text of a cut answer
        return [observation, str((turn.info.get("reply") or {}).get("text", "")), turn.action]
    pieces = [vocabulary[id] for id in turn.response_ids]
    known = [piece for piece in pieces if piece is not None]
    return [observation, "".join(known) if len(known) == len(pieces) else "", turn.action]


def _turn_entries(
    episode: Episode, texts: Sequence[Sequence[str | None]], gamma: float
) -> list[dict[str, Any]]:
    to_go: Iterable[float | None] = [None] * len(episode.turns)
    if all(map(math.isfinite, episode.rewards)):  # otherwise only the rewards are shown, without returns
        threads = Threads(tuple(turn.thread for turn in episode.turns), episode.threads)
        to_go = returns(with_threads([episode.rewards], [threads]), gamma)[0].tolist()
    return [
        {
            "context_ids": turn.context_ids,
            "response_ids": turn.response_ids,
            "logprobs": turn.logprobs and [round(value, 4) for value in turn.logprobs],
            "reward": turn.reward,
            "return_to_go": return_to_go,
            "advantage": turn.advantage,
            "finish_reason": turn.finish_reason,
            "info": _readable_info(turn.info),
            "images": _images(turn.observation),
            "final_images": _images(turn.info.get("final_obs", "")),
            "thread": turn.thread,
            "parent": turn.parent,
            "markup": [_markup.parse(text or "") for text in texts_of_turn[:2]],
        }
        for turn, texts_of_turn, return_to_go in zip(episode.turns, texts, to_go, strict=True)
    ]


def _readable_info(info: dict[str, Any]) -> dict[str, Any]:
    """Return the info without image data."""
    final = info.get("final_obs")
    return {**info, "final_obs": readable_text(final)} if isinstance(final, list) else info


def _images(observation: Observation) -> list[str]:
    """Return the images embedded in the observation; images given by a URL are never fetched."""
    return [url for url in image_urls(observation) if url.startswith("data:image/")]


def _inert(value: Any) -> str:
    """Return one line of JSON without characters that could end the enclosing script element."""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:  # rare; checking every number beforehand would double the time
        text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    """Return the value with NaN and infinities, which JSON lacks, as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
