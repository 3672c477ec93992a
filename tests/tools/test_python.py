from __future__ import annotations

import asyncio
import json
import re
import time

import pytest

import gem_core
from gem_chat.tools import make_tools
from gem_core.errors import ConfigError, SandboxError
from gem_envs.tools import _loop
from gem_envs.tools._python import PythonTool
from tests.sandbox.support import needs_namespace


def call(tool, code, state=None):
    return _loop.run(tool.call({"code": code}, state or tool.begin()))


@pytest.fixture(params=["process", pytest.param("namespace", marks=needs_namespace)])
def level(request):
    return request.param


def test_the_model_sees_what_its_program_wrote(level):
    tool = PythonTool(level=level)
    result = call(tool, "print(6 * 7)")
    assert (result.text, result.ok, dict(result.metadata)) == ("42", True, {"level": level, "ending": "ok"})
    assert call(tool, "x = 1").text == "The program printed nothing."
    failed = call(tool, "print('so far')\n1/0")
    assert not failed.ok
    assert failed.text.startswith("so far\nTraceback")
    assert failed.text.endswith("ZeroDivisionError: division by zero")


def test_a_program_that_takes_too_long_is_stopped(level):
    result = call(PythonTool(level=level, timeout=0.5), "print('a', flush=True)\nwhile True: pass")
    assert not result.ok
    assert result.text == "a\nThe program took more than 0.5 seconds and was stopped."
    assert result.metadata["ending"] == "timeout"


def test_the_last_line_of_an_error_is_enough_for_some():
    result = call(PythonTool(level="process", last_error_line=True), "1/0")
    assert result.text == "ZeroDivisionError: division by zero"


def test_memory_is_limited(level):
    result = call(PythonTool(level=level, memory_mb=128), "x = b'x' * 2**28")
    assert result.text.endswith("MemoryError")


def test_files_are_in_the_folder_of_the_program():
    (tool,) = make_tools("python(level='process', files={'data.csv': 'a,b'})")
    assert call(tool, "print(open('data.csv').read())").text == "a,b"


@needs_namespace
def test_variables_stay_for_the_episode_and_come_back_with_its_state():
    wrappers = "python_tool_no_int_reward(tools='python(stateful=True)')"
    env = gem_core.make("math:Arithmetic-v0", wrappers=wrappers)
    env.reset(seed=0)
    assert env.step("<python>x = 20</python>")[4]["tool_results"][0]["ok"]
    assert env.step("<python>x += 1; print(x)</python>")[0] == "Result of python:\n21"
    saved = json.loads(json.dumps(env.get_state()))
    env.step("<python>x = 0</python>")
    env.set_state(saved)
    assert env.step("<python>print(2 * x)</python>")[0] == "Result of python:\n42"
    env.reset(seed=0)
    assert "NameError" in env.step("<python>print(x)</python>")[0]
    env.close()


@needs_namespace
def test_programs_of_an_episode_run_one_at_a_time(monkeypatch):
    tool = PythonTool(level="namespace", stateful=True)
    state, running, most = tool.begin(), [], []
    run = tool._run

    def watched(*args):
        running.append(args)
        time.sleep(0.05)
        most.append(len(running))
        try:
            return run(*args)
        finally:
            running.pop()

    monkeypatch.setattr(tool, "_run", watched)
    count = "n = globals().get('n', 0) + 1\nprint(n)"

    async def calls():
        return await asyncio.gather(*(tool.call({"code": count}, state) for _ in range(6)))

    assert sorted(result.text for result in _loop.run(calls())) == list("123456")
    assert most == [1] * 6
    tool.end(state)


@needs_namespace
def test_a_stopped_session_continues_from_the_programs_before():
    tool = PythonTool(stateful=True, level="namespace", timeout=1.0)
    state = tool.begin()
    call(tool, "x = 1", state)
    assert call(tool, "x = 2\nwhile True: pass", state).metadata["ending"] == "timeout"
    assert call(tool, "print(x)", state).text == "1"
    assert call(tool, "import os\nos._exit(0)", state).ok
    assert call(tool, "print(x)", state).text == "1"
    tool.end(state)
    assert state.live is None


def test_the_event_loop_continues_while_programs_run(level):
    tool = PythonTool(level=level)

    async def play():
        waiting = [asyncio.ensure_future(tool.call({"code": "import time; time.sleep(0.5)"}, tool.begin()))]
        ticks = 0
        while not waiting[0].done():
            await asyncio.sleep(0.01)
            ticks += 1
        return ticks

    assert asyncio.run(play()) > 10


def test_options_that_cannot_be_honored_are_rejected():
    with pytest.raises(ConfigError, match="timeout=0"):
        PythonTool(timeout=0)
    with pytest.raises(SandboxError, match="no sessions"):
        PythonTool(level="process", stateful=True)
    with pytest.raises(SandboxError, match="min_level='namespace'"):
        PythonTool(level="process", min_level="namespace")
    with pytest.raises(ConfigError, match="unknown sandbox level"):
        PythonTool(level="jail")


@pytest.mark.parametrize(
    "given",
    ["timeout=1e999", "memory_mb=512.0", "memory_mb='512'", "memory_mb=0", "files=5", "files={'a': 1}"],
)
def test_a_value_of_a_wrong_type_is_rejected_before_a_program_runs(given):
    with pytest.raises(ConfigError, match=given.partition("=")[0]):
        make_tools(f"python({given})")


def test_gems_presets_pay_as_in_gem():
    env = gem_core.make("math:Arithmetic-v0", wrappers="python_tool(tools='python(level=\"process\")')")
    env.reset(seed=0)
    assert env.step("```python\nprint(1)\n```")[1] == pytest.approx(0.3)
    assert env.step("<python>1/0</python>")[1] == pytest.approx(0.05)
    assert env.max_tool_uses == 5
    env = gem_core.make("math:Arithmetic-v0", wrappers="python_tool_no_int_reward_last_line_error")
    env.reset(seed=0)
    observation, reward, *_ = env.step("<python>1/0</python>")
    assert (observation, reward) == ("Result of python:\nZeroDivisionError: division by zero", 0.0)


def test_a_sync_caller_gets_the_timeout_of_the_wrapper_too():
    env = gem_core.make(
        "math:Arithmetic-v0", wrappers="tools(tools='python(level=\"process\", timeout=30)', timeout=0.3)"
    )
    env.reset(seed=0)
    start = time.monotonic()
    assert "did not answer within 0.3 seconds" in env.step("<python>import time; time.sleep(20)</python>")[0]
    assert time.monotonic() - start < 20


def test_programs_may_be_indented_and_may_use_what_the_description_offers(level):
    tool = PythonTool(level=level)
    assert re.search(r"It can import the standard library(,| and) numpy\b", tool.description)
    assert call(tool, "    import numpy\n    print(numpy.arange(3).sum())").text == "3"
    assert call(tool, "print(1)\nexit()\nprint(2)").text == "1"
