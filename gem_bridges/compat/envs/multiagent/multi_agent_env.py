"""`MultiAgentEnv` and `AgentSelector` under the name of the module in GEM."""

from __future__ import annotations

from gem_core.multiagent.multi_agent_env import MultiAgentEnv
from gem_core.multiagent.selector import AgentSelector

__all__ = ["AgentSelector", "MultiAgentEnv"]
