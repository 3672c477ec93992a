"""Installed packages that programs in a sandbox can import, and their files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from gem_core.errors import MissingDependency

OFFERED = ("numpy", "sympy")
"""Packages that the programs of a model can import wherever they are installed."""
_MENTIONED = {name: re.compile(rf"\b{name}\b") for name in OFFERED}


@lru_cache(maxsize=1)
def offered_packages() -> tuple[str, ...]:
    """Return the packages of `OFFERED` that are installed."""
    return tuple(name for name in OFFERED if _is_installed(name))


def mentioned_packages(code: str) -> tuple[str, ...]:
    """Return the offered packages that a program mentions; other programs start faster without them."""
    return tuple(name for name in offered_packages() if _MENTIONED[name].search(code))


def importable() -> str:
    """Return a sentence for prompts: what programs can import."""
    names = ["the standard library", *offered_packages()]
    listed = f"{', '.join(names[:-1])} and {names[-1]}" if names[1:] else names[0]
    return f"It can import {listed}."


def package_paths(names: Sequence[str]) -> dict[str, str]:
    """Return the paths of distributions and of their requirements, by top-level name in site-packages.

    Raises:
        MissingDependency: A distribution in `names` is not installed.
    """
    paths: dict[str, str] = {}
    waiting, seen = list(names), set()
    while waiting:
        name = waiting.pop()
        if _normalized(name) in seen:
            continue
        seen.add(_normalized(name))
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if name in names:
                raise MissingDependency(
                    f"package {name!r}, requested for the sandbox, is not installed: pip install {name}"
                ) from None
            continue  # required on another platform or by an extra
        for top in {Path(str(file)).parts[0] for file in distribution.files or ()}:
            if top not in ("..", "/", "__pycache__") and not top.endswith(".pth"):
                paths[top] = str(distribution.locate_file(top))
        required = [entry for entry in distribution.requires or () if "extra ==" not in entry]
        waiting.extend(re.split(r"[^A-Za-z0-9._-]", entry, maxsplit=1)[0] for entry in required)
    return paths


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
