import os

import pytest

from gem_core.errors import DataError
from gem_envs._terminal.dockerfile import files_of
from gem_envs._terminal.formats import read_task


@pytest.fixture
def task(tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("SECRET")
    folder = tmp_path / "task"
    for name in ("tests", "environment/data/deep", "solution"):
        (folder / name).mkdir(parents=True)
    (folder / "instruction.md").write_text("Do it.")
    (folder / "tests" / "test.sh").write_text("true")
    (folder / "environment" / "Dockerfile").write_text("FROM ubuntu\nWORKDIR /app\nCOPY data /app/data\n")
    (folder / "environment" / "data" / "a.txt").write_text("a")
    return folder


@pytest.mark.parametrize(
    ("place", "target"),
    [
        ("environment/data/leak.txt", "../../../secret/key"),
        ("environment/data/deep/leak.txt", "../../../../secret/key"),
        ("environment/data/folder", "../../../secret"),
        ("environment/data/deep/two.txt", "../one"),
        ("environment/data/absolute", "/etc/hostname"),
        ("environment/data/nothing", "nowhere"),
        ("environment/data/loop", "loop"),
        ("environment/more", "../../secret"),
        ("tests/test_leak.py", "../../secret/key"),
        ("tests/more", "../../secret"),
        ("solution/solve.sh", "../../secret/key"),
        ("task.toml", "../secret/key"),
    ],
)
def test_no_link_leads_out_of_a_task(task, place, target):
    (task / "environment" / "data" / "one").symlink_to("../../../secret/key")
    if "two" not in place:
        (task / "environment" / "data" / "one").unlink()
    (task / place).symlink_to(target)
    with pytest.raises(DataError, match="is a link out of"):
        read_task(task, files=True)
    if place.startswith("environment"):
        with pytest.raises(DataError, match="is a link out of"):
            files_of(task / "environment" / "Dockerfile")


def test_links_inside_stay(task):
    (task / "environment" / "data" / "b.txt").symlink_to("a.txt")
    (task.parent / "link").symlink_to(task)
    for folder in (task, task.parent / "link"):
        (step,) = read_task(folder, files=True).steps
        assert step.task.files["data/b.txt"].data == b"a"


def test_pipes_and_large_files_are_refused(task):
    large = task / "environment" / "data" / "large"
    large.touch()
    os.truncate(large, 1 << 40)  # takes no space on the disk
    with pytest.raises(DataError, match="larger than"):
        read_task(task, files=True)
    os.rename(large, task / "tests" / "large")
    with pytest.raises(DataError, match="larger than"):
        read_task(task, files=True)
    (task / "tests" / "large").unlink()
    os.mkfifo(task / "instruction")
    with pytest.raises(DataError, match="neither a file nor a folder"):
        read_task(task, files=True)
