"""verl is imported once per test session; where it is missing these tests are skipped."""

from __future__ import annotations

import pytest

pytest.importorskip("verl", reason="needs verl; `nox -s verl` has it")
