"""Simulates a person at a terminal, for tests of terminal output."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time


class Terminal:
    """Runs gem-core in a pseudo-terminal: waits for text, types lines."""

    def __init__(self, *argv: str, hide_rich: bool = False) -> None:
        # Tests that a shell runs in the background inherit an ignored SIGINT.
        code = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        code += "sys.modules['rich'] = None; " if hide_rich else ""
        code += "from gem_lab import main; sys.exit(main(sys.argv[1:]))"
        self.screen, inside = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *argv],
            stdin=inside, stdout=inside, stderr=inside, close_fds=True, start_new_session=True,
            env={**os.environ, "TERM": "xterm"},
        )  # fmt: skip
        os.close(inside)
        self.shown = ""

    def wait_for(self, text: str, limit: float = 30.0) -> None:
        """Read until `text` appears in the output since the last wait."""
        assert self.shows(text, limit), f"{text!r} did not appear in {self.shown!r}"

    def shows(self, text: str, limit: float) -> bool:
        """Return whether `text` appears within `limit` seconds in the output since the last wait."""
        end = time.monotonic() + limit
        while text not in self.shown:
            ready, _, _ = select.select([self.screen], [], [], max(end - time.monotonic(), 0))
            if not ready:
                return False
            self.shown += os.read(self.screen, 4096).decode()
        self.shown = self.shown.partition(text)[2]
        return True

    def type(self, text: str) -> None:
        os.write(self.screen, text.encode())

    def exit_code(self) -> int:
        return self.process.wait(30)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait(30)
        os.close(self.screen)
