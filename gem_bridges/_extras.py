"""`needs_extra`: the message about a bridge whose ecosystem is not installed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gem_core.errors import MissingDependency


@contextlib.contextmanager
def needs_extra(bridge: str, extra: str) -> Iterator[None]:
    """Report a package that the imports in this block lack, with the extra of gem-core that has it.

    Raises:
        MissingDependency: A package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if str(error.name).startswith("gem_"):
            raise
        raise MissingDependency(
            f"{bridge} needs the package {error.name!r}: pip install 'gem-core[{extra}]'"
        ) from error
