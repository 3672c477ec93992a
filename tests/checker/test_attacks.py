"""Texts that try to execute code where a model's text is read: environments, tools, graders, evaluation."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import gem_core
from gem_chat import MessagesContext
from gem_chat._calls.formats import FORMATS, get_format
from gem_chat._calls.native import native_calls
from gem_chat.tools import ToolState
from gem_core import spec
from gem_core.errors import DataError, MissingDependency
from gem_core.rollout import ChatReply
from gem_envs._text import undecorated
from gem_envs.graders import math, qa
from gem_envs.graders._program_tests import read_tests
from gem_envs.graders._programs import run_tests
from gem_envs.sandbox import self_check
from gem_envs.text import first_tag, integers, last_boxed, last_code_block, last_tag
from gem_envs.tools._python import PythonTool
from gem_lab import check_env
from gem_lab._checker import trust_rules
from gem_lab._checker.attacks import Payload, calls, payloads, wrapped
from gem_lab._checker.host import ProcessSnapshot
from gem_lab._checker.null_policies import find_readable_forms, play, readable_forms
from gem_lab.eval import EvalConfig, PolicySetup, evaluate, read_run
from gem_lab.eval._inspect_log import write_inspect_logs
from gem_lab.eval._report import write_report
from tests.eval.test_viewer import Page

NEEDS_NAMESPACE = pytest.mark.skipif(
    not self_check()["namespace"].available, reason="at level 'process' a program can write files of its user"
)
OFFLINE = [
    id
    for id in gem_core.list_envs()
    if "dataset_name" not in spec(id).kwargs and str(spec(id).entry_point).startswith("gem_envs.")
]
"""Ids without a dataset to download."""
CASES = {
    (str(spec(id).entry_point), str(spec(id).wrappers), id if id.startswith(("rg:", "eval:")) else ""): id
    for id in OFFLINE
    if not id.startswith("game:")
}
"""An id for each class and its wrappers, but all of reasoning-gym, since each has its own scorer."""
assert len(CASES) > 100


@pytest.fixture
def host() -> Iterator[ProcessSnapshot]:
    """This machine, which a test must leave unchanged."""
    before = ProcessSnapshot()
    try:
        yield before
        assert before.changes() == []
    finally:
        before.restore()


def panel(host: ProcessSnapshot) -> list[Payload]:
    return list(payloads(host.folder, host.token))


# -- environments -----------------------------------------------------------------------------


@pytest.mark.once
@pytest.mark.parametrize("id", CASES.values())
def test_no_environment_runs_a_text(id: str) -> None:
    """Check all environments but the games, which tests/checker/test_rules.py checks by every rule."""
    try:
        gem_core.make(id).close()
    except (DataError, MissingDependency) as error:
        pytest.skip(str(error))
    check_env(id, rules=["attacks_change_nothing"], seeds=(0,))


@pytest.mark.parametrize(
    ("id", "forms"),
    [
        ("game:GuessTheNumber-v0-easy", ["boxed"]),
        ("qa:MultiHop-v0-search-retry", ["tag"]),
        ("math:FileArithmetic-v0-python", ["boxed", "program"]),
    ],
)
def test_the_forms_an_environment_reads_are_found_without_playing_every_policy(
    id: str, forms: list[str]
) -> None:
    with gem_core.make(id) as env:
        assert find_readable_forms(env, 0) == readable_forms(play(env, 0)) == forms


def test_a_program_is_sent_once() -> None:
    texts = trust_rules._texts(Payload("a", "touch a"), ["command"], "```bash\nls\n```", "")
    assert [form for text, form in texts.items() if text.startswith("```")] == ["command"]


# -- tools ------------------------------------------------------------------------------------


@pytest.mark.once
@pytest.mark.parametrize("name", FORMATS.names())
def test_no_call_format_runs_a_text(name: str, host: ProcessSnapshot) -> None:
    form, tools = get_format(name), [PythonTool()]
    read = 0
    for payload in panel(host):
        for _, text in itertools.chain(wrapped(payload.text), calls(payload.text)):
            for call in form.parse(text, tools):
                read += 1
                assert json.loads(json.dumps(call.arguments)) == call.arguments, "more than plain data"
        shown = form.results([("python", payload.text)])
        assert payload.text in shown, "a result was formatted"
        written = form.write(tools[0], {"code": payload.text})
        assert form.parse(written, tools), written[:200]
    assert read > len(panel(host))


def test_no_native_call_runs_a_text(host: ProcessSnapshot) -> None:
    for payload in panel(host):
        for name, arguments in (
            ("python", payload.text),
            (payload.text, "{}"),
            ("python", {"code": payload.text}),
        ):
            message = {"tool_calls": [{"id": "1", "function": {"name": name, "arguments": arguments}}]}
            (call,) = native_calls(message, [PythonTool()])
            assert call.error or call.arguments == {"code": payload.text}


@NEEDS_NAMESPACE
def test_the_python_tool_confines_what_it_runs(host: ProcessSnapshot) -> None:
    tool = PythonTool()
    ran = 0
    for payload in panel(host):
        if not payload.slow:
            result = asyncio.run(tool.call({"code": payload.text}, ToolState()))
            ran += result.ok
    assert ran > 5, "nothing ran, so nothing was shown"


# -- graders ----------------------------------------------------------------------------------

REFERENCES = ("7", r"\frac{1}{2}", "x^2+1", r"\{1, 2\}", "[0, 1)", r"\text{No}")


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.long
def test_the_mathematics_grader_runs_no_text(symbolic: bool, host: ProcessSnapshot) -> None:
    if symbolic:
        pytest.importorskip("math_verify", reason="needs the extra 'math'")
    references = itertools.cycle(REFERENCES)
    for payload in panel(host):
        if payload.alone and not payload.name.startswith("Python"):  # programs of other languages
            continue
        for text in (payload.text, f"{payload.text} = 7", rf"\frac{{{payload.text}}}{{1}}"):
            assert not math.grade(text, next(references), symbolic=symbolic), payload.name


@pytest.mark.once
def test_the_other_graders_and_parsers_run_no_text(host: ProcessSnapshot) -> None:
    for payload in panel(host):
        for _, text in wrapped(payload.text):
            assert not qa.exact_match(text, ["seven"])
            for read in (last_boxed, undecorated, last_code_block, integers):
                read(text)
            first_tag(text, "answer"), last_tag(text, "answer")


@NEEDS_NAMESPACE
def test_programs_under_test_stay_inside(host: ProcessSnapshot) -> None:
    tests = read_tests({"inputs": ["1"], "outputs": ["2"]})
    for payload in panel(host):
        if not payload.slow:
            assert run_tests(payload.text, tests).passed == 0, payload.name


# -- evaluation -------------------------------------------------------------------------------


class Attacks:
    """A model that answers with one payload after another."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = itertools.cycle(texts)

    async def reply(self, messages: Any, *, max_tokens: int, request_id: str) -> ChatReply:
        return ChatReply(next(self.texts), "stop", 12, 3)


