"""pi in its folder; tried with 0.73.1."""

from __future__ import annotations

import json

from gem_agents._harness import Command

MODEL = {
    "id": "{model}",
    "name": "{model}",
    "input": ["text"],
    "contextWindow": 1_000_000,
    "maxTokens": 32_000,
}
PROVIDER = {"baseUrl": "{openai_url}", "api": "openai-completions", "apiKey": "none", "models": [MODEL]}

HARNESS = Command(
    ["pi", "-p", "--provider", "gem", "--model", "{model}"],
    stdin="{prompt}",
    files={".pi/agent/models.json": json.dumps({"providers": {"gem": PROVIDER}})},
    install="npm install -g @mariozechner/pi-coding-agent",
)
