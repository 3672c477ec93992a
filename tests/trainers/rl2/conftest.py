"""RL2 is imported once per test session; where it is missing these tests are skipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.trainers.rl2 import harness

pytest.importorskip("RL2", reason="needs rl-square; `nox -s rl2` has it")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "tree: runs RL2's source tree, which RL2_HOME names")
    config.addinivalue_line("markers", "imports(version): for one of the two versions of RL2 only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is for the other version of RL2: that it is not here is no skipped test."""
    from gem_rl2.upstream import find

    imported = "index" if find().is_index else "tree"

    def fits(item: pytest.Item) -> bool:
        version = item.get_closest_marker("imports")
        if version is not None and version.args != (imported,):
            return False
        return bool(harness.HOME) or item.get_closest_marker("tree") is None

    config.hook.pytest_deselected(items=[item for item in items if not fits(item)])
    items[:] = [item for item in items if fits(item)]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained tiny model, for its tokenizer."""
    from gem_core.train import TinyOptions, save_tiny

    folder = tmp_path_factory.mktemp("model") / "tiny"
    save_tiny(
        folder,
        TinyOptions(envs=("game:GuessTheNumber-v0-easy",), warm_start_steps=0, corpus_episodes=20),
    )
    return folder


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
def tokenizer(tiny: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny)


@pytest.fixture(scope="session")
def warm_tokenizer(warm: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(warm)


@pytest.fixture(scope="session")
def model(warm: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(warm, attn_implementation="eager").float()
