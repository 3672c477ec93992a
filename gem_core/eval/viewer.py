"""A trace file as one HTML page that needs no network: `write_page`.

The page carries the trace as JSON in inert blocks and a script that shows it. Each episode is one
line of JSON that is parsed when the episode is opened, so thousands of episodes stay usable.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from gem_core._util.files import write_atomically
from gem_core.advantages import returns
from gem_core.core import Observation
from gem_core.images import image_urls
from gem_core.rollout.trajectory import Episode, Turn


@dataclass(frozen=True)
class PageSummary:
    """What `write_page` put into the page."""

    episodes: int
    turns: int
    size: int
    """Bytes of the page."""
    has_token_texts: bool
    """Whether tokens are shown as text; otherwise as their ids."""


def write_page(
    episodes: Iterable[Episode],
    out: str | Path,
    *,
    title: str = "trace",
    token_text: Callable[[int], str | None] = lambda id: None,
    gamma: float = 1.0,
    head: str = "",
) -> PageSummary:
    """Write the page of some episodes.

    Args:
        episodes: In the order they are to be numbered.
        out: The HTML file; it appears at once or not at all.
        title: Heading of the page.
        token_text: Text of a token id, None where it is not known; asked for ids in use only.
        gamma: Discount of the return-to-go, for episodes whose metadata does not say ``gamma``.
        head: HTML above the episodes, of the caller's making and already escaped.

    Raises:
        OSError: The page cannot be written.
    """
    index, texts, turns = [], [], []
    vocabulary: dict[int, str | None] = {}
    strongest = 0.0
    for episode in episodes:
        for turn in episode.turns:
            for id in (*turn.context_ids, *turn.response_ids):
                if id not in vocabulary:
                    vocabulary[id] = token_text(id)
            if turn.advantage is not None and math.isfinite(turn.advantage):
                strongest = max(strongest, abs(turn.advantage))
        said = episode.metadata.get("gamma")
        discount = said if isinstance(said, (int, float)) and 0 <= said <= 1 else gamma
        index.append(_index_entry(episode, discount))
        texts.append(_inert([_turn_texts(turn, vocabulary) for turn in episode.turns]))
        turns.append(_inert(_turn_entries(episode, discount)))
    known = {id: text for id, text in vocabulary.items() if text is not None}
    number_of_turns = sum(entry["turns"] for entry in index)
    about = {
        "text": f"{len(index)} episodes, {number_of_turns} turns",
        "max_advantage": strongest,
        "has_vocabulary": bool(known),
    }
    folder = files("gem_core.eval")
    script = folder.joinpath("viewer.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    values = {
        "POLICY": "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'",
        "TITLE": html.escape(title),
        "HEAD": head,
        "INDEX": _inert({"name": title, "about": about, "episodes": index}),
        "VOCABULARY": _inert(known),
        "TEXTS": "\n".join(texts),
        "TURNS": "\n".join(turns),
        "SCRIPT": script,
    }
    template = folder.joinpath("viewer.html").read_text(encoding="utf-8")
    # One pass over the template, so that a trace that holds __TURNS__ is not taken for a place.
    page = re.sub(r"__([A-Z]+)__", lambda match: values[match[1]], template).encode(errors="replace")
    write_atomically(out, [page])
    return PageSummary(len(index), number_of_turns, len(page), bool(known))


def readable(observation: Observation) -> str:
    """An observation as text for a person; an image becomes the word ``[image]``."""
    if isinstance(observation, str):
        return observation
    return "\n".join(part["text"] if part.get("type") == "text" else "[image]" for part in observation)


def _index_entry(episode: Episode, gamma: float) -> dict[str, Any]:
    return {
        "env": episode.env_id,
        "run": str(episode.metadata.get("run", "")),
        "seed": episode.seed,
        "return": sum(episode.rewards),  # not fsum, which refuses infinities of both signs
        "turns": len(episode.turns),
        "success": episode.success,
        "stop": episode.stop_reason,
        "trainable": episode.trainable,
        "error": episode.error,
        "mode": episode.context_mode,
        "kwargs": episode.env_kwargs,
        "gamma": gamma,
        "metadata": {key: value for key, value in episode.metadata.items() if key != "gamma"},
    }


def _turn_texts(turn: Turn, vocabulary: dict[int, str | None]) -> list[str | None]:
    """Observation and response: what a search sees.

    The response is the text that the environment got. Where that is empty (a response cut by the
    length limit), it is put together from its tokens, and a third entry holds the empty action.
    """
    observation = readable(turn.observation)
    if turn.action:
        return [observation, turn.action, None]
    if not turn.response_ids:  # an episode of messages: the runner keeps the text of a cut answer
        return [observation, str((turn.info.get("reply") or {}).get("text", "")), turn.action]
    pieces = [vocabulary[id] for id in turn.response_ids]
    known = [piece for piece in pieces if piece is not None]
    return [observation, "".join(known) if len(known) == len(pieces) else "", turn.action]


def _turn_entries(episode: Episode, gamma: float) -> list[dict[str, Any]]:
    to_go: Iterable[float | None] = [None] * len(episode.turns)
    if all(map(math.isfinite, episode.rewards)):  # else there is no return to show, only the rewards
        to_go = returns([episode.rewards], gamma)[0].tolist()
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
        }
        for turn, return_to_go in zip(episode.turns, to_go, strict=True)
    ]


def _readable_info(info: dict[str, Any]) -> dict[str, Any]:
    """The info without the digits of an image."""
    final = info.get("final_obs")
    return {**info, "final_obs": readable(final)} if isinstance(final, list) else info


def _images(observation: Observation) -> list[str]:
    """Images that travel inside the observation; one behind an address is never fetched."""
    return [url for url in image_urls(observation) if url.startswith("data:image/")]


def _inert(value: Any) -> str:
    """One line of JSON without a character that could end the script element it stands in."""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:  # rare, and looking at every number first would double the time
        text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinities: they travel as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
