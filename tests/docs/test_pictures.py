"""The pictures of episodes in the documentation."""

from __future__ import annotations

import html
import io
import re
import sys

import pytest

from gem_core.sandbox import self_check
from tests.docs.blocks import ROOT
from tests.docs.test_env_tables import load

pytest.importorskip("rich", reason="needs the extra 'train'")
FAMILIES = ("games", "math", "logic", "reasoning-gym", "qa", "code", "databases", "terminal", "webshop")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_picture_shows_the_episode_of_today(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After changing an environment, run tools/pictures.py again."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    pictures = load("pictures")
    monkeypatch.delitem(sys.modules, "screenshot", raising=False)
    assert set(pictures.FAMILIES) == set(FAMILIES)
    if family in pictures.SANDBOXED and not (check := self_check()["namespace"]).available:
        pytest.skip(check.reason)
    if family == "reasoning-gym":
        pytest.importorskip("reasoning_gym", reason="needs the extra 'rg'")
    if family == "databases":
        pytest.importorskip("mcp", reason="needs the extra 'mcp'")
    if family == "terminal":
        pytest.importorskip("yaml", reason="needs the extra 'terminal'")
    if family == "webshop":
        pytest.importorskip("bm25s", reason="needs the extra 'search'")
    svg = (pictures.FOLDER / f"{family}.svg").read_text(encoding="utf-8")
    drawn = html.unescape("".join(re.findall(r"<text [^>]*>(.*?)</text>", svg)))
    shown = pictures.episode(pictures.FAMILIES[family]).plain
    assert "solved" in shown
    assert "".join(shown.split()) in "".join(drawn.split())
    page = (ROOT / f"docs/environments/{family}.md").read_text(encoding="utf-8")
    assert f"](../images/episodes/{family}.svg)" in page


def test_the_figure_shows_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL", reason="needs the extra 'vision'")
    from PIL import Image, ImageChops, ImageStat

    monkeypatch.syspath_prepend(ROOT / "tools")
    pictures = load("pictures")
    monkeypatch.delitem(sys.modules, "screenshot", raising=False)
    today = Image.open(io.BytesIO(pictures.figure())).convert("L")
    recorded = Image.open(pictures.FOLDER / "vision.png").convert("L")
    assert ImageStat.Stat(ImageChops.difference(today, recorded)).mean[0] < 2  # versions of Pillow may differ
    assert ImageStat.Stat(today).stddev[0] > 10
    assert "images/episodes/vision.png)" in (ROOT / "docs/environments/vision.md").read_text(encoding="utf-8")
