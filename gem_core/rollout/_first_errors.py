"""The traceback of the first error of each environment, at DEBUG level."""

from __future__ import annotations

import logging
import traceback

from gem_core._util.urls import without_secrets
from gem_core._util.visible import visible

logger = logging.getLogger(__name__)


class FirstErrors:
    """Logs one traceback per environment id. An episode has room for a single line about its error."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def log(self, name: str, error: BaseException) -> None:
        """Log the traceback of `error` unless an error of this environment was logged before.

        Args:
            name: Id of the environment.
            error: The error. Control characters of its text become escapes, and passwords in URLs are hidden.
        """
        if name in self._logged or not logger.isEnabledFor(logging.DEBUG):
            return
        self._logged.add(name)
        text = visible(without_secrets("".join(traceback.format_exception(error))))
        logger.debug("first error of %s; later ones are logged without a traceback\n%s", name, text.rstrip())


first_errors = FirstErrors()
"""The tracebacks of this process."""
