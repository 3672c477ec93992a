"""Tasks in a shell, and the table of their ids."""

from __future__ import annotations

from gem_core import register

_GROUPS = {
    "Files": "names, folders, permissions, links, archives",
    "Logs": "text to count, change, and merge",
    "Records": "CSV, JSON, and tables",
    "Programs": "programs to write, run on hidden input",
    "Repair": "broken programs and files",
    "Search": "facts to find",
}


def register_terminal() -> None:
    """Register the ids of the terminal."""
    env = "gem_envs._terminal.env:Terminal"
    register("terminal:Tasks-v0", env, description="A task in a shell, graded by tests")
    for name, what in _GROUPS.items():
        described = f"A task in a shell: {what}"
        register(f"terminal:{name}-v0", env, description=described, tasks=name.lower())
    register(
        "eval:TerminalBench", "gem_envs._terminal.folder:TerminalBench", extra="terminal",
        description="Tasks in the format of terminal-bench or Harbor from a folder",
    )  # fmt: skip
