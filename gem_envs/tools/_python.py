"""The tool ``python``: runs programs of the model in a sandbox."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from textwrap import dedent
from typing import Any

from gem_chat.tools import Tool, ToolResult, ToolState
from gem_core._util.checks import check_int, check_number
from gem_core._util.places import Places
from gem_core._util.threads import TOOL_THREADS, call_in
from gem_core.errors import ConfigError
from gem_envs.sandbox import ProgramLimits, RunResult, open_sandbox
from gem_envs.sandbox._limits import ISOLATED
from gem_envs.sandbox._packages import importable, mentioned_packages, offered_packages
from gem_envs.sandbox._program import Sandbox


class PythonTool(Tool):
    """Runs a program and returns its output.

    The metadata of a result contains ``level`` (the isolation level it ran at) and ``ending`` ("ok",
    "failed", "timeout", or "killed").

    Args:
        timeout: Time limit of a program, in seconds.
        level: Name of the isolation level. None uses the strongest fast level that works on this machine; see
            `gem_envs.sandbox._levels`.
        min_level: Name of the weakest acceptable level. None accepts any level.
        stateful: Whether variables and files persist from one call of an episode to the next. The state of
            the environment then contains the programs, and a restored episode runs them again.
        packages: Distributions that programs can import, such as ``("numpy", "scipy")``; at level
            ``process``, naming one makes every installed package available. None offers numpy and sympy if
            they are installed.
        memory_mb: Address space of a program, in MiB.
        last_error_line: Whether to show only the last line of an error instead of the whole traceback.
        files: Maps names to texts of files in the folder of each program. Files of the episode, in ``files``
            of its state, are added and take precedence.
        name: Name by which the model calls the tool.

    Raises:
        ConfigError: An argument has an invalid value.
        SandboxError: The level is not available on this machine, or is weaker than `min_level`.
    """

    description = "Runs a Python program and returns what it prints."
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "code": {
                "type": "string",
                "description": "the program; print what you want to see",
                "examples": ["print(6 * 7)"],
            }
        },
        "required": ["code"],
    }

    def __init__(
        self,
        *,
        timeout: float = 5.0,
        level: str | None = None,
        min_level: str | None = None,
        stateful: bool = False,
        packages: Sequence[str] | str | None = None,
        memory_mb: int = 512,
        last_error_line: bool = False,
        files: Mapping[str, str] | None = None,
        name: str = "python",
    ) -> None:
        check_number("timeout", timeout, above=0)
        check_int("memory_mb", memory_mb, 1)
        texts = {} if files is None else files
        if not isinstance(texts, Mapping) or not all(
            isinstance(part, str) for item in texts.items() for part in item
        ):
            raise ConfigError(f"files={files!r:.200}: expected a dict of names and texts, or None")
        self.name = name
        self._keep = stateful
        self._last_line = last_error_line
        self._files = {path: text.encode() for path, text in texts.items()}
        self._open = functools.partial(open_sandbox, level, min_level=min_level)
        self._offers = packages is None and not stateful  # opens a sandbox with what a program mentions
        names = (offered_packages() if stateful else ()) if packages is None else packages
        self._sandbox: Sandbox = self._open(packages=(names,) if isinstance(names, str) else tuple(names))
        if packages is None and self._sandbox.level != "container":  # whose image has its own packages
            self.description += f" {importable()}"
        self._limits = replace(
            ProgramLimits() if self._sandbox.level == "process" else ISOLATED,
            wall_seconds=timeout,
            cpu_seconds=timeout,
            memory_bytes=memory_mb * 2**20,
        )
        if stateful:
            self._sandbox.session().close()  # raises if the level has no sessions
            self.description += " Variables persist from one call to the next."
        self.timeout = timeout

    async def call(self, arguments: Mapping[str, Any], state: ToolState) -> ToolResult:
        if self._keep and state.live is None:
            state.live = _Kept()
        return await call_in(
            TOOL_THREADS, functools.partial(self._call, arguments["code"], state, state.live)
        )

    def end(self, state: ToolState) -> None:
        if state.live is not None:
            kept, state.live = state.live, None
            TOOL_THREADS.submit(kept.close)  # waits for a program that is still running

    def _call(self, code: str, state: ToolState, kept: _Kept | None) -> ToolResult:
        code = dedent(code)
        if kept is not None:
            result = self._run_in_session(code, state, kept)
        else:
            sandbox = self._open(packages=mentioned_packages(code)) if self._offers else self._sandbox
            result = self._run(sandbox, code, state)
        metadata = {"level": result.level, "ending": result.ending}
        return ToolResult(self._text(result), ok=result.ending == "ok", metadata=metadata)

    def _run(self, where: Any, code: str, state: ToolState) -> RunResult:
        own = {name: text.encode() for name, text in state.data.get("files", {}).items()}
        result: RunResult = where.run(code, files={**self._files, **own}, limits=self._limits)
        return result

    def _run_in_session(self, code: str, state: ToolState, kept: _Kept) -> RunResult:
        with kept.turn.held():
            past = state.data.setdefault("programs", [])
            keep = False
            try:
                if kept.session is None:
                    kept.session = self._sandbox.session()
                    for program in past:  # the episode was restored, or the process was stopped
                        self._run(kept.session, program, state)
                result = self._run(kept.session, code, state)
                keep = kept.session.alive
            finally:
                if not keep:  # stopped, or ended by the program: recreate without this program
                    kept.end()
            if keep:
                past.append(code)
            return result

    def _text(self, result: RunResult) -> str:
        error = result.stderr.strip()
        if self._last_line:
            error = error.rpartition("\n")[2]
        if result.cut:
            error = f"{error}\nThe output was longer than what is shown.".strip()
        if result.ending == "timeout":
            error = f"{error}\nThe program took more than {self.timeout:g} seconds and was stopped.".strip()
        if result.ending == "killed" and not error:
            error = f"The program was ended by signal {-result.exit_code}."
        parts = [part for part in (result.stdout.strip("\n"), error) if part]
        return "\n".join(parts) or "The program printed nothing."


class _Kept:
    """The session of an episode; its programs run one at a time."""

    def __init__(self) -> None:
        self.turn = Places(1)
        self.session: Any = None

    def close(self) -> None:
        with self.turn.held():
            self.end()

    def end(self) -> None:
        if self.session is not None:
            session, self.session = self.session, None
            session.close()
