"""Qwen Code in its folder; tried with 0.15.10."""

from __future__ import annotations

import json

from gem_agents._harness import Command

HARNESS = Command(
    ["qwen", "--yolo", "--auth-type", "openai"],
    stdin="{prompt}",
    variables={"OPENAI_MODEL": "{model}", "QWEN_TELEMETRY_ENABLED": "false"},
    files={
        ".qwen/settings.json": json.dumps({"mcpServers": {"gem": {"httpUrl": "{mcp_url}", "trust": True}}})
    },
    install="npm install -g @qwen-code/qwen-code",
)
