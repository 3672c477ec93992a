"""Skips these tests if RL2 is missing; RL2 is imported once per test session."""

from __future__ import annotations

import pytest

from tests.trainers.rl2 import harness

pytest.importorskip("RL2", reason="needs rl-square; `nox -s rl2` has it")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "tree: runs RL2's source tree, which RL2_HOME names")
    config.addinivalue_line("markers", "imports(version): for one of the two versions of RL2 only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect (rather than skip) the tests of the version of RL2 that is not imported."""
    from gem_rl2._upstream import find

    imported = "index" if find().is_index else "tree"

    def fits(item: pytest.Item) -> bool:
        version = item.get_closest_marker("imports")
        if version is not None and version.args != (imported,):
            return False
        return bool(harness.HOME) or item.get_closest_marker("tree") is None

    config.hook.pytest_deselected(items=[item for item in items if not fits(item)])
    items[:] = [item for item in items if fits(item)]
