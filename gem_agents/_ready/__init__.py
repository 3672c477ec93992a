"""Ready harnesses, one per file. Each says with which version of its agent it was tried."""

from __future__ import annotations

READY = {
    "claude-code": "gem_agents._ready.claude_code:HARNESS",
    "codex": "gem_agents._ready.codex:HARNESS",
    "langgraph": "gem_agents._ready.langgraph:play",
    "mini-swe-agent": "gem_agents._ready.mini_swe_agent:HARNESS",
    "openai-agents": "gem_agents._ready.openai_agents:play",
    "opencode": "gem_agents._ready.opencode:HARNESS",
    "pi": "gem_agents._ready.pi:HARNESS",
    "pydantic-ai": "gem_agents._ready.pydantic_ai:play",
    "qwen-code": "gem_agents._ready.qwen_code:HARNESS",
    "smolagents": "gem_agents._ready.smolagents:play",
}
"""Entry points of the harnesses by name."""
