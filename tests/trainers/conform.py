"""Recorded grades of a trainer's estimators."""

from __future__ import annotations

import json
from typing import Any

from tests.docs.blocks import ROOT

RECORD = ROOT / "docs" / "results" / "conform.json"


def recorded(trainer: str) -> Any:
    """Return the grades of each estimator on each batch."""
    return json.loads(RECORD.read_text("utf-8"))[trainer]["grades"]
