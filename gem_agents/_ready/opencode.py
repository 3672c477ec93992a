"""opencode in its folder; tried with 1.18.33."""

from __future__ import annotations

import json

from gem_agents._harness import Command

CONFIG = {
    "autoupdate": False,
    "share": "disabled",
    "mcp": {"gem": {"type": "remote", "url": "{mcp_url}", "enabled": True}},
    "provider": {
        "gem": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "gem",
            "options": {"baseURL": "{openai_url}", "apiKey": "none"},
            "models": {"{model}": {"name": "{model}", "limit": {"context": 1_000_000, "output": 32_000}}},
        }
    },
}

HARNESS = Command(
    ["opencode", "run", "-m", "gem/{model}"],
    stdin="{prompt}",
    variables={"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
    files={".config/opencode/opencode.json": json.dumps(CONFIG)},
    install="npm install -g opencode-ai",
)
