"""The tests of the environments need gem-llm alone; the others ROLL's checkout, which ROLL_HOME names."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gem", reason="needs gem-llm; `nox -s roll` has it")
HOME = os.environ.get("ROLL_HOME", "")
WITHOUT_ROLL = {"test_env.py", "test_tasks.py"}

if HOME and HOME not in sys.path:
    sys.path.insert(0, HOME)
os.environ.setdefault("ROLL_LOG_DIR", tempfile.mkdtemp(prefix="gem-roll-logs-"))  # it logs from its import on
collect_ignore = (
    [] if HOME else [p.name for p in Path(__file__).parent.glob("test_*.py") if p.name not in WITHOUT_ROLL]
)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A config of ROLL makes its folders of logs when it is read."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """That of an untrained tiny model."""
    from transformers import AutoTokenizer

    from gem_core.train import TinyOptions, save_tiny

    folder = tmp_path_factory.mktemp("model") / "tiny"
    save_tiny(
        folder,
        TinyOptions(envs=("game:GuessTheNumber-v0-easy",), warm_start_steps=0, corpus_episodes=20),
    )
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that has learned the format, so that episodes have several turns."""
    from gem_core.train import TinyOptions, save_tiny

    folder = tmp_path_factory.mktemp("model") / "warm"
    options = TinyOptions(
        envs=("game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy"),
        vocab_size=512,
        warm_start_steps=60,
        warm_start_tokens=20_000,
        corpus_episodes=50,
    )
    save_tiny(folder, options)
    return folder


@pytest.fixture(scope="session")
def warm_tokenizer(warm: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(warm)


@pytest.fixture(scope="session")
def model(warm: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(warm, attn_implementation="eager").float()
