"""A user evaluates a model behind an endpoint, extends the run, and compares it with a second model.

The commands are those of the page about evaluation; a stub takes the place of the endpoint.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from gem_core.cli import main
from tests.docs.blocks import blocks
from tests.engines.stub import Request, StubEndpoint, guess

pytest.importorskip("openai", reason="needs the extra 'eval'")
PAGE = "docs/concepts/evaluation.md"
ENV = "game:GuessTheNumber-v0-easy"


def always_five(request: Request) -> str:
    """Return the same move at each turn."""
    return r"\boxed{5}"


def commands(text: str) -> list[list[str]]:
    """Return the words after `gem-core` of the page's commands in the block that contains a text."""
    (code,) = [block.code for block in blocks(PAGE) if block.language == "bash" and text in block.code]
    return [shlex.split(line)[1:] for line in code.replace("\\\n", " ").splitlines() if line]


def test_from_an_endpoint_to_a_paired_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    first, second, longer, compare = commands("runs/base")
    with StubEndpoint(guess) as base, StubEndpoint(always_five) as tuned:
        for words, endpoint in ((first, base), (second, tuned)):
            assert main([*words, "--base-url", endpoint.url]) == 0
        played = len(base.requests)
        assert main([*longer, "--base-url", base.url]) == 0
        assert main([*shlex.split(shlex.join(second).replace("20", "30")), "--base-url", tuned.url]) == 0
    assert len(base.requests) < 2 * played  # only the ten additional episodes were played
    summary = json.loads(Path("runs/base/summary.json").read_text())
    assert summary["envs"][ENV]["episodes"] == 30
    capsys.readouterr()
    assert main([*compare, "--json"]) == 0
    (difference,) = json.loads(capsys.readouterr().out)["differences"].values()
    assert difference["overall"]["tasks"] == 30
    success = difference["overall"]["success"]
    assert success["low"] <= success["mean"] <= success["high"]
    assert Path("report.html").is_file()
