"""`MultiAgentEnv` and `AgentSelector` under the name of the module in GEM."""

from __future__ import annotations

from gem_core.multiagent import AgentSelector, MultiAgentEnv

__all__ = ["AgentSelector", "MultiAgentEnv"]
