"""Imports verl once per test session, and skips these tests if it is missing."""

from __future__ import annotations

import pytest

pytest.importorskip("verl", reason="needs verl; `nox -s verl` has it")
