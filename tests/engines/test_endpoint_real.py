"""`gem-core eval` of SmolLM2 over HTTP, with ten environments of six families."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gem_lab import main
from tests.engines.conftest import MODEL
from tests.engines.stub import Flaky

ENVS = (
    "game:GuessTheNumber-v0-easy",
    "game:Mastermind-v0-easy",
    "game:Hangman-v0-easy",
    "math:Arithmetic-v0-easy",
    "math:WordProblems-v0",
    "logic:Proofs-v0-d0",
    "logic:Proofs-v0-d1",
    "qa:MultiHop-v0-easy",
    "code:SmallTasks-v0-easy",
    "code:SmallTasks-v0",
)
EPISODES, TURNS, TOKENS = os.environ.get("GEM_CORE_EVAL_EPISODES", "2"), "2", "32"

pytestmark = pytest.mark.timeout(3000)


def command(url: str, out: Path, *more: str) -> list[str]:
    words = ["eval", "--model", MODEL, "--base-url", url, "--env", *ENVS, "--episodes", EPISODES]
    words += ["--max-turns", TURNS, "--max-tokens-per-turn", TOKENS, "--on-length-cut", "pass"]
    # One request at a time, so that a batching server computes each answer separately.
    return [*words, "--concurrency", "1", "--timeout", "600", "--out", str(out), *more]


@pytest.fixture(scope="session")
def whole(endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run without failures."""
    out = Path(os.environ.get("GEM_CORE_EVAL_OUT") or tmp_path_factory.mktemp("runs")) / "smollm2"
    assert main(command(endpoint, out)) == 0
    return out


def numbers(out: Path) -> dict:
    return json.loads((out / "summary.json").read_text())["envs"]


def test_ten_environments_and_the_report(whole, tmp_path, capsys):
    summary = json.loads((whole / "summary.json").read_text())
    assert list(summary["envs"]) == list(ENVS)
    assert summary["overall"]["episodes"] + summary["overall"]["errors"] == len(ENVS) * int(EPISODES)
    assert summary["overall"]["errors"] == 0
    assert summary["overall"]["prompt_tokens"] > 1000
    lines = (whole / "episodes.jsonl").read_text().splitlines()
    actions = {turn["action"] for line in lines for turn in json.loads(line)["turns"]}
    assert len(actions) > 10  # a model, not a constant
    random = tmp_path / "random"
    assert (
        main(["eval", "--model", "random", "--env", *ENVS[:5], "--episodes", "4", "--out", str(random)]) == 0
    )
    page = whole.parent / "report.html"
    assert main(["report", str(whole), str(random), "--out", str(page)]) == 0
    assert "smollm2: return" in page.read_text()


def test_a_killed_run_continues_to_the_same_numbers(whole, endpoint, tmp_path):
    words = command(endpoint, tmp_path / "cut")
    trace = tmp_path / "cut" / "episodes.jsonl"
    with open(tmp_path / "log.txt", "wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "gem_lab", *words], stdout=log, stderr=log)
    half = len(ENVS) * int(EPISODES) // 2
    while not trace.exists() or trace.read_bytes().count(b"\n") < half:
        assert process.poll() is None, (tmp_path / "log.txt").read_text()
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = trace.read_bytes()
    kept = kept[: kept.rfind(b"\n") + 1]
    assert main(words) == 0
    assert trace.read_bytes().startswith(kept)
    assert numbers(tmp_path / "cut") == numbers(whole)


def test_half_of_the_calls_fail_and_no_result_changes(whole, endpoint, tmp_path):
    with Flaky(endpoint) as flaky:  # a proxy between the command and the real server
        assert main(command(flaky.url, tmp_path / "flaky")) == 0
    assert flaky.failed >= len(ENVS) * int(EPISODES)  # half of the calls; each episode needs at least one
    assert numbers(tmp_path / "flaky") == numbers(whole)


def test_a_conversation_beyond_the_context_ends_its_episode(endpoint, tmp_path):
    words = ["eval", "--model", MODEL, "--base-url", endpoint, "--env", "game:GuessTheNumber-v0-easy"]
    words += ["--episodes", "1", "--system-prompt", "word " * 2500, "--out", str(tmp_path)]
    assert main([*words, "--json"]) == 0
    (line,) = (tmp_path / "episodes.jsonl").read_text().splitlines()
    episode = json.loads(line)
    assert (episode["stop_reason"], episode["turns"]) == ("token_budget", [])
    assert "too long for smollm2" in episode["error"]
