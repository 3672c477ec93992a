"""Tools of MCP servers (Model Context Protocol), and environments as such servers.

    env = gem_core.make("math:Arithmetic-v0",
    wrappers="tools(tools=\\"mcp(url='http://localhost:8000/mcp')\\")")

`tool` provides the tools of a server in an environment, `pool` holds the sessions, `env_server` lets
external agents play an environment, and `example` is a small server for experiments. Both major versions of
the official package ``mcp`` are supported; `sdk` hides their differences.
"""

TOKEN_VARIABLE = "GEM_CORE_MCP_TOKEN"
"""Environment variable with the token of a server over HTTP."""
