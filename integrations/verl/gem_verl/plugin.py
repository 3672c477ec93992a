"""Loaded by verl through the entry-point group ``verl.plugins``.

verl logs a failing plugin at DEBUG level only, so this module warns by itself.
"""

from __future__ import annotations

import logging

from gem_verl import SUPPORTED

problem = SUPPORTED.problem()
if problem is not None:
    logging.getLogger(__name__).warning("gem_verl is not active: %s", problem)
