"""Environments with several agents: `MultiAgentEnv`, and `OneAgent`, one side of it as an environment."""

from __future__ import annotations

from gem_core.multiagent._multi_agent_env import MultiAgentEnv
from gem_core.multiagent._one_agent import OneAgent
from gem_core.multiagent._selector import AgentSelector

__all__ = ["AgentSelector", "MultiAgentEnv", "OneAgent"]
