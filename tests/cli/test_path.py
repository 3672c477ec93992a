from __future__ import annotations

from pathlib import Path

import pytest

from gem_core.cli import main
from gem_core.cli.path import FILES


@pytest.mark.parametrize("name", FILES)
def test_the_file_is_there(name, capsys):
    assert main(["path", name]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert Path(line).is_file()
    assert Path(line).suffix == ".py"


def test_an_unknown_file_says_which_there_are(capsys):
    assert main(["path", "openrlhf-agnet"]) == 2
    assert "openrlhf-agent" in capsys.readouterr().err
