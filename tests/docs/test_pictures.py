"""The pictures of episodes in the documentation."""

from __future__ import annotations

import html
import re
import sys

import pytest

from gem_core.sandbox import self_check
from tests.docs.blocks import ROOT
from tests.docs.test_env_tables import load

pytest.importorskip("rich", reason="needs the extra 'train'")
FAMILIES = ("math", "logic", "qa", "code", "databases", "terminal")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_picture_shows_the_episode_of_today(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After changing an environment, run tools/pictures.py again."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    pictures = load("pictures")
    monkeypatch.delitem(sys.modules, "screenshot", raising=False)
    assert set(pictures.FAMILIES) == set(FAMILIES)
    if family in pictures.SANDBOXED and not (check := self_check()["namespace"]).available:
        pytest.skip(check.reason)
    if family == "databases":
        pytest.importorskip("mcp", reason="needs the extra 'mcp'")
    if family == "terminal":
        pytest.importorskip("yaml", reason="needs the extra 'terminal'")
    svg = (pictures.FOLDER / f"{family}.svg").read_text(encoding="utf-8")
    drawn = html.unescape("".join(re.findall(r"<text [^>]*>(.*?)</text>", svg)))
    shown = pictures.episode(pictures.FAMILIES[family]).plain
    assert "solved" in shown
    assert "".join(shown.split()) in "".join(drawn.split())
    page = (ROOT / f"docs/environments/{family}.md").read_text(encoding="utf-8")
    assert f"](../images/episodes/{family}.svg)" in page
