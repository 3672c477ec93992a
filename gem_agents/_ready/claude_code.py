"""Claude Code in its folder; tried with 2.1.197."""

from __future__ import annotations

import json

from gem_agents._harness import Command

_WEEK = "604800000"
"""Milliseconds: the engine may sample for long."""

HARNESS = Command(
    ["claude", "-p", "--dangerously-skip-permissions", "--mcp-config", "{home}/.mcp-gem.json"],
    stdin="{prompt}",
    variables={
        "ANTHROPIC_MODEL": "{model}",
        "ANTHROPIC_SMALL_FAST_MODEL": "{model}",
        "API_TIMEOUT_MS": _WEEK,
        "CLAUDE_STREAM_IDLE_TIMEOUT_MS": _WEEK,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
        "IS_SANDBOX": "1",
    },
    files={".mcp-gem.json": json.dumps({"mcpServers": {"gem": {"type": "http", "url": "{mcp_url}"}}})},
    install="npm install -g @anthropic-ai/claude-code",
)
