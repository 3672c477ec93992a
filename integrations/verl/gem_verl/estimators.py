"""The estimators in verl's registry, without the rest of the plugin; importing this module registers them."""

from __future__ import annotations

from gem_verl._estimators import register

__all__ = [
    "register",
]
