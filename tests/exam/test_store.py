"""Parts of an exam that are damaged are measured again."""

from __future__ import annotations

import os
import sys

import pytest

from gem_core.errors import ConfigError
from gem_lab import exam
from gem_lab.exam._store import Store

SETTINGS = {
    "tasks": ["stop"],
    "stages": ["initial"],
    "batch_sizes": [8],
    "enumerated_sizes": [],
    "budget": 300,
}
DAMAGE = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "without its end": lambda data: data[:-30],
    "junk": lambda data: b"\xff" * len(data),
    "one wrong byte": lambda data: data[:200] + bytes([data[200] ^ 255]) + data[201:],
    "another file": lambda data: b"{}",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_part_is_measured_again(tmp_path, damage, caplog):
    whole = exam.run(["reinforce"], resume=tmp_path, **SETTINGS)
    (part,) = tmp_path.iterdir()
    data = part.read_bytes()
    part.write_bytes(DAMAGE[damage](data))
    assert Store.load(part) is None
    assert f"{part} is damaged" in caplog.text
    assert exam.run(["reinforce"], resume=tmp_path, **SETTINGS) == whole
    assert Store.load(part) is not None


def test_a_part_that_cannot_be_read_is_an_error(tmp_path):
    exam.run(["reinforce"], resume=tmp_path, **SETTINGS)
    (part,) = tmp_path.iterdir()
    part.unlink()
    part.mkdir()
    with pytest.raises(IsADirectoryError, match=part.name):
        exam.run(["reinforce"], resume=tmp_path, **SETTINGS)


@pytest.mark.parametrize("error", [OSError(30, "Read-only file system"), ImportError("no semaphores")])
def test_a_machine_without_shared_semaphores_is_named(monkeypatch, error):
    def fails(*args, **kwargs):
        raise error

    monkeypatch.setattr(sys.modules["gem_lab.exam._run"], "ProcessPoolExecutor", fails)
    with pytest.raises(ConfigError, match=r"workers=2: .*/dev/shm must be writable .*; use workers=1"):
        exam.run(["reinforce"], workers=2, **SETTINGS)


def _dies(rewards):
    os._exit(9)


def test_a_worker_that_is_killed_is_named():
    with pytest.raises(ConfigError, match="workers=2: a process could not start or was killed"):
        exam.run(_dies, workers=2, **SETTINGS)
