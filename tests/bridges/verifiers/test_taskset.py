"""Our environments in verifiers, run by its own commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gem_core
from gem_core import render_observation
from tests.bridges.verifiers.model import guess, scripted_model

pytest.importorskip("verifiers")
ID = "game:GuessTheNumber-v0-easy"
BIN = Path(sys.executable).parent


def run(*command: str) -> None:
    """Run a command of verifiers; its output is shown if it fails."""
    environ = {**os.environ, "MODEL_KEY": "none", "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]], env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def native(seed: int) -> tuple[list[float], float]:
    """Play the scripted model in our environment; return the rewards and the success."""
    env = gem_core.make(ID)
    messages = [{"role": "user", "content": render_observation(*env.reset(seed))}]
    rewards, ended = [], False
    while not ended:
        action = guess(messages)
        observation, reward, terminated, truncated, info = env.step(action)
        messages += [
            {"role": "assistant", "content": action},
            {"role": "user", "content": render_observation(observation, info)},
        ]
        rewards.append(reward)
        ended = terminated or truncated
    return rewards, float(info["success"])


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """The traces of `vf-eval` on the tasks 7 to 11 with the scripted model, by number of the task."""
    folder = tmp_path_factory.mktemp("eval")
    with scripted_model() as url:
        run(
            "vf-eval", "gem-verifiers", "--env.taskset.env-id", ID, "--env.taskset.start", "7",
            "--env.player.harness.id", "gem-verifiers", "--env.player.runtime.type", "subprocess", "-n", "5",
            "--model", "m", "--client.base-url", url, "--client.api-key-var", "MODEL_KEY", "--no-push",
            "--no-rich", "-o", str(folder), "--run.dir", "run",
        )  # fmt: skip
    traces = {}
    for line in (folder / "run" / "traces.jsonl").read_text().splitlines():
        record = json.loads(line)
        for trace in record.get("traces", [record]):
            traces[trace["task"]["data"]["row"]["index"]] = trace
    assert sorted(traces) == [7, 8, 9, 10, 11]
    return traces


def test_five_episodes_of_vf_eval_equal_native_play(traces):
    for seed, trace in traces.items():
        rewards, success = native(seed)
        assert trace["info"]["turn_rewards"] == rewards
        assert trace["rewards"]["return"]["score"] == sum(rewards)
        assert (trace["metrics"]["turns"], trace["metrics"]["success"]) == (len(rewards), success)


def test_five_episodes_here_equal_those_of_vf_eval(traces):
    env = gem_core.make("verifiers:gem-verifiers", config={"env_id": ID})
    for number, trace in traces.items():
        observation, _ = env.reset(options={"index": number})
        messages, total, ended = [{"role": "user", "content": observation}], 0.0, False
        while not ended:
            action = guess(messages)
            observation, reward, terminated, truncated, info = env.step(action)
            messages += [{"role": "assistant", "content": action}, {"role": "user", "content": observation}]
            total, ended = total + reward, terminated or truncated
        assert total == trace["rewards"]["return"]["score"]
        assert info["metrics"] == trace["metrics"]
        assert truncated == bool(trace["metrics"]["env_truncated"])
    env.close()


def test_vf_validate_accepts_the_oracle(tmp_path):
    run(
        "vf-validate", "gem-verifiers", "--taskset.env-id", "math:Arithmetic-v0(terms=2)", "--runtime.type",
        "subprocess", "-n", "3", "--only-gold", "--no-rich", "-o", str(tmp_path), "--run.dir", "run",
    )  # fmt: skip
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["outcomes"]["valid"] == summary["total"] == 3
