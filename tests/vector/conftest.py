from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.vector.envs import RELEASE


@pytest.fixture(autouse=True)
def _release() -> Iterator[None]:
    """Let environments that a test made hang continue at its end."""
    RELEASE.clear()
    yield
    RELEASE.set()
