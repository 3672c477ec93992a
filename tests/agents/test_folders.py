"""Tasks of files, played by a program with a folder of its own, which is graded when it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")
pytest.importorskip("jinja2", reason="needs jinja2, of the extra 'train'")

import gem_core
from gem_agents import Command, run_harness
from gem_agents._gateway import GATEWAY
from gem_chat import AppendContext
from gem_core.errors import SandboxError
from gem_core.rollout import Episode, EpisodeLimits
from gem_core.wrappers import EpisodeStatistics
from gem_envs.sandbox._box import Box, BoxEnd, box_obstacle
from tests.agents.stage import Script, tokenizer
from tests.envs.terminal.test_steps import FILES as STEPS
from tests.envs.terminal.test_steps import SETTINGS
from tests.sandbox.support import children

pytestmark = pytest.mark.skipif(bool(box_obstacle()), reason=box_obstacle() or "works")
LIMITS = EpisodeLimits(max_turns=8, max_tokens_per_turn=4000)
SHELL = r"""
import json, os, subprocess, sys, urllib.error, urllib.request

def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))

messages = [{"role": "user", "content": sys.stdin.read()}]
while True:
    body = {"model": "m", "messages": messages}
    answer = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)
    said = answer["choices"][0]["message"]["content"]
    if said == "done":
        break
    if said == "act":
        try:
            post(os.environ["GEM_STEP_URL"], {"action": "submit"})
        except urllib.error.HTTPError as error:
            said = f"echo {error.code} > /app/status"
    result = subprocess.run(["bash", "-c", said], capture_output=True, text=True)
    shown = result.stdout + result.stderr
    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": shown or "nothing"}]
"""
AGENT = Command([sys.executable, "-c", SHELL], stdin="{prompt}")
ENV = "terminal:Files-v0"


def make_env(**kwargs: Any) -> gem_core.Env:
    return gem_core.make(ENV, **kwargs)


def play(
    texts: Sequence[str],
    harness: Command = AGENT,
    env: gem_core.Env | None = None,
    limits: EpisodeLimits = LIMITS,
    seed: int = 3,
) -> Episode:
    words = tokenizer()

    async def main() -> Episode:
        with env or make_env() as one:
            return await run_harness(
                harness, one, Script(texts, words), AppendContext(words), limits, seed=seed
            )

    return asyncio.run(main())


@pytest.fixture(scope="module")
def solution() -> str:
    with make_env() as env:
        env.reset(seed=3)
        return str(env.unwrapped.task.solution)


def test_the_reward_is_that_of_the_files(solution: str) -> None:
    right, wrong = play([solution, "done"]), play(["ls -la", "done"])
    assert [turn.reward for turn in right.turns] == [0.0, 1.0]
    assert [turn.reward for turn in wrong.turns] == [0.0, 0.0]
    assert (right.success, wrong.success) == (True, False)
    assert right.stop_reason == wrong.stop_reason == "terminated"
    assert right.trainable
    assert wrong.trainable


def test_the_prompt_is_the_instruction_and_the_files_are_there() -> None:
    with make_env() as env:
        env.reset(seed=3)
        instruction, files = env.unwrapped.task.instruction, env.unwrapped.task.files
    names = [name for name, file in files.items() if not file.folder]
    assert names
    shown = "\n".join(f"cat '/app/{name}' > /dev/null || echo missing" for name in names)
    episode = play([f"pwd; {shown}", "done"])
    words = tokenizer()
    assert instruction in words.decode([*episode.turns[0].context_ids])
    assert "/app" in (seen := words.decode([*episode.turns[1].context_ids]))
    assert "missing" not in seen


@pytest.mark.parametrize("end", ["exit 3", "sleep 1000", "kill -9 $PPID"])
def test_an_agent_that_fails_is_graded_with_what_it_did(solution: str, end: str) -> None:
    limits = replace(LIMITS, harness_timeout=4.0)
    command = replace(AGENT, command=[sys.executable, "-c", f"{SHELL}\nos.system({end!r})\nsys.exit(3)"])
    episode = play([solution, "done"], command, limits=limits)
    assert [turn.reward for turn in episode.turns] == [0.0, 1.0]
    assert episode.metadata["harness_error"]
    assert episode.trainable


@pytest.mark.parametrize(
    "mess",
    [
        "rm -rf /app/* /app/.??*",
        "head -c 30000000 /dev/zero > /app/a; head -c 30000000 /dev/zero > /app/b",
        "cd /app; for i in $(seq 30); do d=$(printf x%.0s $(seq 250)); mkdir $d && cd $d; done",
        r"printf x > $'/app/\xff'",
        "mkfifo /app/pipe; ln -s /etc/passwd /app/link; ln -s . /app/loop",
        "for i in $(seq 30000); do : > /app/$i; done",
    ],
)
def test_no_folder_is_an_error(mess: str) -> None:
    episode = play([mess, "done"])
    assert episode.error is None
    assert episode.stop_reason == "terminated"
    assert sum(turn.reward for turn in episode.turns) == 0


def test_a_folder_that_is_lost_is_no_verdict(solution: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the first process of the sandbox had been killed, when memory ran out."""
    wait = Box.wait

    async def lose(self: Box) -> BoxEnd:
        for pid in children(self._process.pid)[:1]:
            os.kill(pid, signal.SIGKILL)
        return await wait(self)

    async def played(self: Box) -> BoxEnd:
        await asyncio.sleep(3.0)
        return await lose(self)

    monkeypatch.setattr(Box, "wait", played)
    episode = play([solution, "sleep 60", "done"])
    assert episode.turns
    assert not episode.trainable
    assert "lost" in (episode.error or "")


