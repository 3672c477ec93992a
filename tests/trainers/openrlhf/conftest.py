"""OpenRLHF is imported once per test session; where it is missing these tests are skipped."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openrlhf", reason="needs OpenRLHF; `nox -s openrlhf` has it")

sys.path.insert(0, str(Path(__file__).resolve().parent / "cpu"))  # for this process; runs have their own
os.environ.setdefault("DS_ACCELERATOR", "cpu")
__import__("openrlhf_cpu").activate()

GUESS, MASTERMIND = "game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy"


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that has learned the format of two games, so that episodes have several turns.

    Its 512 tokens need no padding to a multiple of 64.
    """
    from gem_core.train import TinyOptions, save_tiny

    folder = tmp_path_factory.mktemp("model") / "warm"
    options = TinyOptions(
        envs=(GUESS, MASTERMIND),
        vocab_size=512,
        warm_start_steps=60,
        warm_start_tokens=20_000,
        corpus_episodes=50,
    )
    save_tiny(folder, options)
    return folder


@pytest.fixture(scope="session")
def tokenizer(warm: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(warm)


@pytest.fixture(scope="session")
def model(warm: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(warm, attn_implementation="eager").float()
