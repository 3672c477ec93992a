"""Tools of MCP servers (Model Context Protocol), and environments as such servers.

    env = gem_core.make("math:Arithmetic-v0",
    wrappers="tools(tools=\\"mcp(url='http://localhost:8000/mcp')\\")")

`tool` makes the tools of a server into tools of an environment, `pool` holds the sessions, `env_server` lets
agents outside play an environment, `example` is a small server to try things with. Both major versions of the
official package ``mcp`` are spoken; where they differ is in `sdk`.
"""
