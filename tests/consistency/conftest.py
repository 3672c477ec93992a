"""Registers the environments of the shared step only for its own tests."""

from __future__ import annotations

import pytest

from gem_core import registration


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration._envs, "_values", registration._envs.registered())
    monkeypatch.setattr(registration._wrappers, "_values", registration._wrappers.registered())
