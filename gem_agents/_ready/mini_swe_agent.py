"""mini-swe-agent in its folder; tried with 2.4.6."""

from __future__ import annotations

from gem_agents._harness import Command

HARNESS = Command(
    ["mini", "--task={prompt}", "-m", "openai/{model}", "-y", "--exit-immediately", "-l", "0"],
    variables={
        "MSWEA_CONFIGURED": "true",
        "MSWEA_SILENT_STARTUP": "1",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    },
    install="pip install mini-swe-agent",
)
