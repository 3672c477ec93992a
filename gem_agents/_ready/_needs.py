"""Imports of packages that a harness needs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gem_core.errors import MissingDependency


@contextlib.contextmanager
def needs(*packages: str) -> Iterator[None]:
    """Turn a failed import into an error that says what to install.

    Args:
        packages: Packages as pip names them.

    Raises:
        MissingDependency: An import failed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        install = " ".join(f"'{package}'" if "[" in package else package for package in packages)
        raise MissingDependency(
            f"this harness needs the package {error.name!r}: pip install {install}"
        ) from error
