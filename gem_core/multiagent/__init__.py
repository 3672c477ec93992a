"""Environments with several agents: `MultiAgentEnv`, and the order of their agents, `AgentSelector`."""

from __future__ import annotations

from gem_core.multiagent._multi_agent_env import MultiAgentEnv
from gem_core.multiagent._selector import AgentSelector

__all__ = ["AgentSelector", "MultiAgentEnv"]
