"""Servers over standard input and output that end at a signal.

A thread that waits for standard input cannot be interrupted, and a server waits for it. The server therefore
reads from a pipe of this process, whose end it sees when standard input ends or a signal arrives.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def input_ends_at_signals() -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM end the standard input of this process; a second one ends the process.

    Only in the main thread of a program, which ends after this block.
    """
    source = os.dup(0)
    theirs, ours = socket.socketpair()
    with theirs:
        os.dup2(theirs.fileno(), 0)

    def end() -> None:
        with contextlib.suppress(OSError):  # it has ended already
            ours.shutdown(socket.SHUT_WR)

    def pass_on() -> None:
        with contextlib.suppress(OSError):  # ended by a signal
            while data := os.read(source, 1 << 16):
                ours.sendall(data)
        end()

    def stop(*_: object) -> None:
        for number in before:
            signal.signal(number, signal.SIG_DFL)
        end()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    threading.Thread(target=pass_on, name="gem-stdin", daemon=True).start()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
