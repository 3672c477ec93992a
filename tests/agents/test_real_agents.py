"""Real agents, played offline by `nox -s harness`: exact tokens, recognition, the own loop's episodes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")
pytest.importorskip("jinja2", reason="needs jinja2, of the extra 'train'")

import gem_core
from gem_agents import run_harness
from gem_agents._check import HarnessReport, check_harness
from gem_agents._ready import READY
from gem_agents._scripted import CHAT_TEMPLATE, ScriptedPolicy
from gem_chat import AppendContext
from gem_core.rollout import Episode, EpisodeLimits
from tests.agents.stage import PairTokenizer
from tests.agents.test_folders import BENCH, write_task
from tests.agents.test_harness import LIMITS, play, told
from tests.agents.test_ready import PROGRAMS

FOLDER = os.environ.get("GEM_CORE_HARNESS", "")
"""Folder for the reports, from which the table of the documentation is made."""
pytestmark = pytest.mark.skipif(not FOLDER, reason="needs agents, which `nox -s harness` installs")

REWRITES = {"smolagents", "smolagents_code"}
"""They rewrite what the model said, so each call is a row."""
PREAMBLE = {"qwen-code": "Got it. Thanks for the context!"}
"""An answer that the agent invents, before those of the model."""
ROWS = {"opencode": 2, "langgraph_summaries": 9}
"""Number of rows of agents that keep what the model said: opencode asks for a title first, and a summary is a
conversation of its own, as is what follows it."""
NO_ACTIONS = {"mini-swe-agent", "pi", "qwen-code", "smolagents_code"}
"""They play in their folder or in Python: Qwen Code shows tools of MCP servers after a search only."""
WITH_TOOLS = (
    "openai_agents_responses", "pydantic_ai_responses", "pydantic_ai_anthropic", "langgraph_stream",
    "langgraph_responses", "langgraph_anthropic", "langgraph_summaries", "smolagents_code",
)  # fmt: skip
CONVERSATIONS = (
    "responses_conversation", "chained_conversation", "anthropic_conversation", "openai_agents_conversation",
    "pydantic_ai_conversation", "langgraph_conversation",
)  # fmt: skip


class OddPolicy(ScriptedPolicy):
    """Samples letter by letter, which no encoder does."""

    def encode(self, text: str) -> list[int]:
        return [id for letter in text for id in super(OddPolicy, self).encode(letter)]


def checked(name: str) -> HarnessReport:
    tokenizer = PairTokenizer(CHAT_TEMPLATE, ["<|im_end|>", "<|im_start|>"])
    report = asyncio.run(check_harness(name, tokenizer, policy=OddPolicy(tokenizer)))
    path = Path(FOLDER) / f"{name.rpartition(':')[2]}.json"
    path.write_text(json.dumps(asdict(report)), encoding="utf-8")
    return report


def assert_recognized(name: str, report: HarnessReport) -> None:
    assert report.error is None
    assert report.exact
    assert (report.actions > 0) == (name not in NO_ACTIONS)
    if name in REWRITES:
        assert (report.recognized, report.spliced) == (0, 0)
        return
    assert {*report.foreign} == {*([PREAMBLE[name]] if name in PREAMBLE else [])}
    assert report.recognized + report.spliced > 0
    assert len(report.rows) == ROWS.get(name, 1), report.rows


@pytest.mark.parametrize("name", READY)
def test_what_a_ready_harness_plays_is_exact_and_recognized(name: str) -> None:
    if name in PROGRAMS and shutil.which("node") is None and name != "mini-swe-agent":
        pytest.skip("needs Node.js, which this machine does not have")
    report = checked(name)
    assert_recognized(name, report)
    assert report.version


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_coding_agent_is_paid_for_the_files_that_it_leaves(name: str, tmp_path: Path) -> None:
    """The script writes hello.txt with the agent's own shell; in the other task that is wrong."""
    pytest.importorskip("yaml", reason="needs PyYAML, of the extra 'terminal'")
    if shutil.which("node") is None and name != "mini-swe-agent":
        pytest.skip("needs Node.js, which this machine does not have")
    for word, reward in (("hello", 1.0), ("goodbye", 0.0)):
        task = {**BENCH, "tests/test_it.py": BENCH["tests/test_it.py"].replace("hello\\n", f"{word}\\n")}
        write_task(tmp_path / word, task)
        words = PairTokenizer(CHAT_TEMPLATE, ["<|im_end|>", "<|im_start|>"])
        env = gem_core.make("eval:TerminalBench", folder=str(tmp_path / word), seconds=60)
        episode = play_env(name, env, OddPolicy(words), words)
        assert "harness_error" not in episode.metadata
        assert episode.stop_reason == "terminated"
        assert (episode.turns[-1].reward, sum(turn.reward for turn in episode.turns)) == (reward, reward)
        assert len(episode.turns) >= 3


def play_env(name: str, env: gem_core.Env, policy: OddPolicy, words: PairTokenizer) -> Episode:
    limits = EpisodeLimits(max_turns=20, max_tokens_per_turn=4096)

    async def main() -> Episode:
        with env:
            return await run_harness(name, env, policy, AppendContext(words), limits, seed=0)

    return asyncio.run(main())


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_other_endpoints_of_the_frameworks_are_exact_and_recognized(name: str) -> None:
    assert_recognized(name, checked(f"tests.agents.drivers:{name}"))


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_is_the_episode_of_the_own_loop(name: str) -> None:
    ends = set()
    for seed in range(6):
        agent = f"tests.agents.drivers:{name}"
        mine, native = (play(harness, seed, LIMITS) for harness in (agent, None))
        assert told(mine) == told(native)
        assert "harness_error" not in mine.metadata
        ends.add(native.stop_reason)
    assert len(ends) > 1
