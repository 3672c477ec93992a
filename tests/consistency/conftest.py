"""Registers the environments of the shared step only for its own tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def registry_of_each_test(own_registry: None) -> None:
    """Use `own_registry` in all tests."""
