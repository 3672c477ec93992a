"""Where Oat is missing these tests are skipped; the stand-ins are on the path before it is imported."""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.trainers.oat import harness

os.environ["USE_TF"] = "0"  # TensorFlow is there for Launchpad; transformers must not import it
try:
    version("oat-llm")
except PackageNotFoundError:
    pytest.skip("needs oat-llm; `nox -s oat` has it", allow_module_level=True)

if find_spec("vllm") is None:
    sys.path[:0] = [str(harness.STANDINS)]


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that has learned the format, so that episodes have several turns."""
    from gem_core.train import TinyOptions, save_tiny

    folder = tmp_path_factory.mktemp("model") / "warm"
    options = TinyOptions(
        envs=tuple(harness.MIX), vocab_size=512, warm_start_steps=60, warm_start_tokens=20_000,
        corpus_episodes=50,
    )  # fmt: skip
    save_tiny(folder, options)
    return folder
