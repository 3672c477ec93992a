"""Tasks in a database, with the tools of an MCP server, and the table of their ids."""

from __future__ import annotations

from gem_core import register

_GROUPS = {
    "Shop": "customers, products, and orders",
    "Library": "books, members, and loans",
    "Clinic": "patients, doctors, and visits",
    "Fleet": "trucks, drivers, and trips",
    "School": "students, courses, and grades",
}


def register_databases() -> None:
    """Register the ids of the databases."""
    env = "gem_envs._databases.env:Databases"
    tools = "tools(tools='sqlite', max_tool_uses=15)"
    register(
        "database:Tasks-v0", env, wrappers=tools, extra="mcp",
        description="A task in an SQLite database, over MCP, graded by the final state",
    )  # fmt: skip
    for name, what in _GROUPS.items():
        described = f"A task in an SQLite database: {what}"
        group = name.lower()
        register(f"database:{name}-v0", env, wrappers=tools, extra="mcp", description=described, tasks=group)
    register(
        "eval:SQLiteFolder", "gem_envs._databases.folder:SqliteFolder", wrappers=tools, extra="mcp",
        description="SQLite tasks from a folder, in the layout of MCPMark",
    )  # fmt: skip
