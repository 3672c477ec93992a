"""The rule about attacks in a process that has used nothing of the library before."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    "arguments",
    [
        ["game:GuessTheNumber-v0-easy"],
        ["game:GuessTheNumber-v0-easy", "--wrappers", "tools(tools=['python'])"],
        ["terminal:Files-v0"],
    ],
    ids=" ".join,
)
def test_what_the_library_starts_for_itself_is_not_the_work_of_a_text(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "gem_lab", "check", *arguments, "--json", "--seeds", "1"]
    command += ["--rules", "attacks_change_nothing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (report,) = json.loads(done.stdout)
    assert (report["status"], report["rules"]) == ("ok", ["attacks_change_nothing"])
