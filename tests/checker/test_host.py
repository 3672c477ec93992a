"""The snapshot of the host that attacks must not change."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gem_lab.checker import host as host_module
from gem_lab.checker.host import Host

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are listed in /proc"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # other tests leave threads behind
]


def test_a_fork_that_starts_its_program_late_is_noticed():
    host = Host()
    child = os.fork()
    if child == 0:
        time.sleep(0.3)
        os.execvp("sh", ["sh", "-c", f"sleep 30; : {host.token}"])
    try:
        assert host.changes() == [f"process {child} is still running"]
    finally:
        host.restore()


def test_a_fork_without_a_program_delays_the_result_only(monkeypatch):
    monkeypatch.setattr(host_module, "_GRACE", 30.0)  # the child takes longer than a second on a busy machine
    host = Host()
    child = os.fork()
    if child == 0:
        time.sleep(0.3)
        os._exit(0)
    try:
        assert host.changes() == []
        assert os.waitpid(child, os.WNOHANG) == (child, 0)
    finally:
        host.restore()
