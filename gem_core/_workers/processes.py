"""Worker processes.

They are spawned, not forked, because forking a process with threads (torch starts some) can deadlock. As
always with spawned processes, a script that starts them needs ``if __name__ == "__main__":``.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from typing import Any

from gem_core._util import orphans
from gem_core._workers.worker import Worker, hang_up


class ProcessWorker(Worker):
    """A worker process."""

    advice = (
        "; stderr shows its error. A program that starts worker processes must be a module or a script "
        "file that runs its code under `if __name__ == '__main__':`"
    )

    def __init__(self, label: str, main: Callable[..., None], args: Sequence[Any], grace: float) -> None:
        super().__init__(f"worker process {label}")
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        announcement = orphans.Announcement(grace)
        self.process = context.Process(target=_run, args=(announcement, main, theirs, args))
        try:
            self.process.start()
        except BaseException:
            self.connection.close()
            raise
        finally:
            theirs.close()  # so that the pipe closes when the worker ends
        assert self.process.pid is not None
        self.pid = self.process.pid
        self.sentinel = self.process.sentinel
        orphans.end_with_us(self.pid, grace)
        # If nobody ends the worker, this does, before the interpreter would wait for it forever. (A
        # daemon would end by itself, but must not have children.)
        self._finalizer = Finalize(self, hang_up, (self.connection,), exitpriority=100)

    def wait(self, seconds: float) -> None:
        wait([self.process.sentinel], max(0.0, seconds))  # which does not reap it

    def _kill(self) -> str:
        orphans.release(self.pid)
        self.process.kill()
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self.process.join()
        end = f"died with exit code {self.process.exitcode}"
        self.process.close()
        self._finalizer.cancel()
        return end


def _run(
    announcement: orphans.Announcement, main: Callable[..., None], connection: Connection, args: Sequence[Any]
) -> None:
    """Run in the worker."""
    if hasattr(os, "setsid"):
        os.setsid()  # the parent handles Ctrl-C, and a kill reaches the processes of environments
    announcement.send()
    main(connection, *args)
