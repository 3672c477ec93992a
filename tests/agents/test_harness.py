"""`run_harness`: a program that owns its loop plays the episodes that `run_episode` plays."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")
pytest.importorskip("jinja2", reason="needs jinja2, of the extra 'train'")

from gem_agents import AgentTask, Command, run_harness
from gem_agents._harness import resolve_harness
from gem_agents._processes import HarnessFailed
from gem_chat import AppendContext
from gem_core.errors import ConfigError
from gem_core.rollout import EnvPool, Episode, EpisodeLimits, Generation, run_episode
from gem_core.tasks import EnvChoice, make_tasks
from gem_envs.sandbox._box import box_obstacle
from tests.agents.clients import crashing, forgetful, guesser, single
from tests.agents.stage import PairTokenizer, tokenizer

ENV = "game:GuessTheNumber-v0(max_turns=12)"
LIMITS = EpisodeLimits(max_turns=5, max_tokens_per_turn=60)
LEVELS = [
    "process",
    pytest.param(
        "namespace", marks=pytest.mark.skipif(bool(box_obstacle()), reason=box_obstacle() or "works")
    ),
]


class Guesses:
    """A policy whose responses depend on the request only: guesses, nonsense, thoughts, cut answers."""

    def __init__(self, words: PairTokenizer) -> None:
        self._words = words
        self.forgotten: list[str] = []

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        await asyncio.sleep(0)
        seed = int(hashlib.sha256(repr((prompt_ids, request_id)).encode()).hexdigest(), 16)
        guess = f"\\boxed{{{seed % 50}}}"
        texts = [f"I guess {guess} ", f"<think>Or 3?</think>\n{guess}", f"  {guess}\n", guess] * 4
        text = [*texts, "what?", "x" * 80][seed // 50 % 18]
        ids = [*map(ord, text), self._words.eos_token_id][:max_tokens]
        finish = "stop" if ids[-1] == self._words.eos_token_id else "length"
        return Generation(ids, [-(seed % 97 + n) / 100 for n in range(len(ids))], finish)

    def forget_request(self, request_id: str) -> None:
        self.forgotten.append(request_id)


def play(harness: Any, seed: int, limits: EpisodeLimits = LIMITS, **arguments: Any) -> Episode:
    words = tokenizer()

    async def main() -> Episode:
        env = EnvChoice.parse(ENV).make()
        given = (env, arguments.pop("policy", Guesses(words)), AppendContext(words), limits)
        more = {"seed": seed, "request_id": f"episode{seed}", **arguments}
        try:
            if harness is None:
                return await run_episode(*given, **more)
            return await run_harness(harness, *given, **more)
        finally:
            env.close()

    return asyncio.run(main())


def told(episode: Episode) -> dict[str, Any]:
    """Return all that an episode holds, except for what the gateway adds."""
    return replace(episode, metadata={}).to_dict()


@pytest.mark.parametrize(
    ("limits", "arguments"),
    [
        (LIMITS, {}),
        (replace(LIMITS, on_length_cut="pass"), {}),
        (replace(LIMITS, max_turns=None), {"max_total_tokens": 600}),
        (replace(LIMITS, max_turns=None), {"max_response_tokens": 300}),
    ],
)
def test_a_program_plays_the_episodes_of_the_own_loop(limits: EpisodeLimits, arguments: Any) -> None:
    pytest.importorskip("openai", reason="needs the package openai")
    ends = set()
    for seed in range(6):
        mine, native = (play(harness, seed, limits, **arguments) for harness in (guesser, None))
        assert told(mine) == told(native)
        ends.add(native.stop_reason)
        counts = mine.metadata["gateway"]
        assert (counts["spliced"], counts["foreign"], counts["lost"]) == (0, 0, 0)
    assert len(ends) > 1


def test_thoughts_that_would_be_dropped_are_refused() -> None:
    with pytest.raises(ConfigError, match="thoughts=keep has no effect on a harness"):
        play(guesser, 0, replace(LIMITS, thoughts="keep"))


def test_an_agent_that_forgets_has_a_row_for_each_call() -> None:
    episode = play(forgetful, 0)
    assert episode.context_mode == "rebuild"
    assert len(episode.rows()) == len(episode.turns) > 1
    assert episode.metadata["gateway"]["rows"] == len(episode.turns)


def test_every_row_of_the_policy_is_forgotten_at_the_end() -> None:
    words = tokenizer()
    policy = Guesses(words)
    episode = play(forgetful, 0, policy=policy)
    assert policy.forgotten == ["episode0", *(f"episode0/{row}" for row in range(1, len(episode.turns)))]


def test_the_last_answer_is_the_action_of_an_agent_that_takes_none() -> None:
    episode = play(single, 1)
    (turn,) = episode.turns
    assert turn.action
    assert "final_obs" in turn.info
    assert episode.trainable


def test_an_agent_that_fails_is_graded_all_the_same() -> None:
    episode = play(crashing, 1)
    assert "no such key" in episode.metadata["harness_error"]
    assert len(episode.turns) == 1
    assert episode.trainable


def test_an_agent_without_a_call_trains_nothing() -> None:
    async def idle(task: AgentTask) -> None:
        return

    assert not play(idle, 0).trainable


def test_errors_of_the_policy_propagate() -> None:
    class Broken(Guesses):
        async def generate(self, *args: Any, **options: Any) -> Generation:
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        play(guesser, 0, policy=Broken(tokenizer()))


def test_a_silent_engine_ends_the_episode_as_in_the_own_loop() -> None:
    class Silent(Guesses):
        async def generate(self, *args: Any, **options: Any) -> Generation:
            return Generation([], None, "stop")

    mine, native = (play(harness, 0, policy=Silent(tokenizer())) for harness in (guesser, None))
    assert told(mine) == told(native)
    assert native.stop_reason == "empty_response"


def test_an_agent_that_hangs_is_stopped_but_a_slow_engine_stops_none() -> None:
    async def hanging(task: AgentTask) -> None:
        await single(task)
        await asyncio.sleep(600)

    class Slow(Guesses):
        async def generate(self, *args: Any, **options: Any) -> Generation:
            await asyncio.sleep(1.0)
            return await super().generate(*args, **options)

    began = time.monotonic()
    limits = replace(LIMITS, harness_timeout=0.5)
    episode = play(hanging, 1, limits, policy=Slow(tokenizer()))
    assert len(episode.turns) == 1
    assert "0.5 s" in episode.metadata["harness_error"]
    assert time.monotonic() - began < 8


SCRIPT = """
import json, os, sys, urllib.request

