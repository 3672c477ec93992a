"""Failures of the shared checks are shown like those of a test."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.trainers.evidence")
