"""The option `--cases` splits the cases of each test between the Pythons of the session `minimal`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FILE = "tests/envs/test_base_games.py"


def collected(cases: str) -> set[str]:
    words = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "--cases", cases, FILE]
    done = subprocess.run(
        [sys.executable, *words], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    )
    return {line for line in done.stdout.splitlines() if line.startswith(FILE)}


@pytest.mark.once
def test_every_test_is_in_both_shares_and_every_case_of_several_in_one() -> None:
    every, one, two = map(collected, ("1/1", "1/2", "2/2"))
    assert one | two == every
    assert one & two == {case for case in every if "[" not in case} != set()
    names = [{case.partition("[")[0] for case in share} for share in (every, one, two)]
    assert names[0] == names[1] == names[2]
    assert abs(len(one) - len(two)) <= len(names[0])
    assert len(one) < 0.6 * len(every)
