"""SIGTERM and SIGHUP end a command like Ctrl-C, so that what it has opened is closed."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def ends_like_ctrl_c() -> Iterator[list[int]]:
    """Raise `KeyboardInterrupt` at the first SIGTERM or SIGHUP; a second one ends the process at once.

    Only in the main thread, and only for signals that nobody handles or ignores.

    Yields:
        The signals received so far.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ours = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]

    def end(number: int, _: FrameType | None) -> None:
        received.append(number)
        for each in ours:
            if signal.getsignal(each) is end:
                signal.signal(each, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) in (
            signal.SIG_IGN,
            signal.SIG_DFL,
        ):  # in the background of a shell
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)  # an event loop may have a handler of its own

    for number in ours:
        signal.signal(number, end)
    try:
        yield received
    finally:
        for number in ours:
            if signal.getsignal(number) is end:
                signal.signal(number, signal.SIG_DFL)
