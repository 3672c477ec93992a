"""`MultiAgentEnv` and `AgentSelector` under the name that code written for GEM imports."""

from __future__ import annotations

from gem_core.envs.multiagent.multi_agent_env import AgentSelector, MultiAgentEnv

__all__ = ["AgentSelector", "MultiAgentEnv"]
