"""The interface of Oat that this plugin overrides; ``interface.json`` lists it."""

from __future__ import annotations

from pathlib import Path

from gem_core.trainers.interface import expect_listed
from gem_oat import SUPPORTED


def check() -> None:
    """Check that this plugin's overrides take effect in the installed Oat.

    Raises:
        UnsupportedTrainer: Oat is missing or has another interface; the message names the difference.
    """
    SUPPORTED.require()
    expect_listed(SUPPORTED, Path(__file__).with_name("interface.json"), "oat")
