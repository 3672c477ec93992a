"""Whether items are the same in another process, where sets have another order."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("reasoning_gym", reason="needs the extra 'rg'")

import gem_core

PROGRAM = """
import json
import gem_core
names = ["isomorphic_strings", "polynomial_multiplication", "ransom_note", "letter_counting", "word_ladder"]
print(json.dumps({name: gem_core.make(f"rg:{name}").reset(seed=5)[0] for name in names}))
"""


def test_items_that_depend_on_the_order_of_sets_are_declared() -> None:
    first, second = (
        json.loads(
            subprocess.run(
                [sys.executable, "-c", PROGRAM],
                env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
                capture_output=True,
                text=True,
                check=True,
            ).stdout.splitlines()[-1]
        )
        for hash_seed in ("1", "2")
    )
    differ = {name for name in first if first[name] != second[name]}
    assert differ == {"isomorphic_strings", "polynomial_multiplication", "ransom_note"}
    for name in first:
        assert gem_core.spec(f"rg:{name}").deterministic == (name not in differ)
