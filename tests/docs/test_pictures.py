"""The pictures of episodes in the documentation."""

from __future__ import annotations

import html
import io
import re
import sys
from pathlib import Path

import pytest

from gem_envs.sandbox import self_check
from tests.docs.blocks import ROOT
from tests.docs.test_env_tables import load

pytest.importorskip("rich", reason="needs the extra 'train'")
AGENTS_PAGE = "docs/concepts/multi-agent.md"
FAMILIES = {
    **dict.fromkeys(
        ("games", "math", "logic", "reasoning-gym", "qa", "code", "databases", "terminal", "webshop")
    ),
    "service": AGENTS_PAGE,
}
"""Maps the name of each picture to the page that shows it; None for the page of that name."""


@pytest.mark.parametrize("family", FAMILIES)
def test_a_picture_shows_the_current_episode(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
    shown = pictures.episode(pictures.FAMILIES[family]).plain
    assert "solved" in shown
    page = FAMILIES[family] or f"docs/environments/{family}.md"
    assert_drawn(pictures.FOLDER / f"{family}.svg", shown, page)


def test_the_picture_of_two_players_shows_the_episode_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    pictures = load("pictures")
    monkeypatch.delitem(sys.modules, "screenshot", raising=False)
    shown = pictures.agents_episode().plain
    assert "environment to player 2" in shown
    assert_drawn(pictures.FOLDER / "multi-agent.svg", shown, AGENTS_PAGE)


def assert_drawn(picture: Path, text: str, page: str) -> None:
    """Assert that a picture contains a text, and that a page shows the picture."""
    svg = picture.read_text(encoding="utf-8")
    drawn = html.unescape("".join(re.findall(r"<text [^>]*>(.*?)</text>", svg)))
    assert "".join(text.split()) in "".join(drawn.split())
    assert f"](../images/episodes/{picture.name})" in (ROOT / page).read_text(encoding="utf-8")


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
