"""Imports OpenRLHF once per test session, and skips these tests if it is missing."""

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
    """Tokenizer of the warm model, which every run here uses."""
    return warm_tokenizer
