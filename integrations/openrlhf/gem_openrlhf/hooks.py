"""The setup hook of Ray workers, for programs that start OpenRLHF themselves."""

from __future__ import annotations

from gem_openrlhf._hooks import setup

__all__ = [
    "setup",
]