@pytest.mark.once
def test_an_evaluation_shows_texts_as_texts(host: ProcessSnapshot, tmp_path: Any) -> None:
    texts = [text for payload in panel(host) for text in (payload.text, f"\\boxed{{{payload.text}}}")]
    page = next(payload.text for payload in panel(host) if payload.name == "page")
    ids = ["game:Wordle-v0-easy", "math:Arithmetic-v0-retry"]
    evaluate(
        EvalConfig(page, ids, episodes=80, system_prompt=page, out=str(tmp_path / "run")),
        setup=PolicySetup(Attacks(texts), MessagesContext()),
    )
    run = read_run(tmp_path / "run")
    assert sum(len(episode.turns) for episode in run.episodes) >= len(texts)
    write_report([run], tmp_path / "page.html")
    for path in write_inspect_logs(run, tmp_path / "logs"):
        json.loads(path.read_text())
    shown = Page((tmp_path / "page.html").read_text())
    assert "img" not in [tag for tag, _ in shown.tags]
    assert len(shown.scripts) == len([tag for tag, _ in shown.tags if tag == "script"]) == 6
    assert not any("gem_core_attack" in text for name, text in shown.scripts.items() if not name)


def test_the_first_text_that_seeds_a_generator_is_no_change() -> None:
    """In a process of its own, because any other test may have been the first."""
    code = (
        "from random import Random\n"
        "from gem_lab._checker.host import ProcessSnapshot\n"
        "before = ProcessSnapshot()\n"
        "Random('text')\n"
        "assert before.changes() == [], before.changes()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
