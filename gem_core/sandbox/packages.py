"""Files of installed packages, so that a sandbox can be given some packages and no others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from gem_core.errors import MissingDependency


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
