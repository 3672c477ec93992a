from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
from collections import defaultdict
from zlib import crc32

import pytest
from hypothesis import settings

from gem_core import _registration
from gem_core.advantages import _registry as estimators
from gem_lab import _discovery

# Tests that a shell runs in the background inherit an ignored SIGINT, but some of them raise it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No test has a deadline, because any test may be slow on a busy machine.
settings.register_profile("untimed", deadline=None)
settings.register_profile("few", deadline=None, max_examples=20)  # for the Pythons of the session `minimal`
settings.load_profile("untimed")

# Ray gives up if its processes take longer than this to start; on a busy machine, its default of 30 s is too
# short.
os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")

EXIT_SECONDS = 120
"""Time that the interpreter has to exit after the tests."""

gc.disable()  # while tests are collected: imports create little garbage, and looking for it takes 5 s


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cases",
        default="1/1",
        metavar="I/N",
        help="run share I of N of the cases of each parametrized test; all cases of one with fewer than N",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases of other shares; start with the long tests, so that none runs alone at the end."""
    share, shares = map(int, config.getoption("cases").split("/"))
    if not 1 <= share <= shares:
        raise pytest.UsageError(f"--cases {share}/{shares}: expected a share from 1 to {shares}")
    tests = defaultdict(list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    dropped = set()
    for cases in tests.values():
        # In the order of their parameters, one share would have all cases with the last of two values.
        mixed = sorted(cases, key=lambda item: crc32(item.nodeid.encode()))
        if len(cases) >= shares:
            dropped |= {item for index, item in enumerate(mixed) if index % shares != share - 1}
    config.hook.pytest_deselected(items=[*dropped])
    items[:] = [item for item in items if item not in dropped]
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """Exclude all imported modules from later garbage collections, and collect less often.

    A full collection takes 0.7 s with the modules, so none precedes the freeze. Tests create many small
    objects, and with the default threshold of 700, looking for garbage takes a tenth of the time of tests
    that play episodes.
    """
    gc.enable()
    gc.freeze()
    gc.set_threshold(10_000)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Limit the time to exit: a thread or an exit handler that hangs is not covered by pytest-timeout.

    After that time, the tracebacks of all threads are printed and the exit code is 1.
    """
    if not hasattr(config, "workerinput"):  # a worker of pytest-xdist waits for the others after its tests
        faulthandler.dump_traceback_later(EXIT_SECONDS, exit=True, file=sys.__stderr__)


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what a test registers, except what gem_core itself registers once per process."""
    registries = (
        _registration._envs,
        _registration._wrappers,
        _registration._schemes,
        estimators._estimators,
    )
    for registry in registries:
        registry.names()  # registers families and installed packages
        monkeypatch.setattr(registry, "_values", registry.registered())
    monkeypatch.setattr(_discovery, "_registered", dict(_discovery._registered))
