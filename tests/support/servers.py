"""Base class of the stub servers of the tests."""

from __future__ import annotations

import sys
from http.server import ThreadingHTTPServer
from typing import Any


class StubServer(ThreadingHTTPServer):
    """Does not report disconnected clients, which would appear in the output of an unrelated test."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)
