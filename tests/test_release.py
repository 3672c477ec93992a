"""Facts that a release states in several files agree."""

from __future__ import annotations

import re
from pathlib import Path

import gem_core
from tests.docs.test_env_tables import load

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


def declared() -> dict[str, list[str]]:
    """Return the requirements of each extra, without tomllib, which Python 3.10 lacks."""
    project = (ROOT / "pyproject.toml").read_text()
    section = project.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    extras = re.findall(r"^(\w+) = \[(.*?)^(?=\w|\Z)", section + "\n", re.MULTILINE | re.DOTALL)
    return {name: re.findall(r'"([^"]+)"', items) for name, items in extras}


def test_the_installation_page_lists_every_extra() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == declared().keys()


def test_every_extra_is_used_with_its_lowest_versions() -> None:
    smokes = load("lowest").SMOKES
    assert smokes.keys() == declared().keys(), "tools/lowest.py has an entry for each extra"
    for extra, smoke in smokes.items():
        assert smoke.tests or smoke.commands, extra
        assert declared().keys() >= set(smoke.extras), extra
        files = [test.partition("::")[0] for test in smoke.tests if test.startswith("tests/")]
        assert files or smoke.commands, extra
        for file in files:
            assert (ROOT / file).exists(), file
        for test in smoke.tests:
            file, _, name = test.partition("::")
            assert not name or f"def {name}(" in (ROOT / file).read_text(), test


def test_every_package_of_an_extra_has_a_lower_bound() -> None:
    requirements = [item for items in declared().values() for item in items]
    assert len(requirements) > 30
    for item in requirements:
        assert ">=" in item or re.fullmatch(r"gem-core\[\w+\]", item), item
