"""Ready harnesses, and `gem-core harness check`; `nox -s harness` plays them with their agents."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")
pytest.importorskip("jinja2", reason="needs jinja2, of the extra 'train'")

from gem_agents import AgentTask, Command, register_harness
from gem_agents._check import HarnessReport, check_harness
from gem_agents._harness import resolve_harness
from gem_agents._ready import READY
from gem_agents._scripted import CHAT_TEMPLATE
from gem_core.errors import MissingDependency
from gem_core.rollout import EnvPool, EpisodeLimits
from gem_core.tasks import EnvChoice, make_tasks
from gem_lab._cli import main
from tests.agents.clients import guesser
from tests.agents.stage import PairTokenizer
from tests.docs.test_env_tables import load

PACKAGES = {
    "langgraph": ("langchain.agents", "pip install langchain langgraph langchain-openai"),
    "openai-agents": ("agents", "pip install openai-agents"),
    "pydantic-ai": ("pydantic_ai", "pip install 'pydantic-ai-slim[openai]'"),
    "smolagents": ("smolagents", "pip install 'smolagents[openai]'"),
}
PROGRAMS = sorted({*READY} - {*PACKAGES})


def check(name: str) -> HarnessReport:
    tokenizer = PairTokenizer(CHAT_TEMPLATE, ["<|im_end|>", "<|im_start|>"])
    return asyncio.run(check_harness(name, tokenizer))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_harness_whose_program_is_missing_says_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingDependency, match=rf"{name}.*(npm install -g|pip install) \S+$"):
        resolve_harness(name)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_harness_whose_package_is_missing_says_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, install = PACKAGES[name]
    for loaded in [one for one in sys.modules if f"{one}.".startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.delitem(sys.modules, READY[name].partition(":")[0], raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependency, match="needs the package") as caught:
        resolve_harness(name)
    assert str(caught.value).endswith(install)


def test_an_agent_that_is_not_installed_ends_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    async def play() -> None:
        pool = EnvPool()
        try:
            (task,) = make_tasks([EnvChoice.parse("game:GuessTheNumber-v0")], 1)
            await pool.play(task, None, None, EpisodeLimits(harness="codex"))  # type: ignore[arg-type]
        finally:
            pool.close()

    with pytest.raises(MissingDependency, match="npm install -g @openai/codex"):
        asyncio.run(play())


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_ready_command_gets_the_address_and_the_task(name: str) -> None:
    module, _, attribute = READY[name].partition(":")
    harness = getattr(importlib.import_module(module), attribute)
    assert isinstance(harness, Command)
    assert "{prompt}" in (harness.stdin, harness.command[1].partition("=")[2])
    given = [*harness.command, *harness.variables.values(), *harness.files.values()]
    assert any("{model}" in text for text in given)
    for path, text in harness.files.items():
        if path.endswith(".json"):
            assert json.loads(text)


def test_the_documentation_has_a_row_for_each_ready_harness() -> None:
    table: Any = load("harness_table")
    text = table.PAGE.read_text(encoding="utf-8")
    report = check("tests.agents.clients:acting")
    filled = table.fill(text, {"acting": asdict(report)})
    assert "| `acting` |  | chat completions | 4 | 6 of 6 | 1 | thoughts dropped (1) |\n" in filled
    assert [*map(len, (filled.splitlines(), text.splitlines()))] == [
        len(text.splitlines()) + 1,
        len(text.splitlines()),
    ]
    versions = {name: re.findall(rf"^\| `{name}` \| ([\d.]+) \|", text, re.MULTILINE) for name in READY}
    for name, found in versions.items():  # those of the table are those of the files
        (version,) = found
        module = importlib.util.find_spec(READY[name].partition(":")[0])
        assert module is not None
        assert module.origin is not None
        assert re.search(rf"tried with \S* ?{re.escape(version)}\.", Path(module.origin).read_text())


def test_a_registered_harness_has_a_name() -> None:
    register_harness("test-guesser", "tests.agents.clients:guesser")
    assert resolve_harness("test-guesser") is guesser


def test_an_agent_that_sends_back_what_the_model_said_is_recognized() -> None:
    report = check("tests.agents.clients:acting")
    assert report.ok, report
    assert report.endpoints == {"chat/completions": 4}
    assert (report.recognized, report.spliced, report.foreign) == (6, 0, {})
    assert (report.tools, report.headers, report.unserved) == (["act"], ["x-agent"], ["temperature"])
    assert report.changes == {"thoughts dropped": 1}
    assert report.rows == ["the first call"]
    assert report.actions == 4


def test_an_agent_that_rewrites_what_the_model_said_is_not_recognized() -> None:
    report = check("tests.agents.clients:rewriting")
    assert not report.ok
    assert report.exact  # what was sampled is trained all the same
    assert report.recognized == 0
    assert sum(report.foreign.values()) == 6
    assert all(text.startswith("I said: ") for text in report.foreign)
    assert len(report.rows) == 4


def test_an_agent_that_plays_until_its_environment_ends_is_ok() -> None:
    pytest.importorskip("openai", reason="needs the package openai")
    report = check("tests.agents.clients:guesser")
    assert report.ok, report
    assert (report.actions, report.endpoints) == (10, {"chat/completions": 10})


def test_an_agent_that_fails_is_not_ok() -> None:
    report = check("tests.agents.clients:crashing")
    assert not report.ok
    assert "no such key" in str(report.error)


def test_an_agent_that_goes_on_for_ever_is_not_ok() -> None:
    report = check("tests.agents.test_ready:endless")
    assert not report.ok
    assert "did not end" in str(report.error)


async def endless(task: AgentTask) -> None:
    from tests.agents.clients import single

    while True:
        await single(task)


def test_the_command_prints_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers", reason="needs transformers, of the extra 'train'")
    assert main(["harness", "check", "tests.agents.clients:acting"]) == 0
    shown = capsys.readouterr().out
    for line in ("6 of 6 answers", "own headers    x-agent", "1: act", "1 thoughts dropped", "1, exact"):
        assert line in shown
    assert main(["harness", "check", "tests.agents.clients:rewriting", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], len(report["rows"])) == (False, 4)


def test_the_command_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers", reason="needs transformers, of the extra 'train'")
    monkeypatch.setenv("PATH", "")
    assert main(["harness", "check", "codex"]) == 2
    assert "npm install -g @openai/codex" in capsys.readouterr().err
