"""Which folders of site-packages make up a package, so that a sandbox can have these and no others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from gem_core.errors import MissingDependency


def package_paths(names: Sequence[str]) -> dict[str, str]:
    """Files and folders of distributions and of all that they require, by their name in site-packages.

    Raises:
        MissingDependency: One of them is not installed.
    """
    found: dict[str, str] = {}
    waiting, seen = list(names), set()
    while waiting:
        name = waiting.pop()
        if _same(name) in seen:
            continue
        seen.add(_same(name))
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if name in names:
                raise MissingDependency(
                    f"the sandbox is to have the package {name!r}, which is not installed: pip install {name}"
                ) from None
            continue  # required on another platform or by an extra
        for top in {Path(str(file)).parts[0] for file in distribution.files or ()}:
            if top not in ("..", "/", "__pycache__") and not top.endswith(".pth"):
                found[top] = str(distribution.locate_file(top))
        required = [entry for entry in distribution.requires or () if "extra ==" not in entry]
        waiting.extend(re.split(r"[^A-Za-z0-9._-]", entry, maxsplit=1)[0] for entry in required)
    return found


def _same(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
