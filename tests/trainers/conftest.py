"""Models for the tests of all trainers; failures of the shared checks are shown like those of a test."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from gem_core import _registration
from gem_core._util import entry_points
from gem_lab import main

pytest.register_assert_rewrite("tests.trainers.evidence")

GAMES = ("game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy")


@pytest.fixture(params=["file", "package"])
def own_id(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Id of a new environment: a class in a file, or an installed package that registers it."""
    return (_new_file if request.param == "file" else _new_package)(tmp_path, monkeypatch)


@pytest.fixture
def own_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of two new environments as short games, one of each kind of `own_id`, that runs find as well."""
    ids = [_new_file(tmp_path, monkeypatch), _new_package(tmp_path, monkeypatch)]
    path = [str(tmp_path / "package"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    return [f"{id}(max_number=10,max_turns=4)" for id in ids]


def _new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    assert main(["new", "HotCold", "--out", str(tmp_path)]) == 0
    return f"{tmp_path}/hot_cold.py:HotCold"


def _new_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    assert main(["new", "WarmCold", "--package", "--out", str(tmp_path / "package")]) == 0
    metadata = tmp_path / "package" / "warm_cold-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: warm-cold\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text("[gem_core.envs]\nwarm_cold = warm_cold:register_envs\n")
    monkeypatch.syspath_prepend(tmp_path / "package")
    _registration._envs.names()  # loads the built-in ones
    monkeypatch.setattr(_registration._envs, "_values", _registration._envs.registered())
    monkeypatch.setattr(entry_points, "_loaded_groups", entry_points._loaded_groups - {"gem_core.envs"})
    return "warmcold:WarmCold-v0"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny untrained model, for its tokenizer."""
    from gem_lab.train import TinyOptions, save_tiny

    folder = tmp_path_factory.mktemp("model") / "tiny"
    save_tiny(folder, TinyOptions(env=GAMES, warm_start_steps=0, corpus_episodes=20))
    return folder


@pytest.fixture(scope="session")
def tokenizer(tiny: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny)


@pytest.fixture(scope="session")
def warm() -> Path:
    """Folder of a tiny model that has learned the format of two games, so that episodes have several turns.

    Its 512 tokens need no padding to a multiple of 64: verl's engine samples only from the tokenizer's
    tokens, while its actor counts the padding as well.
    """
    from gem_lab.train import TinyOptions
    from tests.trainers.shared import shared_model

    options = TinyOptions(
        env=GAMES, vocab_size=512, warm_start_steps=60, warm_start_tokens=20_000, corpus_episodes=50
    )
    return shared_model("warm", options)


@pytest.fixture(scope="session")
def base(warm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the warm model as a base model: the tokenizer and the generation config name another
    end-of-sequence token than the one with which the chat template ends an answer.
    """
    from transformers import AutoTokenizer, GenerationConfig

    folder = tmp_path_factory.mktemp("base") / "model"
    shutil.copytree(warm, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.eos_token = "<|endoftext|>"
    tokenizer.save_pretrained(folder)
    generation = GenerationConfig.from_pretrained(folder)
    generation.eos_token_id = tokenizer.eos_token_id
    generation.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def warm_tokenizer(warm: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(warm)


@pytest.fixture
def model(warm: Path) -> Any:
    """The model of `warm`, for one test: checks load the weights of an update into it."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(warm, attn_implementation="eager").float()


@pytest.fixture(scope="module")
def processor() -> Any:
    """Processor like Qwen2-VL's, with a tokenizer with ChatML's template."""
    from gem_lab.train._tiny_vision import make_processor
    from tests.rollout.tokenizers import bpe_tokenizer

    return make_processor(bpe_tokenizer("chatml"))


@pytest.fixture(scope="session")
def shared_step() -> Any:
    """The shared step of all trainers, computed by gem_core (`tests.consistency.scenario`)."""
    from tests.consistency.scenario import scenario

    return scenario()


@pytest.fixture(scope="session")
def shared_tokenizer(shared_step: Any) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(shared_step.model)
