"""Every data set of the reasoning-gym package as an environment ``rg:name``.

The names are asked of the installed package. Importing it takes seconds, so for the one version that
``names.txt`` was recorded from, and where no version is installed, the recorded names are registered.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from gem_core.registration import register, register_family

_NOT_DETERMINISTIC = frozenset({"codeio"})
"""It runs programs, and one in a thousand reads memory that nobody set."""


def register_lazily() -> None:
    """Have the ids registered when one is asked for."""
    register_family("rg:", "gem_core.envs.rg:register_all")


def register_all() -> None:
    """File an id for each data set."""
    for name in names():
        register(
            f"rg:{name}",
            "gem_core.envs.rg.env:ReasoningGymEnv",
            description="A mix of data sets of reasoning-gym"
            if name == "composite"
            else f"reasoning-gym: {name}",
            extra="rg",
            deterministic=name not in _NOT_DETERMINISTIC,
            name=name,
        )


def names() -> list[str]:
    """Return names of the data sets of the installed reasoning-gym; the recorded ones when there is none."""
    recorded, *known = Path(__file__).with_name("names.txt").read_text(encoding="utf-8").split()
    return known if installed_version() in (None, recorded) else discover()


def installed_version() -> str | None:
    """Version of reasoning-gym; None where it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # slow: not while gem_core is imported

    try:
        return version("reasoning-gym")
    except PackageNotFoundError:
        return None


def discover() -> list[str]:
    """Return names that the installed package registers."""
    return sorted(importlib.import_module("reasoning_gym").factory.DATASETS)
