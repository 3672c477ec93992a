from __future__ import annotations

import signal

from hypothesis import settings

from tests.entry_points import use_declared

use_declared()

# A shell that runs the tests in the background lets them inherit an ignored SIGINT; some of them raise it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No test is timed: a busy machine makes any of them slow.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
