from __future__ import annotations

import signal

# A shell that runs the tests in the background lets them inherit an ignored SIGINT; some of them raise it.
signal.signal(signal.SIGINT, signal.default_int_handler)
