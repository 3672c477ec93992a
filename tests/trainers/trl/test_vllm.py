"""TRL's colocate mode plays the episodes with real vLLM on a CPU; for `nox -s trl-full`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.evidence import assert_metrics_are_right, assert_update_is_right, played
from tests.trainers.trl import harness


@pytest.mark.full
@pytest.mark.timeout(900)
def test_three_steps_with_vllm(
    tmp_path: Path, spy: Path, tokenizer: Any, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from trl.generation import vllm_generation
    from vllm.model_executor.layers import utils, vocab_parallel_embedding

    def plain(layer: Any, remove_weight: bool = False) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    for module in (utils, vocab_parallel_embedding):  # packed weights could not be loaded a second time
        monkeypatch.setattr(module, "dispatch_cpu_unquantized_gemm", plain, raising=False)
    # TRL gives vLLM no dtype, and vLLM would serve a float32 model in bfloat16.
    exact = functools.partial(vllm_generation.LLM, dtype="float32", enforce_eager=True)
    monkeypatch.setattr(vllm_generation, "LLM", exact)
    settings = {"use_vllm": True, "vllm_gpu_memory_utilization": 0.05, "vllm_max_model_length": 512}
    trainer = harness.train(tmp_path, [harness.GAME, harness.OTHER], **settings)
    episodes = played(spy, tokenizer)
    assert len(trainer.updates) == 3
    for update, metrics in zip(trainer.updates, trainer.logged("gem/return"), strict=True):
        mine = assert_update_is_right(update, episodes, tokenizer, model)
        assert_metrics_are_right(metrics, mine, "reward")
        assert metrics["sampling/sampling_logp_difference/max"] < 1e-3
