"""Rollouts: play an environment with a policy and a context, and return an `Episode` of `Turn`s.

    context = gem_chat.AppendContext(tokenizer)
    episode = await run_episode(env, policy, context, EpisodeLimits(max_turns=8), seed=0)
    for row in episode.rows():
        print(row.token_ids, row.response_mask)

A trainer supplies a `Policy` that wraps its inference engine; this package provides the rest.
"""

from __future__ import annotations

from gem_core._util.threads import set_env_threads
from gem_core.rollout.agents import run_agents
from gem_core.rollout.budgets import CutTurns
from gem_core.rollout.dialogue import Context, ContextFull, RequestRejected
from gem_core.rollout.failures import describe_failures, nothing_trainable
from gem_core.rollout.limits import EpisodeLimits
from gem_core.rollout.messages import ChatPolicy, ChatReply
from gem_core.rollout.metrics import episode_metrics, without_tokens
from gem_core.rollout.options import RolloutOptions
from gem_core.rollout.policy import EnvPolicy, Generation, Policy, inferred_finish, reported_finish
from gem_core.rollout.pool import EnvPool
from gem_core.rollout.rows import Row, RowSplit
from gem_core.rollout.runner import run_episode
from gem_core.rollout.telemetry import disable_otel, enable_otel
from gem_core.rollout.traces import TraceWriter, read_token_texts, read_traces
from gem_core.rollout.trajectory import Episode
from gem_core.rollout.turn import Thread, Turn

__all__ = [
    "ChatPolicy",
    "Context",
    "ContextFull",
    "CutTurns",
    "EnvPolicy",
    "EnvPool",
    "Episode",
    "EpisodeLimits",
    "Generation",
    "Policy",
    "ChatReply",
    "RolloutOptions",
    "RequestRejected",
    "Row",
    "RowSplit",
    "Thread",
    "TraceWriter",
    "Turn",
    "describe_failures",
    "disable_otel",
    "enable_otel",
    "episode_metrics",
    "inferred_finish",
    "nothing_trainable",
    "without_tokens",
    "read_token_texts",
    "read_traces",
    "reported_finish",
    "run_agents",
    "run_episode",
    "set_env_threads",
]
