"""`gem-core doctor --trainer oat` checks the flags of a run without starting it."""

from __future__ import annotations

import pytest
import torch

from tests.trainers.preflight import SILENT_SERVER, TRUNCATED, check_mistakes, own_words, plan_of, problem_of

ACCEPTED = [
    "--gpus",
    "8",
    "--collocate",
    "--pretrain",
    "org/no-such-model",
    "--rollout_batch_size",
    "128",
    "--rollout_batch_size_per_device",
    "16",
    "--train_batch_size",
    "128",
    "--train_batch_size_per_device",
    "1",
    "--env-id",
    "game:GuessTheNumber-v0-easy",
    "--gamma",
    "0.9",
]
MISTAKES = {
    ("--env-id", "game:GuesTheNumber-v0"): "GuessTheNumber",
    ("--env-id", "rg:leg_counting"): "pip install 'gem-core[rg]'",
    ("--gama", "0.9"): "--gama",
    ("--gam", "0.9"): "--gam",
    ("--sync-params", "2"): "--sync-params",
    ("--gamma", "1.2"): "gamma=1.2: expected a number from 0 to 1",
    ("--estimator", "rebm"): "rebn",
    ("--rollout_batch_size", "100"): "is not a multiple of",
}


def test_mistakes_are_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    check_mistakes("oat", ACCEPTED, MISTAKES, capsys)


def test_a_custom_environment_is_accepted(
    own_id: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    assert problem_of("oat", [*ACCEPTED, *own_words("oat", own_id)], capsys) is None
    assert "Gold" in str(problem_of("oat", [*ACCEPTED, "--env-id", own_id.replace("Cold", "Gold")], capsys))


def test_a_server_must_answer(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    problem = problem_of("oat", [*ACCEPTED, *own_words("oat", SILENT_SERVER)], capsys)
    assert "Connection refused" in str(problem)


def test_the_plan_says_what_a_run_would_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    flags = """
        --env-id game:GuessTheNumber-v0-easy=2 game:Mastermind-v0-easy --max-eval 6 --eval-n 2
        --max-turns 4 --generate-max-length 100 --max-model-len 300 --top-p 0.9 --max-train 64000
    """
    words = [*ACCEPTED, *flags.split()]
    played = "played by gem_oat.Actor, rewarded by the environment"
    assert plan_of("oat", [*words, "--eval-steps", "20"], capsys) == [
        f"train: rows of game:GuessTheNumber-v0-easy (weight 2), {played}",
        f"train: rows of game:Mastermind-v0-easy (weight 1), {played}",
        f"eval: 6 rows of game:GuessTheNumber-v0-easy, {played}",
        f"eval: 6 rows of game:Mastermind-v0-easy, {played}",
        "estimator: rebn(gamma=0.9), statistics of all turns collected for a step",
        "tokens: an episode has 4 turns of at most 100 sampled tokens, 400 in all, but it is cut at "
        "--max-model-len=300 tokens, prompt and observations included",
        "note: a step trains on 128 turns, and the run on 64,000, however many episodes they come from",
        f"note: --top_p=0.9: {TRUNCATED}",
    ]
    lines = plan_of("oat", [*ACCEPTED, "--eval-steps", "-1", "--context", "rebuild"], capsys)
    assert "note: --eval-steps=-1: no evaluation takes place" in lines
    assert not any("--max-model-len" in line for line in lines)
