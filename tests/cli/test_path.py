from __future__ import annotations

from pathlib import Path

import pytest

from gem_lab import main


def test_the_file_is_installed(capsys):
    name = "openrlhf-agent"
    assert main(["path", name]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert Path(line).is_file()
    assert Path(line).suffix == ".py"
    assert main(["path"]) == 0
    assert [name, line] in [row.split() for row in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("name", ["openrlhf-agnet", "nothing", "agent", "rl2"])
def test_an_unknown_file_says_which_there_are(name, capsys):
    assert main(["path", name]) == 2
    hint = " Did you mean openrlhf-agent?" if name == "openrlhf-agnet" else ""
    expected = f"gem-core: error: unknown file '{name}'.{hint} Available: openrlhf-agent\n"
    assert capsys.readouterr().err == expected
