"""Observations in the form that a model sees, and as plain text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_core._core import Observation
from gem_core.errors import ConfigError


def render_observation(observation: Observation, info: Mapping[str, Any]) -> Observation:
    """Return what the model sees: the observation between ``info["prefix"]`` and ``info["suffix"]``.

    The three are joined by newlines; around content parts, prefix and suffix become text parts.
    """
    prefix, suffix = info.get("prefix", ""), info.get("suffix", "")
    if isinstance(observation, str):
        if prefix:
            observation = f"{prefix}\n{observation}" if observation else prefix
        if suffix:
            observation = f"{observation}\n{suffix}" if observation else suffix
        return observation
    before = [{"type": "text", "text": prefix}] if prefix else []
    after = [{"type": "text", "text": suffix}] if suffix else []
    return [*before, *observation, *after]


def observation_text(observation: Observation) -> str:
    """Return an observation as text, with content parts joined by newlines.

    Raises:
        ConfigError: A part is not text and would be lost.
    """
    if isinstance(observation, str):
        return observation
    kinds = sorted({str(part.get("type")) for part in observation} - {"text"})
    if kinds:
        raise ConfigError(
            f"the observation contains parts of type {', '.join(kinds)}, which text cannot hold; use an "
            "environment without them, or wrappers and a context that support content parts"
        )
    return "\n".join(part["text"] for part in observation)


def readable_text(observation: Observation) -> str:
    """Return an observation as text for people, with ``[image]`` for each image."""
    if isinstance(observation, str):
        return observation
    return "\n".join(part["text"] if part.get("type") == "text" else "[image]" for part in observation)


def encodable(text: str) -> str:
    """Return `text` without surrogates, which JSON escapes can introduce and UTF-8 cannot encode.

    A surrogate pair becomes its character; a lone surrogate becomes U+FFFD.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def encodable_observation(observation: Observation) -> Observation:
    """Return an observation with `encodable` texts."""
    if isinstance(observation, str):
        return encodable(observation)
    return [
        {**part, "text": encodable(part["text"])} if part["type"] == "text" else part for part in observation
    ]
