from __future__ import annotations

import errno
import os
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gem_core._util.files import write_atomically
from gem_core.errors import ConfigError, DataError
from gem_lab._run_folders import append_line, claimed, is_claimed, read_json_lines


def test_text_and_bytes_in_a_new_folder(tmp_path):
    path = tmp_path / "new" / "file"
    write_atomically(path, ["é\n", b"\x00"])
    assert path.read_bytes() == "é\n".encode() + b"\x00"
    assert os.listdir(path.parent) == ["file"]


def test_a_failure_keeps_the_old_file_and_leaves_nothing(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def parts():
        yield "new"
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        write_atomically(path, parts())
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_threads_that_write_the_same_file_each_write_all_of_it(tmp_path):
    path = tmp_path / "file"
    texts = [str(digit) * 100_000 for digit in range(10)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda text: write_atomically(path, [text]), texts * 5))
    assert path.read_text() in texts
    assert os.listdir(tmp_path) == ["file"]


def test_the_umask_decides_who_may_read(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "file", ["text"])
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_a_folder_is_held_by_one_run_at_a_time(tmp_path):
    folder = tmp_path / "new"
    with claimed(folder, "run"), pytest.raises(ConfigError, match="another run is running in"):
        claimed(folder, "run").__enter__()
    with claimed(folder, "run"):
        pass


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_atomically(tmp_path / "link", ["new"])
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    received = []
    reader = threading.Thread(target=lambda: received.append(path.read_text()))
    reader.start()
    write_atomically(path, ["through the pipe"])
    reader.join(10)
    assert received == ["through the pipe"]
    assert path.is_fifo()


def test_a_folder_is_rejected(tmp_path):
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path, ["text"])


def test_an_error_about_another_file_keeps_its_name(tmp_path):
    with pytest.raises(FileNotFoundError, match="the-source"):
        write_atomically(tmp_path / "file", (Path(name).read_text() for name in ["the-source"]))
    assert os.listdir(tmp_path) == []


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


def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path):
    path = tmp_path / ("é" * 127 + "x")  # 255 bytes
    write_atomically(path, ["text"])
    assert path.read_text() == "text"
    assert os.listdir(tmp_path) == [path.name]
    longer = tmp_path / ("é" * 128)
    with pytest.raises(OSError, match="File name too long") as error:
        write_atomically(longer, ["text"])
    assert error.value.filename == str(longer)


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("call", ["open", "os.fsync", "os.replace"])
def test_an_error_names_the_target_whatever_fails(tmp_path, monkeypatch, number, call):
    def fails(path, *args, **kwargs):
        raise OSError(number, os.strerror(number), *([str(path)] if isinstance(path, Path) else []))

    monkeypatch.setattr(f"gem_core._util.files.{call}", fails, raising=False)
    monkeypatch.setattr(Path, "unlink", fails)  # as on a read-only file system
    with pytest.raises(OSError, match=re.escape(os.strerror(number))) as error:
        write_atomically(tmp_path / "file", ["text"])
    assert error.value.filename == str(tmp_path / "file")


def test_text_with_bytes_of_a_path_is_written(tmp_path):
    write_atomically(tmp_path / "file", ["in " + os.fsdecode(b"caf\xe9") + ", é"])
    assert (tmp_path / "file").read_text(encoding="utf-8") == "in caf\\udce9, é"


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
