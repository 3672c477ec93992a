"""Runs Oat's command in forks of a process that has imported Oat, because a short run mostly imports."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from unittest import mock

from tests.trainers.processes import Run, end_session

MODULE = "gem_oat.train"
IMPORTED = ["launchpad", "oat.interface", "gem_oat._actor", "gem_oat._checks", "gem_oat._learner"]
"""Modules that the command imports in any case; those of ``--modules`` are imported in the forks."""

_context = multiprocessing.get_context("forkserver")


def run_forked(arguments: Sequence[str], *, folder: Path, env: Mapping[str, str], timeout: float) -> Run:
    """Run ``python -m gem_oat.train`` with these arguments until it ends.

    Args:
        arguments: Words of the command line after the module.
        folder: Working folder; the output is written to ``log.txt`` in it.
        env: All environment variables. The stubs must be on the path in the first call.
        timeout: Time limit in seconds.
    """
    with mock.patch.dict(os.environ, env, clear=True):
        _context.set_forkserver_preload(IMPORTED)
        forkserver.ensure_running()  # does nothing if it runs
    process = _context.Process(target=_command, args=(list(arguments), folder, dict(env)))
    process.start()
    process.join(timeout)
    code = -1 if process.exitcode is None else process.exitcode
    assert process.pid is not None
    end_session(process.pid)
    process.kill()  # in case it has not begun its session
    process.join(60)
    return Run(folder, (folder / "log.txt").read_text(errors="replace"), code)


def _command(arguments: list[str], folder: Path, env: dict[str, str]) -> None:
    os.setsid()
    os.chdir(folder)
    log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(log, stream.fileno())
    os.environ.clear()
    os.environ.update(env)
    sys.path[:0] = env["PYTHONPATH"].split(os.pathsep)
    sys.argv = [MODULE, *arguments]
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
