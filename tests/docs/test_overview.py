"""The picture on the first page shows numbers that the library computes; diagrams show its packages."""

from __future__ import annotations

import re

from gem_core.advantages import rebn, returns
from tests.docs.blocks import ROOT
from tests.docs.test_env_tables import load

REWARDS = [[0.0, 0.0, 1.0]]


def test_the_picture_shows_returns_and_advantages_of_its_episode() -> None:
    svg = (ROOT / "docs" / "images" / "overview.svg").read_text(encoding="utf-8")
    texts = re.findall(r"<text [^>]*>(.*?)</text>", svg)
    per_turn = returns(REWARDS, gamma=0.9)[0]
    advantages = rebn(REWARDS, gamma=0.9)[0]
    expected = [
        "return, discount 0.9", *(f"{value:.3g}" for value in per_turn),
        "advantage (ReBN)", *(f"{value:+.2f}".replace("-", "\N{MINUS SIGN}") for value in advantages),
    ]  # fmt: skip
    start = texts.index(expected[0])
    assert texts[start : start + len(expected)] == expected


def library() -> list[str]:
    """Return the packages of the library, the highest first, as import-linter's contract orders them."""
    contract = (
        (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("Packages import only those below")[2]
    )
    return re.findall(r'^  "(gem_\w+)",$', contract.partition("]")[0], re.MULTILINE)


def test_the_diagrams_are_current_and_show_every_module() -> None:
    """After a change, run `python tools/diagrams.py`."""
    diagrams = load("diagrams")
    for draw in (diagrams.layers, diagrams.episode):
        recorded = ROOT / "docs" / "images" / f"{draw.__name__}.svg"
        assert recorded.read_text(encoding="utf-8") == draw()
    shown = {name for *_, rows in diagrams.LAYERS for row in rows for name in row if " " not in name}
    packages = {path.parent.name for path in ROOT.glob("gem_*/*/__init__.py")}
    modules = {path.stem for path in ROOT.glob("gem_core/*.py") if not path.stem.startswith("__")}
    assert shown - {"pettingzoo"} == {name.removeprefix("_") for name in packages | modules}
    assert [title for title, *_ in diagrams.LAYERS[1:]] == library()
