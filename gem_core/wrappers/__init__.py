"""Wrappers by name. This module holds their table; a wrapper is imported when it is used."""

from __future__ import annotations


def register_builtin() -> None:
    """File every wrapper that ships with gem_core."""
