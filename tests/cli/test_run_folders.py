"""The folder of a run may come from someone else: nothing is written through its links or over its pages."""

from __future__ import annotations

import shutil

import pytest

from gem_lab import main
from gem_lab._pages.document import PAGE_MARK as MARK
from gem_lab.eval import EvalConfig, evaluate

EASY = "game:GuessTheNumber-v0-easy"


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    folder = tmp_path_factory.mktemp("played") / "run"
    evaluate(EvalConfig("random", [EASY], episodes=2, out=str(folder)))
    return folder


@pytest.fixture
def precious(tmp_path):
    path = tmp_path / "home" / "authorized_keys"
    path.parent.mkdir()
    path.write_text("precious")
    return path


@pytest.mark.parametrize("is_page", [False, True])
def test_the_page_of_a_run_is_not_written_through_a_link(played, precious, tmp_path, is_page):
    folder = tmp_path / "download"
    shutil.copytree(played, folder / "run")
    if is_page:
        precious.write_text(f"<html><head>{MARK}</head>precious</html>")
    before = precious.read_text()
    (folder / "run" / "view.html").symlink_to("../../home/authorized_keys")
    assert main(["view", str(folder)]) == 0
    assert precious.read_text() == before
    assert (folder / "run" / "view.html").is_symlink()
    assert "view.html is a link" in (folder / "index.html").read_text()


def test_a_page_of_the_user_in_a_run_stays(played, tmp_path):
    folder = tmp_path / "download"
    shutil.copytree(played, folder / "run")
    (folder / "run" / "view.html").write_text("<html><head><title>my own notes</title></head></html>")
    assert main(["view", str(folder)]) == 0
    assert "my own notes" in (folder / "run" / "view.html").read_text()
    assert "is not a page of gem-core" in (folder / "index.html").read_text()


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
