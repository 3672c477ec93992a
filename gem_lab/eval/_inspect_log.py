"""Export of evaluations to Inspect's log format, for ``inspect view``: `write_inspect_logs`.

Inspect (https://inspect.aisi.org.uk) keeps one log per task and model, which here means one log per
environment of a run. Logs use version 2 of the JSON format. Writing them does not require Inspect.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gem_core import Observation
from gem_core._util.files import write_atomically
from gem_core._util.urls import data_without_secrets
from gem_core.rollout import Episode
from gem_lab.eval._folder import CONFIG
from gem_lab.eval._report import EvalRun

VERSION = 2
EPISODE = "gem_core_episode"
"""Key in the metadata of a sample, for fields of an episode that Inspect does not know."""
EPISODE_FIELDS = (
    "env_id", "seed", "env_kwargs", "metadata", "terminated", "truncated", "stop_reason", "error",
    "trainable", "env_retries",
)  # fmt: skip

_LIMITS = {"max_turns": "message", "token_budget": "token"}
"""Inspect's names of the stop reasons that are limits of the evaluation; all others are the environment's."""


def write_inspect_logs(run: EvalRun, folder: str | Path) -> list[Path]:
    """Write one log per environment of a run; an older log of the same run is replaced.

    Returns:
        Paths of the logs.

    Raises:
        OSError: A file cannot be written.
    """
    paths = []
    for label, summary in run.summary["envs"].items():
        log = inspect_log(run, label, summary)
        stamp = re.sub(r"[:+]", "-", log["eval"]["created"])
        name = f"{stamp}_{slug(label)}_{log['eval']['task_id']}.json"
        paths.append(Path(folder) / name)
        write_atomically(paths[-1], [json.dumps(log, indent=1)])
    return paths


def inspect_log(run: EvalRun, label: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the log of one environment as JSON-serializable data."""
    start = (run.folder / CONFIG).stat().st_mtime
    created = datetime.fromtimestamp(int(start), timezone.utc).isoformat()
    model = str(run.config["model"])
    episodes = [episode for episode in run.episodes if episode.metadata["env"] == label]
    samples = [_sample(episode, model, run.config.get("system_prompt"), label) for episode in episodes]
    usage = _usage(summary["prompt_tokens"], summary["response_tokens"])
    return {
        "version": VERSION,
        "status": "success",
        "eval": {
            "eval_id": _id("eval", run, label),
            "run_id": _id("run", run, ""),
            "created": created,
            "task": label,
            "task_id": _id("task", run, label),
            "dataset": {
                "name": label,
                "samples": len({episode.metadata["task"] for episode in episodes}),
                "sample_ids": sorted({episode.metadata["task"] + 1 for episode in episodes}),
            },
            "model": model,
            "model_base_url": data_without_secrets(run.config.get("base_url")),
            "model_generate_config": {
                "temperature": run.config.get("temperature"),
                "top_p": run.config.get("top_p"),
                "max_tokens": run.config.get("max_tokens_per_turn"),
                "seed": run.config.get("seed"),
            },
            "config": {"epochs": run.config.get("group_size")},
            "packages": {"gem_core": str(run.config["gem_core"])},
            "metadata": {"options": run.config},
        },
        "plan": {"name": "gem_core", "steps": [{"solver": "gem_core"}]},
        "results": {
            "total_samples": len(samples),
            "completed_samples": summary["episodes"],
            "scores": [_score(name, summary[name]) for name in ("success", "return")],
        },
        "stats": {
            "started_at": created,
            "completed_at": created,
            "model_usage": {model: usage} if usage else {},
        },
        "samples": samples,
    }


def _score(name: str, estimate: Mapping[str, Any]) -> dict[str, Any]:
    values = {"mean": estimate["mean"], "stderr": estimate["se"]}
    return {
        "name": name,
        "scorer": "gem_core",
        "metrics": {key: {"name": key, "value": value} for key, value in values.items() if value is not None},
    }