def post(url, body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))

assert "TRAINER_SECRET" not in os.environ
assert os.getcwd() == os.environ["HOME"]
assert open("note.txt").read() == sys.argv[1]
body = {"model": "m", "messages": [{"role": "user", "content": sys.argv[1]}]}
answer = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)
post(os.environ["GEM_STEP_URL"], {"action": answer["choices"][0]["message"]["content"]})
if len(sys.argv) > 2:
    print("something broke")
    sys.exit(3)
"""


@pytest.mark.parametrize("level", LEVELS)
def test_a_command_plays_without_the_secrets_of_the_trainer(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINER_SECRET", "x")
    harness = Command([sys.executable, "-c", SCRIPT, "{prompt}"], files={"note.txt": "{prompt}"}, level=level)
    episode = play(harness, 0)
    assert len(episode.turns) == 1
    assert "harness_error" not in episode.metadata
    failing = replace(harness, command=[*harness.command, "fail"])
    episode = play(failing, 0)
    assert len(episode.turns) == 1
    assert "exit code 3: something broke" in episode.metadata["harness_error"]


ECHO = """
import sys
given = sys.argv[1] if len(sys.argv) > 1 else sys.stdin.read()
assert given == open("prompt.txt", newline="").read()
"""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "prompt", ["--help", "-", "nul \0", "", "\u00e9\n{url}", pytest.param("x" * 300_000, id="long")]
)
def test_standard_input_takes_every_prompt(prompt: str, level: str) -> None:
    files = {"prompt.txt": "{prompt}"}
    harness = Command([sys.executable, "-c", ECHO], stdin="{prompt}", files=files, level=level)
    asyncio.run(harness(AgentTask(prompt, "http://localhost")))
    with pytest.raises(HarnessFailed, match="AssertionError"):
        asyncio.run(replace(harness, stdin="{prompt}.")(AgentTask(prompt, "http://localhost")))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("prompt", "why"),
    [("nul \0", "null byte"), pytest.param("x" * 300_000, "longer than the system allows", id="long")],
)
def test_a_prompt_that_is_no_argument_fails_its_episode_only(prompt: str, why: str, level: str) -> None:
    command = Command([sys.executable, "-c", ECHO, "{prompt}"], level=level)
    with pytest.raises(HarnessFailed, match=why):
        asyncio.run(command(AgentTask(prompt, "http://localhost")))


def runs(pid: int) -> bool:
    """Return whether a process runs; one that has ended may wait for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_no_process_and_no_file_of_a_command_outlives_its_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    script = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(tmp_path / 'pids')!r}, 'w').write(f'{{os.getpid()}} {{child.pid}} {{os.getcwd()}}')\n"
        "time.sleep(600)\n"
    )
    episode = play(
        Command([sys.executable, "-c", script], level="process"), 0, replace(LIMITS, harness_timeout=1.0)
    )
    assert not episode.trainable
    *words, folder = (tmp_path / "pids").read_text().split()
    pids = [*map(int, words)]
    assert len(pids) == 2
    assert Path(folder).parent == tmp_path
    assert not Path(folder).exists()
    end = time.monotonic() + 10  # a busy machine takes a while to end what was killed
    while any(map(runs, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not [pid for pid in pids if runs(pid)]


def test_the_pool_plays_with_the_harness_of_the_limits() -> None:
    words = tokenizer()

    async def main() -> list[Episode]:
        pool = EnvPool()
        tasks = make_tasks([EnvChoice.parse(ENV)], 6)
        limits = replace(LIMITS, harness="tests.agents.clients:forgetful")
        context = AppendContext(words)
        try:
            return await asyncio.gather(*(pool.play(task, Guesses(words), context, limits) for task in tasks))
        finally:
            pool.close()

    episodes = asyncio.run(main())
    assert "rebuild" in {episode.context_mode for episode in episodes}
    assert all(episode.trainable for episode in episodes)


def test_a_harness_that_does_not_exist_is_named() -> None:
    for name in ("no-such-agent", "no.such.module:agent --x", "tests.agents.clients:nobody"):
        with pytest.raises((ConfigError, AttributeError), match=r"no-such-agent|no\.such|nobody"):
            resolve_harness(name)
    with pytest.raises(ConfigError, match="expected a coroutine function"):
        resolve_harness("tests.agents.stage:SEARCH")
    assert isinstance(resolve_harness(f"{sys.executable} -c pass"), Command)
