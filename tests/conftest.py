from __future__ import annotations

import gc
import signal

from hypothesis import settings

# Tests that a shell runs in the background inherit an ignored SIGINT, but some of them raise it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No test has a deadline, because any test may be slow on a busy machine.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

gc.disable()  # while tests are collected: imports create little garbage, and looking for it takes 5 s


def pytest_collection_finish() -> None:
    """Exclude all imported modules from later garbage collections; a full one takes 0.4 s with them."""
    gc.enable()
    gc.collect()
    gc.freeze()
