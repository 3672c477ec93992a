"""Read logs of Inspect as episodes: `read_inspect_log`.

    episodes = read_inspect_log("logs/2026-01-01_my-task.eval")

Each sample becomes an episode with one turn per response of the model. Logs that `gem_lab.eval._inspect_log`
wrote keep everything but token ids. Both formats of Inspect are read, ``.json`` and ``.eval``, without
Inspect.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gem_core import Observation
from gem_core._util.foreign_json import MOST_BYTES, read_json, read_json_file
from gem_core._util.messages import error_line
from gem_core.errors import ConfigError, TraceError
from gem_core.images import text_part
from gem_core.rollout import Episode
from gem_lab.eval._conversations import TurnCollector
from gem_lab.eval._inspect_log import EPISODE, EPISODE_FIELDS

_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Values of Inspect's letter grades: correct, partial, incorrect, no answer."""
_ATTACHMENT = "attachment://"
_MOST_BYTES = 16 << 20
"""Size of the members of a log, in bytes, up to which their compression may have any ratio."""
_MOST_RATIO = 50
_MOST_ATTACHED = 256 << 20
"""Maximum size of the attachments of a sample, which may occur often, in characters."""


def read_inspect_log(path: str | Path, *, scorer: str | None = None) -> list[Episode]:
    """Return the samples of a log as episodes.

    Args:
        path: A ``.eval`` or ``.json`` log.
        scorer: Name of the score that becomes the reward; None for the first one. A log of gem_core holds
            rewards already.

    Raises:
        TraceError: The file is not a log of Inspect, or uses a compression that this Python cannot read.
        ConfigError: A scored sample lacks the score `scorer`, or its value is not a number or grade.
        OSError: The file cannot be read.
    """
    try:
        log = _load(Path(path))
        about = {"task": log["eval"]["task"], "model": log["eval"]["model"]}
        return [_episode(sample, about, scorer) for sample in log["samples"]]
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        zipfile.BadZipFile,
        NotImplementedError,
    ) as error:
        if isinstance(error, (ConfigError, TraceError)):
            raise
        hint = ""
        if isinstance(error, NotImplementedError):
            hint = "; convert it with `inspect log convert --to json`"
        raise TraceError(f"{path} is not a readable log of Inspect: {error_line(error)}{hint}") from None


def _load(path: Path) -> dict[str, Any]:
    """Return a log in the form of the JSON format."""
    if not zipfile.is_zipfile(path):
        log: dict[str, Any] = read_json_file(path)
        log["samples"] = [_with_attachments(sample) for sample in log.get("samples") or ()]
        return log
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        samples = [name for name in sorted(names) if name.startswith("samples/") and name.endswith(".json")]
        # An unfinished run has no header yet, only the record of its start.
        header = "header.json" if "header.json" in names else "_journal/start.json"
        _check_size(archive, [header, *samples])
        log = _member(archive, header)
        log["samples"] = [_with_attachments(_member(archive, name)) for name in samples]
    log["samples"].sort(key=lambda sample: (str(sample["id"]).zfill(12), sample["epoch"]))
    return log


def _check_size(archive: zipfile.ZipFile, names: Sequence[str]) -> None:
    """Check the sizes that the archive states; a member is never longer than it states."""
    members = [archive.getinfo(name) for name in names]
    size, packed = sum(one.file_size for one in members), sum(one.compress_size for one in members)
    if size > max(_MOST_BYTES, _MOST_RATIO * packed) or size > MOST_BYTES:
        raise TraceError(f"{archive.filename} unpacks {packed} bytes to {size}, more than a log does")


def _member(archive: zipfile.ZipFile, name: str) -> Any:
    size = archive.getinfo(name).file_size
    with archive.open(name) as member:
        return read_json(member.read(size + 1), most_bytes=size)


def _with_attachments(sample: dict[str, Any]) -> dict[str, Any]:
    """Put the long texts and images of a sample, which Inspect stores once, back into their places."""
    attachments = sample.get("attachments") or {}
    size = 0

    def restored(value: Any) -> Any:
        nonlocal size
        if isinstance(value, str) and value.startswith(_ATTACHMENT):
            text = attachments.get(value.removeprefix(_ATTACHMENT), value)
            size += len(text)
            if size > _MOST_ATTACHED:
                raise TraceError(f"a sample of the log has more than {_MOST_ATTACHED} characters")
            return text
        if isinstance(value, list):
            return [restored(item) for item in value]
        if isinstance(value, dict):
            return {key: restored(item) for key, item in value.items()}
        return value

    keys = ("messages", "scores", "error", "limit", "metadata")
    return (
        {**sample, **{key: restored(sample[key]) for key in keys if key in sample}} if attachments else sample
    )


def _episode(sample: Mapping[str, Any], about: Mapping[str, Any], scorer: str | None) -> Episode:
    metadata = sample.get("metadata") or {}
    own = metadata.get(EPISODE)
    conversation = TurnCollector()
    for message in sample["messages"]:
        if message["role"] != "assistant":
            if own is None or message["role"] != "system":  # an episode does not contain the system prompt
                conversation.show(_observation(message.get("content")))
            continue
        notes = (message.get("metadata") or {}) if own is not None else {}
        text, reasoning = _answer(message.get("content"))
        conversation.answer(
            notes.get("action", text),
            tool_calls=[
                {"name": call["function"], "arguments": call["arguments"]}
                for call in message.get("tool_calls") or ()
            ],
            reasoning=reasoning,
            reward=notes.get("reward", 0.0),
            info=notes.get("info"),
            is_cut=notes.get("finish_reason") == "length",
        )
    episode = conversation.episode(
        env_id=str(about["task"]),
        seed=None,
        metadata={**about, "sample_id": sample["id"], "epoch": sample["epoch"], **metadata},
        reward=None if own is not None else _reward(sample, scorer),
        error=(sample.get("error") or {}).get("message"),
        is_truncated=sample.get("limit") is not None,
    )
    return episode if own is None else replace(episode, **{name: own[name] for name in EPISODE_FIELDS})


def _reward(sample: Mapping[str, Any], scorer: str | None) -> float | None:
    scores = sample.get("scores") or {}
    if not scores:
        return None
    name = scorer or next(iter(scores))
    if name not in scores:
        raise ConfigError(f"unknown scorer {name!r} of sample {sample['id']}. Available: {', '.join(scores)}")
    value = scores[name]["value"]
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, str) and value in _GRADES:
        return _GRADES[value]
    raise ConfigError(
        f"score {name!r} of sample {sample['id']} is {value!r}: expected a number, or C, P, I, or N"
    )


def _observation(content: Any) -> Observation:
    """Return the content of a message; kinds of content other than text and images become their name."""
    if content is None or isinstance(content, str):
        return content or ""
    parts: list[dict[str, Any]] = []
    for part in content:
        if part["type"] == "image":
            parts.append({"type": "image_url", "image_url": {"url": part["image"]}})
        else:
            parts.append(text_part(str(part.get("text") or f"[{part['type']}]")))
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _answer(content: Any) -> tuple[str, str | None]:
    """Return the text of a response, and its reasoning if the model reported it separately."""
    if content is None or isinstance(content, str):
        return content or "", None
    reasoning = "\n".join(str(part["reasoning"]) for part in content if part["type"] == "reasoning")
    text = "\n".join(str(part["text"]) for part in content if part["type"] == "text")
    return text, reasoning or None
