"""OpenRLHF is imported once per test session; where it is missing these tests are skipped."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.conftest import GAMES

pytest.importorskip("openrlhf", reason="needs OpenRLHF; `nox -s openrlhf` has it")

sys.path.insert(0, str(Path(__file__).resolve().parent / "cpu"))  # for this process; runs have their own
os.environ.setdefault("DS_ACCELERATOR", "cpu")
__import__("openrlhf_cpu").activate()

GUESS, MASTERMIND = GAMES
"""The games that the warm model knows."""


@pytest.fixture(scope="session")
def tokenizer(warm_tokenizer: Any) -> Any:
    """Every run here uses the warm model."""
    return warm_tokenizer
