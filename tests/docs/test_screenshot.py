"""The screenshot of `gem-core play` in the documentation."""

from __future__ import annotations

import html
import re
import sys

import pytest

from tests.docs.blocks import ROOT
from tests.docs.test_env_tables import load

pytest.importorskip("rich", reason="needs the extra 'train'")
pytest.importorskip("pty", reason="needs pseudo terminals")


def test_the_screenshot_shows_what_play_shows_today() -> None:
    """After changing the command or the game, run the line in tools/screenshot.py again."""
    screenshot = load("screenshot")
    lines = re.findall(r'"([^"]+)"|(:hint)', (screenshot.__doc__ or "").split(" -- ")[1].split("\n\n")[0])
    typed = [one or other for one, other in lines]
    command = ["play", "game:Minesweeper-v0-easy", "--seed", "3"]
    shown = screenshot.session([sys.executable, "-m", "gem_lab", *command], [*typed, ":quit"])
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    svg = (ROOT / "docs" / "images" / "play.svg").read_text(encoding="utf-8")
    texts = re.findall(r"<text [^>]*>(.*?)</text>", svg)
    drawn = " ".join(html.unescape("".join(texts)).split())
    words = plain.split()
    assert len(words) > 100
    assert "".join(words) in drawn.replace(" ", "")
    assert "url(" not in re.sub(r"url\(#", "", svg)  # no external resources
