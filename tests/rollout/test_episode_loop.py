"""`EpisodeLoop`: an interrupted call leaves nothing that goes on inside the next one."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gem_chat import AppendContext
from gem_chat._concurrency import EpisodeLoop, play_tasks
from gem_core.rollout import run_episode
from tests.cancels.witness import Awaiting, Blocking, Witness
from tests.rollout.policies import ScriptedPolicy
from tests.rollout.tokenizers import CharTokenizer

CONTEXT = AppendContext(CharTokenizer())


class Interrupted(ScriptedPolicy):
    """Is interrupted, or fails, in the `at`-th request; counts the requests after that."""

    def __init__(self, error: BaseException, at: int) -> None:
        super().__init__([[5, CharTokenizer().eos_token_id]])
        self.error, self.at, self.later = error, at, 0

    async def generate(self, *args: Any, **kwargs: Any) -> Any:
        number = len(self.requests) + 1
        answer = await super().generate(*args, **kwargs)
        if number == self.at:
            raise self.error
        self.later += number > self.at
        return answer


def episodes(kind: type[Witness], policy: Any, number: int = 5, turns: int = 20) -> Any:
    async def one(index: int, _: object) -> Any:
        return await run_episode(kind(turns=turns), policy, CONTEXT)

    return play_tasks(range(number), one, at_once=number)


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(3), RuntimeError("broke"), GeneratorExit()]
)
@pytest.mark.parametrize("kind", [Witness, Awaiting, Blocking])
@pytest.mark.parametrize("at", [1, 12])
def test_an_interrupted_call_leaves_nothing(error: BaseException, kind: type[Witness], at: int) -> None:
    Witness.made.clear()
    loop = EpisodeLoop()
    policy = Interrupted(error, at)
    with pytest.raises(type(error)):
        loop.run(episodes(kind, policy))
    later = policy.later
    assert len(Witness.made) == 5
    for env in Witness.made:
        assert env.was_closed.wait(30)
    assert [env.closed for env in Witness.made] == [1] * 5
    again = ScriptedPolicy([[5, CharTokenizer().eos_token_id]])
    assert len(loop.run(episodes(kind, again))) == 5
    assert policy.later == later, "the interrupted episodes went on inside the next call"
    loop.close()
    loop.close()


def test_a_task_that_is_interrupted_again_while_it_ends() -> None:
    ended = []

    async def one(number: int) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(number)
            if number < 2:
                raise KeyboardInterrupt

    async def main() -> None:
        tasks = [asyncio.ensure_future(one(number)) for number in range(3)]
        await asyncio.sleep(0)
        del tasks[:]
        raise KeyboardInterrupt

    loop = EpisodeLoop()
    with pytest.raises(KeyboardInterrupt):
        loop.run(main())
    assert sorted(ended) == [0, 1, 2]
    loop.close()


def _in_a_notebook(call: Callable[[], Any]) -> Any:
    """Run `call` where an event loop is running already."""

    async def cell() -> Any:
        return call()

    return asyncio.run(cell())


def test_a_call_in_a_notebook() -> None:
    loop = EpisodeLoop()

    async def where() -> str:
        return threading.current_thread().name

    assert _in_a_notebook(lambda: loop.run(where())) == "gem-episodes"
    assert loop.run(where()) == threading.current_thread().name

    async def fail() -> None:
        raise RuntimeError("broke")

    with pytest.raises(RuntimeError, match="broke"):
        _in_a_notebook(lambda: loop.run(fail()))
    assert loop.run(where())
    _in_a_notebook(loop.close)
    assert loop._loop.is_closed()


NOTEBOOK = """
import asyncio, os, signal, threading, time
from gem_chat._concurrency import EpisodeLoop
loop, turns, ended = EpisodeLoop(), [0, 0], []

async def episode(call):
    try:
        for _ in range(20 if call else 10**6):
            turns[call] += 1
            if turns[0] == 3 and not call:
                os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C does
            await asyncio.sleep(0.001)
    finally:
        ended.append(call)

def cell():
    try:
        loop.run(episode(0))
    except KeyboardInterrupt:
        before = turns[0]
        loop.run(episode(1))
        print(turns[0] - before, turns[1], ended)

if NOTEBOOK:
    async def main():
        cell()
    loop_of_the_notebook = asyncio.new_event_loop()  # asyncio.run would handle the signal
    loop_of_the_notebook.run_until_complete(main())
else:
    cell()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal to the process")
@pytest.mark.parametrize("notebook", [False, True])
def test_ctrl_c_in_a_script_and_in_a_notebook(notebook: bool) -> None:
    assert signal.getsignal(signal.SIGINT) is not None
    code = NOTEBOOK.replace("NOTEBOOK", str(notebook))
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "0 20 [0, 1]\n", ended.stderr
