"""Rollouts: play an environment with a policy and a context, and return an `Episode` of `Turn`s.

    context = gem_chat.AppendContext(tokenizer)
    episode = await run_episode(env, policy, context, EpisodeLimits(max_turns=8), seed=0)
    for row in episode.rows():
        print(row.token_ids, row.response_mask)

A trainer supplies a `Policy` that wraps its inference engine; this package provides the rest.
"""

from __future__ import annotations

from gem_core._util.threads import set_env_threads
from gem_core.rollout._agents import run_agents
from gem_core.rollout._dialogue import Context, ContextFull, RequestRejected
from gem_core.rollout._limits import EpisodeLimits
from gem_core.rollout._messages import ChatPolicy, ChatReply
from gem_core.rollout._metrics import episode_metrics
from gem_core.rollout._options import RolloutOptions
from gem_core.rollout._policy import Generation, Policy
from gem_core.rollout._pool import EnvPool
from gem_core.rollout._rows import Row
from gem_core.rollout._runner import run_episode
from gem_core.rollout._telemetry import disable_otel, enable_otel
from gem_core.rollout._traces import TraceWriter, read_traces
from gem_core.rollout._trajectory import Episode, trainable_reward_components, trainable_turn_rewards
from gem_core.rollout._turn import Thread, Turn

__all__ = [
    "ChatPolicy",
    "ChatReply",
    "Context",
    "ContextFull",
    "EnvPool",
    "Episode",
    "EpisodeLimits",
    "Generation",
    "Policy",
    "RequestRejected",
    "RolloutOptions",
    "Row",
    "Thread",
    "TraceWriter",
    "Turn",
    "disable_otel",
    "enable_otel",
    "episode_metrics",
    "read_traces",
    "run_agents",
    "run_episode",
    "set_env_threads",
    "trainable_reward_components",
    "trainable_turn_rewards",
]
