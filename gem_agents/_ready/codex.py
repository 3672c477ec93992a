"""Codex in its folder; tried with 0.171.0."""

from __future__ import annotations

from gem_agents._harness import Command

CONFIG = """\
model = "{model}"
model_provider = "gem"

[model_providers.gem]
name = "gem"
base_url = "{openai_url}"
wire_api = "responses"
env_key = "OPENAI_API_KEY"

[mcp_servers.gem]
url = "{mcp_url}"
"""

HARNESS = Command(
    ["codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-"],
    stdin="{prompt}",
    files={".codex/config.toml": CONFIG},
    install="npm install -g @openai/codex",
)