def _sample(episode: Episode, model: str, system_prompt: str | None, label: str) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    if system_prompt is not None:
        messages.append({"role": "system", "content": system_prompt})
    for turn in episode.turns:
        text = str((turn.info.get("reply") or {}).get("text", turn.action))
        messages.append({"role": "user", "content": _content(turn.observation)})
        note = {name: getattr(turn, name) for name in ("reward", "info", "action", "finish_reason")}
        messages.append({"role": "assistant", "content": text, "model": model, "metadata": note})
    last = episode.turns[-1] if episode.turns else None
    if last is not None and "final_obs" in last.info:
        messages.append({"role": "user", "content": _content(last.info["final_obs"])})
    answer = last.action if last is not None else ""
    usage = _usage(
        _sum(episode, "prompt_tokens", "context_ids"), _sum(episode, "response_tokens", "response_ids")
    )
    limit = _LIMITS.get(episode.stop_reason)
    sample: dict[str, Any] = {
        "id": episode.metadata["task"] + 1,
        "epoch": episode.metadata["sample"] + 1,
        "input": _content(episode.turns[0].observation) if episode.turns else "",
        "target": "",
        "messages": messages,
        "output": {
            "model": model,
            "choices": [
                {
                    "message": {"role": "assistant", "content": answer, "model": model},
                    "stop_reason": "max_tokens" if last and last.finish_reason == "length" else "stop",
                }
            ],
            "completion": answer,
        },
        "scores": {
            "success": {"value": int(episode.success), "answer": answer},
            "return": {"value": episode.total_reward, "explanation": f"stopped by {episode.stop_reason}"},
        },
        "metadata": {
            "env": label,
            "seed": episode.seed,
            "env_kwargs": episode.env_kwargs,
            **episode.metadata,
            EPISODE: {name: getattr(episode, name) for name in EPISODE_FIELDS},
        },
        "model_usage": {model: usage} if usage else {},
        "total_time": episode.metadata.get("seconds"),
        "uuid": hashlib.sha256(f"{label} {episode.metadata}".encode(errors="surrogatepass")).hexdigest()[:22],
    }
    if isinstance(sample["input"], list):  # Inspect accepts text or messages as the input
        sample["input"] = [{"role": "user", "content": sample["input"]}]
    if limit is not None:
        sample["limit"] = {"type": limit, "limit": len(episode.turns), "reason": episode.stop_reason}
    if episode.error is not None:
        sample["error"] = {"message": episode.error, "traceback": "", "traceback_ansi": ""}
        sample["scores"] = {}
    return sample


def _content(observation: Observation) -> str | list[dict[str, Any]]:
    """Return text, or Inspect's content parts, in which an image part holds the image's URL directly."""
    if isinstance(observation, str):
        return observation
    parts: list[dict[str, Any]] = []
    for part in observation:
        if part.get("type") == "image_url":
            parts.append({"type": "image", "image": str(part.get("image_url", {}).get("url", ""))})
        else:
            parts.append({"type": "text", "text": str(part.get("text", ""))})
    return parts


def _sum(episode: Episode, counted: str, ids: str) -> int | None:
    total = 0
    for turn in episode.turns:
        count = (turn.info.get("reply") or {}).get(counted, len(getattr(turn, ids)) or None)
        if count is None:
            return None
        total += int(count)
    return total


def _usage(prompt: int | None, response: int | None) -> dict[str, int] | None:
    if prompt is None or response is None:
        return None
    return {"input_tokens": prompt, "output_tokens": response, "total_tokens": prompt + response}


def _id(kind: str, run: EvalRun, label: str) -> str:
    text = json.dumps([kind, run.config, label], sort_keys=True)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:22]


def slug(label: str) -> str:
    """Return a name for files."""
    return re.sub(r"[^A-Za-z0-9]+", "-", label).strip("-")
