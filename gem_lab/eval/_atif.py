"""Episodes in ATIF, the trajectory format of Harbor: `to_atif` and `from_atif`.

    trajectory = to_atif(episode, agent="my-agent")
    same_episode = from_atif(trajectory)

A trajectory written by `to_atif` contains the whole episode, so `from_atif` restores it exactly. A trajectory
of another program becomes an episode whose turns are the agent's steps. The format is specified in
https://harborframework.com/docs/trajectory-format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import gem_core
from gem_core import Observation
from gem_core._util.files import write_atomically
from gem_core._util.foreign_json import read_json_file
from gem_core._util.messages import error_line
from gem_core.errors import TraceError
from gem_core.images import text_part
from gem_core.rollout import Episode
from gem_core.rollout._trajectory import SCHEMA_VERSION
from gem_lab._arguments import check_type
from gem_lab.eval._conversations import TurnCollector

VERSION = "ATIF-v1.6"
"""The oldest version with every field that `to_atif` writes."""

_MEDIA_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def to_atif(
    episode: Episode, *, agent: str = "gem-core", model: str | None = None, system_prompt: str | None = None
) -> dict[str, Any]:
    """Return an episode as a trajectory, as JSON-serializable data.

    Args:
        episode: The episode; it needs at least one turn.
        agent: Name of the agent.
        model: Name of the model; None for ``episode.metadata["model"]``, if there is one.
        system_prompt: System message of the conversation, which an episode does not contain.

    Raises:
        TraceError: The episode has no turn, so it would have no step.
    """
    check_type("episode", episode, Episode, "such as one of gem_core.rollout.read_traces(path)")
    if not episode.turns:
        raise TraceError("an episode without a turn has no step in ATIF")
    model = model or episode.metadata.get("model")
    steps: list[dict[str, Any]] = []
    if system_prompt is not None:
        steps.append({"source": "system", "message": system_prompt})
    steps.append({"source": "user", "message": _content(episode.turns[0].observation)})
    prompts: list[list[int]] = (
        [[]] * len(episode.turns) if episode.context_mode == "messages" else episode.prompts()
    )
    totals = [0, 0]
    for index, (turn, prompt) in enumerate(zip(episode.turns, prompts, strict=True)):
        reply = turn.info.get("reply") or {}
        metrics: dict[str, Any] = {
            "prompt_tokens": len(prompt) or reply.get("prompt_tokens"),
            "completion_tokens": len(turn.response_ids) or reply.get("response_tokens"),
            "prompt_token_ids": prompt or None,
            "completion_token_ids": turn.response_ids or None,
            "logprobs": turn.logprobs,
        }
        totals[0] += metrics["prompt_tokens"] or 0
        totals[1] += metrics["completion_tokens"] or 0
        step: dict[str, Any] = {
            "source": "agent",
            "message": str(reply.get("text", turn.action)),
            "extra": {
                "reward": turn.reward,
                "action": turn.action,
                "finish_reason": turn.finish_reason,
                "advantage": turn.advantage,
                "info": turn.info,
                "parent": turn.parent,
            },
        }
        if reply.get("reasoning"):
            step["reasoning_content"] = str(reply["reasoning"])
        if known := {name: value for name, value in metrics.items() if value is not None}:
            step["metrics"] = known
        last = index + 1 == len(episode.turns)
        shown = turn.info.get("final_obs") if last else episode.turns[index + 1].observation
        if shown is not None:
            step["observation"] = {"results": [{"content": _content(shown)}]}
        steps.append(step)
    record = episode.to_dict()
    for name in ("turns", "images", "schema_version"):
        record.pop(name, None)
    return {
        "schema_version": VERSION,
        "session_id": _session(episode),
        "agent": {"name": agent, "version": gem_core.__version__, **({"model_name": model} if model else {})},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "final_metrics": {
            "total_prompt_tokens": totals[0],
            "total_completion_tokens": totals[1],
            "total_steps": len(steps),
            "extra": {"return": episode.total_reward, "success": episode.success},
        },
        "extra": {"gem_core": record},
    }


def from_atif(trajectory: Mapping[str, Any], *, reward: float | None = None) -> Episode:
    """Return a trajectory as an episode.

    Args:
        trajectory: The trajectory, as parsed JSON.
        reward: Score of a trajectory of another program, such as the reward of Harbor's verifier, which the
            trajectory does not contain. It becomes the reward of the last turn, and at least 1 is a success.
            None leaves all rewards at 0. A trajectory written by `to_atif` contains its rewards.

    Raises:
        TraceError: The data is not a trajectory.
    """
    try:
        version = str(trajectory["schema_version"])
        if not version.startswith("ATIF-v1."):
            raise TraceError(f"schema version {version!r} is not supported: expected ATIF-v1.x")
        steps = trajectory["steps"]
        if [step["step_id"] for step in steps] != list(range(1, len(steps) + 1)) or not steps:
            raise TraceError("expected steps with the ids 1, 2, 3, ...")
        own = (trajectory.get("extra") or {}).get("gem_core")
        return _foreign(trajectory, reward) if own is None else _restored(own, steps)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"not a trajectory in ATIF: {error_line(error)}") from None


def is_atif(path: str | Path) -> bool:
    """Return whether a file holds a trajectory, going by its schema version.

    Raises:
        OSError: The file cannot be read.
    """
    try:
        data = read_json_file(path)
    except ValueError:
        return False
    return isinstance(data, dict) and str(data.get("schema_version", "")).startswith("ATIF-")


def write_trajectories(
    episodes: Iterable[Episode], folder: str | Path, *, system_prompt: str | None = None
) -> list[Path]:
    """Write one trajectory per episode, as ``FOLDER/NUMBER/trajectory.json``.

    Args:
        episodes: Episodes, numbered in this order; those without a turn are left out.
        folder: Folder for the trajectories.
        system_prompt: System message of the conversations.

    Returns:
        The paths.
    """
    paths = []
    for index, episode in enumerate(episodes):
        if episode.turns:
            paths.append(Path(folder) / str(index) / "trajectory.json")
            write_atif(paths[-1], to_atif(episode, system_prompt=system_prompt))
    return paths


def read_atif(path: str | Path, *, reward: float | None = None) -> Episode:
    """Return the episode of a file such as ``trajectory.json``; see `from_atif`.

    Raises:
        TraceError: The file is not a trajectory.
        OSError: The file cannot be read.
    """
    try:
        return from_atif(read_json_file(path), reward=reward)
    except ValueError as error:
        raise TraceError(f"{path}: {error}") from None


def write_atif(path: str | Path, trajectory: Mapping[str, Any]) -> None:
    """Write a trajectory as JSON, atomically."""
    write_atomically(path, [json.dumps(trajectory, indent=1) + "\n"])


def _session(episode: Episode) -> str:
    parts = [
        episode.env_id,
        episode.seed,
        *(episode.metadata.get(name) for name in ("task", "sample", "step")),
    ]
    return "-".join(re.sub(r"[^\w.]+", "-", str(part)) for part in parts if part is not None) or "episode"


def _content(observation: Observation) -> str | list[dict[str, Any]]:
    if isinstance(observation, str):
        return observation
    parts: list[dict[str, Any]] = []
    for part in observation:
        url = str(part.get("image_url", {}).get("url", "")) if part.get("type") == "image_url" else ""
        media_type = next((kind for kind in _MEDIA_TYPES if url.startswith(f"data:{kind}")), None)
        if media_type is not None:
            parts.append({"type": "image", "source": {"media_type": media_type, "path": url}})
        else:
            parts.append({"type": "text", "text": str(part.get("text", url))})
    return parts


def _observation(content: Any) -> Observation:
    if content is None or isinstance(content, str):
        return content or ""
    parts: list[dict[str, Any]] = []
    for part in content:
        if part["type"] == "image" and part["source"]["path"].startswith("data:"):
            parts.append({"type": "image_url", "image_url": {"url": part["source"]["path"]}})
        else:
            parts.append(text_part(str(part.get("text", f"[{part['type']}]"))))
    return parts


def _foreign(trajectory: Mapping[str, Any], reward: float | None) -> Episode:
    conversation = TurnCollector()
    for step in trajectory["steps"]:
        if step["source"] != "agent" or step.get("is_copied_context"):
            conversation.show(_observation(step["message"]))
        else:
            metrics = step.get("metrics") or {}
            tokens = metrics.get("prompt_token_ids"), metrics.get("completion_token_ids")
            message = _observation(step["message"])
            conversation.answer(
                message if isinstance(message, str) else json.dumps(message),
                tool_calls=[
                    {"name": call["function_name"], "arguments": call["arguments"]}
                    for call in step.get("tool_calls") or ()
                ],
                reasoning=step.get("reasoning_content"),
                counts={
                    "prompt_tokens": metrics.get("prompt_tokens"),
                    "response_tokens": metrics.get("completion_tokens"),
                },
                tokens=(list(tokens[0]), list(tokens[1])) if tokens[0] and tokens[1] else None,
                logprobs=metrics.get("logprobs"),
            )
        for result in (step.get("observation") or {}).get("results", ()):
            conversation.show(_observation(result.get("content")))
    agent = trajectory["agent"]
    about = {
        "agent": agent["name"],
        "model": agent.get("model_name"),
        "session": trajectory.get("session_id"),
    }
    known = {name: value for name, value in about.items() if value is not None}
    return conversation.episode(env_id="", seed=None, metadata=known, reward=reward)


def _restored(own: Mapping[str, Any], steps: list[dict[str, Any]]) -> Episode:
    """Return the episode that `to_atif` wrote."""
    first = next(index for index, step in enumerate(steps) if step["source"] == "agent")
    observation = _observation(steps[first - 1]["message"])
    ends: list[int] = []
    turns = []
    for step in steps[first:]:
        metrics = step.get("metrics") or {}
        response = metrics.get("completion_token_ids") or []
        prompt = metrics.get("prompt_token_ids") or []
        # Files of earlier versions name no parent.
        parent = step["extra"].get("parent", None if own["context_mode"] == "rebuild" else -1)
        start = 0 if parent is None or not ends else ends[parent]
        ends.append(len(prompt) + len(response))
        turns.append(
            {
                **step["extra"],
                "parent": parent,
                "context_ids": prompt[start:],
                "response_ids": response,
                "logprobs": metrics.get("logprobs"),
                "observation": observation,
            }
        )
        results = (step.get("observation") or {}).get("results")
        observation = _observation(results[0]["content"]) if results else ""
    return Episode.from_dict({**own, "schema_version": SCHEMA_VERSION, "turns": turns})
