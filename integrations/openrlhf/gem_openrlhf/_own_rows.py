"""The user's own rows, which name no task: played by OpenRLHF's agent, rewarded by the user's function."""

from __future__ import annotations

from contextvars import ContextVar
from math import isfinite
from typing import Any

import torch
from openrlhf.utils import agent
from openrlhf.utils.agent import SingleTurnAgentExecutor

from gem_core._util.messages import error_line
from gem_core.rollout import Episode
from gem_core.trainers import expect
from gem_openrlhf import _SUPPORTED
from gem_openrlhf._labels import OWN_SOURCE, OwnLabel, played_label

for _method in ("_fetch_rewards_via_func", "_fetch_rewards_via_http"):
    expect(
        _SUPPORTED,
        agent,
        f"SingleTurnAgentExecutor.{_method}",
        "self",
        "queries_list",
        "prompts_list",
        "labels_list",
    )

_cause: ContextVar[str] = ContextVar("cause")
"""Why the current row has no reward."""


class SingleTurnExecutor(SingleTurnAgentExecutor):  # type: ignore[misc]
    """OpenRLHF's single-turn agent. OpenRLHF only logs an error of the reward function; here it is kept."""

    async def _fetch_rewards_via_func(self, *lists: Any) -> Any:
        return await _noted(super()._fetch_rewards_via_func(*lists))

    async def _fetch_rewards_via_http(self, *lists: Any) -> Any:
        return await _noted(super()._fetch_rewards_via_http(*lists))


async def _noted(fetched: Any) -> Any:
    try:
        results = await fetched
    except Exception as error:
        _cause.set(error_line(error, 300))
        raise
    for result in results[:1]:
        if not isinstance(result, dict | None):
            _cause.set(f"the reward function returned {result!r:.200}: expected a dict with rewards")
    return results


async def play_own(executor: Any, label: Any, *, pad_id: int, **arguments: Any) -> dict[str, Any]:
    """Play one of the user's own rows.

    Args:
        executor: OpenRLHF's agent or one of the user's own.
        label: Label of the row.
        pad_id: Token of the row of a sample without a reward.
        arguments: Further arguments of the agent.

    Returns:
        OpenRLHF's sample. A sample without a reward becomes a row without a sampled token, as a failed
        episode does: OpenRLHF cannot make a batch in which only some samples have a reward.
    """
    source, label = label if isinstance(label, OwnLabel) else (OWN_SOURCE, label)
    _cause.set("the reward function returned no reward")
    sample: dict[str, Any] = await executor.execute(label=label, **arguments)
    if not any(start < end for start, end in sample["action_ranges"]):
        return _lost(sample, source, pad_id, "no token was sampled")
    reward = _number(sample["reward"])
    if reward is None:
        return _lost(sample, source, pad_id, _cause.get())
    score = _number(sample.get("scores"))
    return {
        **sample,
        "label": OwnLabel(source, label),
        "reward": reward,
        "scores": reward if score is None else score,
    }


def _number(value: Any) -> float | None:
    """Return a finite reward as OpenRLHF reads it, as a float; None if it is something else."""
    if value is None:
        return None
    try:
        number = torch.as_tensor(value).double().item()
    except (TypeError, ValueError, RuntimeError):
        number = float("nan")
    if not isfinite(number):
        _cause.set(f"the reward function returned {value!r}: expected one finite number")
        return None
    return float(number)


def _lost(sample: dict[str, Any], source: str, pad_id: int, cause: str) -> dict[str, Any]:
    episode = Episode(f"a row of {source}", None, [], False, True, "env_error", error=cause, trainable=False)
    row = episode.only_row(pad_id)
    return {
        **sample,
        "label": played_label(source, episode, row),
        "images": None,
        "mm_train_inputs": None,
        "reward": 0.0,
        "scores": 0.0,
        "observation_tokens": row.token_ids,
        "action_ranges": row.spans,
        "rollout_log_probs": None if sample.get("rollout_log_probs") is None else row.logprobs_or_zeros(),
        "truncated": False,
        "extra_logs": {},
    }
