"""Every dataset of the reasoning-gym package as an environment ``rg:name``.

The installed package provides the names. Importing it takes seconds, so the recorded names in ``names.txt``
are used if their version, or no version, is installed.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from gem_core import register
from gem_core._registration import register_family

_NOT_DETERMINISTIC = frozenset({"codeio"})
"""Excluded: it runs programs, and one in a thousand reads uninitialized memory."""


def register_lazily() -> None:
    """Register the ids lazily, when one is requested."""
    register_family("rg:", "gem_envs._rg:register_all")


def register_all() -> None:
    """Register an id for each dataset."""
    for name in names():
        register(
            f"rg:{name}",
            "gem_envs._rg.env:ReasoningGymEnv",
            description="A mix of reasoning-gym datasets"
            if name == "composite"
            else f"reasoning-gym: {name}",
            extra="rg",
            deterministic=name not in _NOT_DETERMINISTIC,
            name=name,
        )


def names() -> list[str]:
    """Return the names of the datasets of the installed reasoning-gym, or else the recorded names."""
    recorded, *known = Path(__file__).with_name("names.txt").read_text(encoding="utf-8").split()
    return known if installed_version() in (None, recorded) else discover()


def installed_version() -> str | None:
    """Return the version of reasoning-gym; None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # slow, so not when gem_core is imported

    try:
        return version("reasoning-gym")
    except PackageNotFoundError:
        return None


def discover() -> list[str]:
    """Return the names that the installed package registers."""
    return sorted(importlib.import_module("reasoning_gym").factory.DATASETS)
