"""Calls in threads, by what they work for."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import weakref

import pytest

from gem_core._util.owners import _calls, after_calls, calls_of, running_call
from gem_core._util.threads import ThreadCall, in_thread


class Owner:
    pass


def test_the_last_call_of_all_blocks_and_tasks_counts() -> None:
    one, two, gates = Owner(), Owner(), [threading.Event(), threading.Event()]
    ended: list[str] = []
    began, done = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        gates[0].wait(30)

    async def main() -> None:
        with calls_of(one):
            first = asyncio.ensure_future(in_thread(wait))  # a task of its own
            with calls_of(two):
                second = ThreadCall(lambda: gates[1].wait(30))
        while not began.is_set():  # a call that has not begun would never run
            await asyncio.sleep(0.001)
        assert running_call(one) is not None
        assert running_call(two) is second.future
        after_calls(one, lambda: (ended.append("one"), done.set()))
        after_calls(two, lambda: ended.append("two"))
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert running_call(one) is not None, "an abandoned call still runs"
        gates[1].set()
        await second.outcome()

    asyncio.run(main())
    assert ended == ["two"]
    gates[0].set()
    assert done.wait(30)
    assert ended == ["two", "one"]
    assert running_call(one) is running_call(two) is None
    after_calls(one, lambda: ended.append("at once"))
    assert ended[-1] == "at once"


def test_calls_outside_of_a_block_work_for_nobody_and_none_is_kept() -> None:
    owner = Owner()

    async def main() -> None:
        with calls_of(owner):
            await in_thread(int, "3")
        call = ThreadCall(threading.Event().wait)
        assert running_call(owner) is None
        call.future.cancel()

    before = len(_calls)
    asyncio.run(main())
    assert len(_calls) == before


def test_an_owner_lives_as_long_as_its_calls() -> None:
    owner, gate = Owner(), threading.Event()
    gone = weakref.ref(owner)
    with calls_of(owner):
        call = ThreadCall(lambda: gate.wait(30))
    del owner
    gc.collect()
    assert gone() is not None
    gate.set()
    call.future.result(30)
    del call
    end = time.monotonic() + 30
    while gone() is not None:  # until the thread has left the call
        assert time.monotonic() < end
        gc.collect()
        time.sleep(0.01)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_does_not_wait_for_the_threads_of_its_parent() -> None:
    owner, gate = Owner(), threading.Event()
    with calls_of(owner):
        ThreadCall(lambda: gate.wait(30))
    child = os.fork()
    if child == 0:
        os._exit(0 if running_call(owner) is None else 1)
    _, status = os.waitpid(child, 0)
    gate.set()
    assert status == 0
