"""The estimators of gem_core, without those that a test or another package registers."""

from __future__ import annotations

from gem_core.advantages import get_estimator, list_estimators

BUILTIN = [
    name for name in list_estimators() if get_estimator(name).__module__.startswith("gem_core.advantages.")
]
assert len(BUILTIN) >= 15, BUILTIN
