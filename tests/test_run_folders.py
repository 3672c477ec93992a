"""Folders of runs, and the lines of their files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gem_core.errors import ConfigError, DataError
from gem_lab._run_folders import append_line, claimed, is_claimed, read_json_lines


def test_a_folder_is_held_by_one_run_at_a_time(tmp_path):
    folder = tmp_path / "new"
    with claimed(folder, "run"), pytest.raises(ConfigError, match="another run is running in"):
        claimed(folder, "run").__enter__()
    with claimed(folder, "run"):
        pass


def test_a_reader_that_looks_at_the_lock_does_not_stop_a_run(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    lock = (tmp_path / ".lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_SH)  # as `is_claimed` does for a moment
    monkeypatch.setattr("time.sleep", lambda seconds: lock.close())
    with claimed(tmp_path, "run"):
        assert is_claimed(tmp_path)
    assert not is_claimed(tmp_path)


def test_a_line_that_is_being_written_is_skipped(tmp_path):
    (tmp_path / "rows").write_text('{"a": 1}\n[2]\n{"a"')
    assert read_json_lines(tmp_path / "rows") == [{"a": 1}, [2]]
    (tmp_path / "rows").write_text('{"a"\n[2]\n')
    with pytest.raises(ValueError, match="Expecting"):
        read_json_lines(tmp_path / "rows")


def test_a_line_is_only_added_to_a_file_that_exists(tmp_path):
    with pytest.raises(FileNotFoundError, match="rows"):
        append_line(tmp_path / "rows", "1")
    (tmp_path / "rows").touch()
    append_line(tmp_path / "rows", "é")
    append_line(tmp_path / "rows", "2")
    assert (tmp_path / "rows").read_text(encoding="utf-8") == "é\n2\n"


def _remove(folder: Path) -> None:
    shutil.rmtree(folder)


def _move(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def _replace(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.mkdir()


@pytest.mark.parametrize("change", [_remove, _move, _replace])
def test_a_folder_that_vanishes_during_a_run_is_an_error(tmp_path, change):
    def run(folder: Path, error: Exception | None = None) -> None:
        with claimed(folder, "training") as claim:
            claim.check()
            change(folder)
            if error is not None:
                raise error

    with pytest.raises(ConfigError, match="one was removed or moved during the training"):
        run(tmp_path / "a" / "one")
    with pytest.raises(ZeroDivisionError):  # not hidden by the check
        run(tmp_path / "b" / "two", ZeroDivisionError())


@pytest.mark.parametrize("line", [b"{", b"\xff", b"not JSON", b"[" * 5000])
def test_a_damaged_line_is_named(tmp_path, line):
    (tmp_path / "rows").write_bytes(b"1\n" + line + b"\n3\n")
    with pytest.raises(DataError, match=r"rows, line 2 is damaged: "):
        read_json_lines(tmp_path / "rows")
