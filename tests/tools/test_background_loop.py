"""The background loop where no further thread may start."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings

import pytest

from gem_envs._background import BackgroundLoop
from gem_envs.tools import _loop


@pytest.mark.parametrize("away", [False, True])
def test_a_loop_that_cannot_start_is_tried_again(away: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer() -> int:
        return 3

    def ask() -> int:
        return asyncio.run(_loop.on_background(answer())) if away else _loop.run(answer())

    loop = BackgroundLoop("test-loop")
    for name, method in {"run": loop.run, "on_background": loop.on}.items():
        monkeypatch.setattr(_loop, name, method)
    before = threading.stack_size(2**46)  # more than there is
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a coroutine that nobody awaits
            with pytest.raises(RuntimeError, match="can't start new thread"):
                ask()
    finally:
        threading.stack_size(before)
    assert ask() == 3
    made = loop._loop
    assert made is not None
    made.call_soon_threadsafe(made.stop)
    while made.is_running():
        time.sleep(0.001)
    made.close()
