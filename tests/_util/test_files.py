from __future__ import annotations

import errno
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gem_chat._files import read_text
from gem_core._util.files import write_atomically
from gem_core.errors import ConfigError


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_file_from_windows_is_read(encoding, tmp_path):
    path = tmp_path / "file.txt"
    path.write_bytes("Zwölf\r\nLines\n".encode(encoding))
    assert read_text(path) == "Zwölf\nLines\n"


def test_a_file_in_another_encoding_is_named(tmp_path):
    path = tmp_path / "file.txt"
    path.write_bytes("Zwölf".encode("latin-1"))
    with pytest.raises(ConfigError, match=f"{path}: .*position 2.*; save it as text in UTF-8"):
        read_text(path)


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
