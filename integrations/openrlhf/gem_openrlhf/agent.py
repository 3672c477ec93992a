"""The file for ``--train.agent_func_path``; `gem-core path openrlhf-agent` prints its path."""

from __future__ import annotations

from gem_openrlhf._executor import GemExecutor as AgentExecutor

__all__ = ["AgentExecutor"]
