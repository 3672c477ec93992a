"""Pages are written beside files of others: never through a link, never over a file of the user."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from gem_core._util.files import PAGE_MARK as MARK
from gem_lab.cli import main
from gem_lab.eval.config import EvalConfig
from gem_lab.eval.run import evaluate

EASY = "game:GuessTheNumber-v0-easy"


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    folder = tmp_path_factory.mktemp("played") / "run"
    evaluate(EvalConfig("random", [EASY], episodes=2, out=str(folder)))
    return folder


@pytest.fixture
def download(played, tmp_path):
    """A folder of runs from someone else: an evaluation, and a trace."""
    folder = tmp_path / "download"
    shutil.copytree(played, folder / "run")
    shutil.copy(played / "episodes.jsonl", folder / "notes.jsonl")
    return folder


@pytest.fixture
def precious(tmp_path):
    path = tmp_path / "home" / "authorized_keys"
    path.parent.mkdir()
    path.write_text("precious")
    return path


@pytest.mark.parametrize("place", ["notes.html", "run/view.html", "index.html"])
@pytest.mark.parametrize("kind", ["file", "page", "dangling", "chain"])
def test_a_folder_cannot_make_view_write_through_a_link(download, precious, place, kind, capsys):
    target = precious
    if kind == "page":
        precious.write_text(f"<html><head>{MARK}</head>precious</html>")
    elif kind == "dangling":
        target = precious.with_name("new")
    elif kind == "chain":
        target = precious.with_name("middle")
        target.symlink_to(precious)
    before = precious.read_text()
    (download / place).symlink_to(os.path.relpath(target, (download / place).parent))
    code = main(["view", str(download)])
    said = capsys.readouterr().err
    assert precious.read_text() == before
    assert not precious.with_name("new").exists()
    assert (download / place).is_symlink()
    if place == "index.html":
        assert code == 2
        assert "index.html is a link" in said
    else:
        assert code == 0
        assert f"{place.rpartition('/')[2]} is a link" in (download / "index.html").read_text()


@pytest.mark.parametrize("command", ["view", "view --out"])
def test_a_link_is_no_page_to_write(command, download, precious, capsys):
    out = download / "notes.html"
    out.symlink_to(precious)
    arguments = {
        "view": ["view", str(download / "notes.jsonl")],
        "view --out": ["view", str(download), "--out", str(out)],
    }[command]
    assert main(arguments) == 2
    assert "notes.html is a link" in capsys.readouterr().err
    assert precious.read_text() == "precious"


@pytest.mark.parametrize("place", ["notes.html", "run/view.html"])
def test_a_file_of_the_user_stays(download, place, capsys):
    (download / place).write_text("<html><head><title>my own notes</title></head></html>")
    assert main(["view", str(download)]) == 0
    assert "my own notes" in (download / place).read_text()
    assert "is not a page of gem-core" in (download / "index.html").read_text()


def test_a_page_is_replaced_and_an_empty_file_filled(download):
    (download / "notes.html").touch()
    assert main(["view", str(download / "notes.jsonl")]) == 0
    first = (download / "notes.html").stat()
    assert main(["view", str(download / "notes.jsonl")]) == 0
    assert (download / "notes.html").stat().st_ino != first.st_ino
    assert MARK in (download / "notes.html").read_text()[:1000]


def test_a_page_goes_to_a_stream(download):
    command = [
        sys.executable,
        "-m",
        "gem_lab",
        "view",
        str(download / "notes.jsonl"),
        "--out",
        "/dev/stdout",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("<!doctype html>")


def test_no_title_holds_a_line_of_its_own(download):
    name = "x\nssh-ed25519 AAAA attacker\n\x1b]0;y\u202e"
    (download / "notes.jsonl").rename(download / f"{name}.jsonl")
    assert main(["view", str(download)]) == 0
    pages = [download / f"{name}.html", download / "index.html"]
    for page in pages:
        text = page.read_text()
        assert "attacker" in text
        assert not re.search(r"^ssh-ed25519", text, re.MULTILINE)
        assert not set("\x1b\u202e") & set(text)


@pytest.mark.parametrize("name", ["config.json", "episodes.jsonl", "summary.json", ".lock"])
def test_a_run_does_not_write_through_links_in_its_folder(name, played, precious, tmp_path, capsys):
    folder = shutil.copytree(played, tmp_path / "copy")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(precious)
    command = ["eval", "--model", "random", "--env", EASY, "--episodes", "4", "--out", str(folder)]
    assert main(command) == 2
    assert f"{name} is a link" in capsys.readouterr().err
    assert precious.read_text() == "precious"


def test_a_rescored_run_is_not_written_through_a_link(played, tmp_path, capsys):
    folder = shutil.copytree(played, tmp_path / "copy")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "copy-rescored").symlink_to(elsewhere)
    assert main(["eval", "--rescore", str(folder)]) == 2
    assert "copy-rescored is a link" in capsys.readouterr().err
    assert list(elsewhere.iterdir()) == []
