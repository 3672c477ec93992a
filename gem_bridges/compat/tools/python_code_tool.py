"""`PythonCodeTool`: Python with GEM's arguments."""

from __future__ import annotations

from gem_bridges.compat.tools.base_tool import NativeTool
from gem_envs.tools._python import PythonTool


class PythonCodeTool(NativeTool):
    """Runs programs in the sandbox of gem_core.

    Args:
        timeout: Number of seconds after which a program is stopped.
        sandbox_type: Ignored: programs always run in the strongest fast sandbox level of this machine.
        keep_error_last_line: Whether to show only the last line of an error.
    """

    tool_type = "python_code"

    def __init__(
        self, timeout: float = 5, sandbox_type: str = "none", keep_error_last_line: bool = False
    ) -> None:
        super().__init__(
            lambda: PythonTool(timeout=timeout, last_error_line=keep_error_last_line),
            lambda result: f"Code execution result: {result.text}\n",
        )
