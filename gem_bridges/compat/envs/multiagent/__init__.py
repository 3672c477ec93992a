"""`MultiAgentEnv` and `AgentSelector`."""

from __future__ import annotations

from gem_core.multiagent import AgentSelector, MultiAgentEnv

__all__ = ["AgentSelector", "MultiAgentEnv"]
