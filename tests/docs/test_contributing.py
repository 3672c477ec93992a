"""CONTRIBUTING.md names files and commands that exist."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
NEW = {
    "gem_envs/_games/new_game.py", "tests/envs/games/test_new_game.py", "gem_envs/graders/_new.py",
    "gem_envs/graders/new.py", "gem_envs/datasets/_new.py",
    "tests/graders/test_new.py", "integrations/acme/gem_acme/", "integrations/acme/README.md",
    "constraints/acme.txt", "tests/trainers/acme/", "docs/trainers/acme.md",
}  # fmt: skip
"""Files that a contribution creates."""


def test_every_path_exists_or_is_new() -> None:
    quoted = re.findall(r"`([\w.]+/[\w./]*|[\w.]+\.(?:md|toml|yml|py))`", TEXT)
    commands = re.findall(
        r"(?:tools|tests|docs)/[\w./]+", "\n".join(re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL))
    )
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", TEXT)]
    paths = {*quoted, *commands, *links}
    assert len(paths) > 30
    assert paths >= NEW
    for path in paths - NEW:
        assert (ROOT / path).exists(), f"CONTRIBUTING.md names {path}, which does not exist"
    for path in NEW:
        assert not (ROOT / path).exists(), f"CONTRIBUTING.md uses {path} as an example of a new file"
        assert (ROOT / path).parent.exists() or "acme" in path, path


@pytest.mark.parametrize(("command", "file"), [("make", "Makefile"), ("nox -s", "noxfile.py")])
def test_every_target_and_session_exists(command: str, file: str) -> None:
    text = (ROOT / file).read_text("utf-8")
    names = set(
        re.findall(rf"[`/]{command} ([a-z][a-z-]*)", TEXT) + re.findall(rf"^{command} ([a-z-]+)", TEXT, re.M)
    )
    assert len(names - {"acme"}) >= 3
    for name in names - {"acme"}:
        found = rf"^{name}:" if file == "Makefile" else rf"^def {name}\(|name=.{name}."
        assert re.search(found, text, re.M), f"CONTRIBUTING.md names `{command} {name}`, which {file} lacks"


def test_the_files_of_each_kind_are_listed() -> None:
    sections = dict(re.findall(r"^## (An? [\w ]+)\n(.*?)(?=^## |\Z)", TEXT, re.M | re.DOTALL))
    assert sections.keys() == {"An environment", "An estimator", "A grader", "A trainer plugin"}
    for name, section in sections.items():
        assert section.count("\n| `") >= 4, name
        assert section.count("```bash") == 1, name