def test_such_an_agent_cannot_act_in_the_environment(solution: str) -> None:
    episode = play([f"{solution}", "act", "cat /app/status", "done"])
    assert "404" in tokenizer().decode([*episode.turns[3].context_ids])
    assert [turn.reward for turn in episode.turns] == [0.0, 0.0, 0.0, 1.0]


def test_an_agent_without_a_folder_acts() -> None:
    """The shell of the environment is then its tool, and it sees the rules."""
    episode = play(["act", "done"], replace(AGENT, folder=False))
    assert "Give one command per turn" in tokenizer().decode([*episode.turns[0].context_ids])
    assert episode.turns[0].action == "submit"


def test_the_grade_passes_the_wrappers(solution: str) -> None:
    episode = play([solution, "done"], env=EpisodeStatistics(make_env()))
    assert episode.turns[-1].info["cumulative_rewards"] == 1.0


def test_no_task_of_files_is_played_outside_of_a_sandbox() -> None:
    open_before = {*GATEWAY._sessions}
    with pytest.raises(SandboxError, match="level is 'process'"):
        play(["done"], replace(AGENT, level="process"))
    assert {*GATEWAY._sessions} == open_before


def write_task(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


TEST = "import subprocess\n\ndef test_it():\n    assert open('/app/hello.txt').read() == 'hello\\n'\n"
BENCH = {
    "task.yaml": "instruction: Write the word hello to hello.txt.",
    "Dockerfile": "FROM debian\nWORKDIR /app\nCOPY notes.txt /app/\n",
    "notes.txt": "notes\n",
    "tests/test_it.py": TEST,
}


def test_a_task_folder(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="needs PyYAML, of the extra 'terminal'")
    write_task(tmp_path / "hello", BENCH)
    for command, reward in (("cat notes.txt && echo hello > hello.txt", 1.0), ("echo no > hello.txt", 0.0)):
        env = gem_core.make("eval:TerminalBench", folder=str(tmp_path), seconds=60)
        episode = play([command, "done"], env=env)
        assert [turn.reward for turn in episode.turns] == [0.0, reward]


def test_a_task_with_steps_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="needs PyYAML, of the extra 'terminal'")
    write_task(tmp_path / "two", {**STEPS, "task.toml": SETTINGS.format(strategy="mean")})
    env = gem_core.make("eval:TerminalBench", folder=str(tmp_path), seconds=60)
    episode = play(["done"], env=env)
    assert not episode.trainable
    assert "folder=False" in (episode.error or "")
