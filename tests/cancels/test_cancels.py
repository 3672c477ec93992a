"""A canceled episode leaves nothing behind, whichever moment the cancel meets.

`python -m tests.cancels` counts over more random moments and prints a table.
"""

from __future__ import annotations

import contextlib
import logging

import pytest

from tests.cancels.scenes import SCENES, SERVED
from tests.cancels.trial import run_scene


@pytest.mark.parametrize("name", SCENES)
def test_nothing_is_left_of_a_canceled_episode(name: str) -> None:
    canceled, left = run_scene(SCENES[name], 8, name)
    assert canceled >= 10  # random moments may come after the end of a quick episode
    assert not left


@pytest.mark.parametrize(("name", "package"), [("OpenEnv", "aiohttp"), ("MCP", "mcp")])
def test_nothing_is_left_on_a_server(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(package, reason="needs a server")
    # pytest keeps the records of a test, and so the sockets in the traceback of an error that mcp logs.
    monkeypatch.setattr(logging.getLogger("mcp.client.streamable_http"), "disabled", True)
    with contextlib.ExitStack() as stack:
        scene = stack.enter_context(SERVED[name]())
        canceled, left = run_scene(scene, 4, name)
        assert canceled >= 4
        assert not left
