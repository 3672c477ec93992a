"""Skips these tests if TRL is missing, and prepares its process: offline, on one thread."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if importlib.util.find_spec("vllm") is not None:  # in the session `trl-full`; read when TRL imports vLLM
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
pytest.importorskip("trl", reason="needs trl; `nox -s trl` has it")

from tests.trainers.trl import harness


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def spy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the files ``env.jsonl`` and ``engine.jsonl``, with the spies registered in this process."""
    folder = tmp_path / "spy"
    folder.mkdir()
    monkeypatch.setenv("GEM_SPY", str(folder))
    monkeypatch.setenv("GEM_CHAOS", str(folder))
    harness.record_requests(monkeypatch, folder)
    return folder


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(harness.MODEL)


@pytest.fixture(scope="session")
def model() -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(harness.MODEL, attn_implementation="eager").float()
