"""Facts that a release states in several files agree."""

from __future__ import annotations

import re
from pathlib import Path

import gem_core

ROOT = Path(__file__).resolve().parents[1]


def test_the_version_has_a_changelog_entry_and_is_cited() -> None:
    assert re.search(
        rf"^version: {re.escape(gem_core.__version__)}$", (ROOT / "CITATION.cff").read_text(), re.M
    )
    headings = re.findall(r"^## \[?(\S+?)\]?(?: |$)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert gem_core.__version__ in headings


def test_every_description_gives_the_same_number_of_trainers() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    trainers = project.partition('[project.entry-points."gem_core.trainers"]')[2].partition("[")[0]
    number = {5: "five", 6: "six", 7: "seven"}[len(trainers.split("\n\n")[0].strip().splitlines())]
    for name in ("pyproject.toml", "CITATION.cff", "mkdocs.yml"):
        assert re.search(rf"(?:description|title).*\b{number} RL trainers", (ROOT / name).read_text()), name


def test_the_installation_page_lists_every_extra() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    section = project.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    extras = set(re.findall(r"^(\w+) = \[", section, re.MULTILINE))
    page = (ROOT / "docs" / "install.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == extras
