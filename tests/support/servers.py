"""A base for the stand-in servers of the tests."""

from __future__ import annotations

import sys
from http.server import ThreadingHTTPServer
from typing import Any


class StandInServer(ThreadingHTTPServer):
    """Does not print that a client has hung up: that would be in the output of whichever test runs then."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)
