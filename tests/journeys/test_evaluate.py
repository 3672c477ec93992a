"""A user evaluates a model behind an endpoint, extends the run, and compares it with a second model.

It takes about 12 s on two CPU cores.

The commands are those of the page about evaluation; a stub takes the place of the endpoint.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gem_lab import main
from tests.docs.blocks import commands
from tests.engines.stub import Request, StubEndpoint, guess

pytest.importorskip("openai", reason="needs the extra 'eval'")
PAGE = "docs/concepts/evaluation.md"
ENV = "game:GuessTheNumber-v0-easy"


def always_five(request: Request) -> str:
    """Return the same move at each turn."""
    return r"\boxed{5}"


def _difference(compare: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Run the command ``compare`` and return the difference between its two runs."""
    capsys.readouterr()
    assert main([*compare, "--json"]) == 0
    (difference,) = json.loads(capsys.readouterr().out)["differences"].values()
    overall: dict[str, Any] = difference["overall"]
    return overall


@pytest.mark.long
def test_from_an_endpoint_to_a_paired_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    first, second, compare, *longer = (words[1:] for words in commands(PAGE, "runs/base"))
    with StubEndpoint(guess) as base, StubEndpoint(always_five) as tuned:
        for words, endpoint in ((first, base), (second, tuned)):
            assert main([*words, "--base-url", endpoint.url]) == 0
        assert _difference(compare, capsys)["tasks"] == 20
        for words, endpoint in ((longer[0], base), (longer[1], tuned)):
            assert main([*words, "--base-url", endpoint.url]) == 0
    episodes = [request for request in base.requests if len(request["messages"]) == 1]
    assert len(episodes) == 100  # the first 20 were not played again
    summary = json.loads(Path("runs/base/summary.json").read_text())
    assert summary["envs"][ENV]["episodes"] == 100
    difference = _difference(longer[2], capsys)
    assert difference["tasks"] == 100
    success = difference["success"]
    assert success["low"] <= success["mean"] <= success["high"]
    assert Path("report.html").is_file()
