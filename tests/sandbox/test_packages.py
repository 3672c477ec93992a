"""Packages that programs can import."""

from __future__ import annotations

import pytest

from gem_envs.sandbox import _packages


def test_only_installed_packages_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_packages, "OFFERED", ("numpy", "no-such-package-here"))
    assert _packages.offered_packages.__wrapped__() == ("numpy",)
