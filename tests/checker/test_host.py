"""The snapshot of the host that attacks must not change."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from gem_lab._checker import host as host_module
from gem_lab._checker.host import ProcessSnapshot

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are listed in /proc"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # other tests leave threads behind
]


def test_a_fork_that_starts_its_program_late_is_noticed():
    host = ProcessSnapshot()
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
    host = ProcessSnapshot()
    child = os.fork()
    if child == 0:
        time.sleep(0.3)
        os._exit(0)
    try:
        assert host.changes() == []
        assert os.waitpid(child, os.WNOHANG) == (child, 0)
    finally:
        host.restore()


@pytest.mark.parametrize("what", ["deleted", "renamed", "deleted and made again"])
@pytest.mark.parametrize("changed", [False, True])
def test_what_others_do_to_the_working_directory_is_no_change(what, changed, tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    (here / "file").touch()
    monkeypatch.chdir(here)
    host = ProcessSnapshot()
    if what == "renamed":
        here.rename(there)
    else:
        shutil.rmtree(here)
        if what == "deleted and made again":
            here.mkdir()
    folder = os.stat(".")
    if changed:
        os.chdir("/")
    assert host.changes() == (["the working directory changed to /"] if changed else [])
    host.restore()
    assert os.path.samestat(os.stat("."), folder)
