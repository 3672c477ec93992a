"""Training on full disks, in folders that vanish, and from records of other versions or with damage."""

from __future__ import annotations

import json
import os
import resource
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

from gem_core.errors import CheckpointError, ConfigError, GemError  # noqa: E402
from gem_lab.train import TrainConfig, train  # noqa: E402
from gem_lab.train._checkpoint import STATE_NAME, save_checkpoint  # noqa: E402
from gem_lab.train._config import TINY  # noqa: E402
from gem_lab.train._output import RememberingFile, replace_folder  # noqa: E402
from gem_lab.train._report import TrainReporter  # noqa: E402
from gem_lab.train._trainer import Learner  # noqa: E402
from tests.train.helpers import options, read_metrics  # noqa: E402


class After(TrainReporter):
    """Calls a function after a step."""

    def __init__(self, step, action):
        self.at, self.action = step, action

    def step(self, metrics):
        if metrics["step"] == self.at:
            self.action()


def config(model, out, **changes) -> TrainConfig:
    given = {"steps": 2, "save_every": 1, "eval_episodes": 4, "curve": False, "trace_every": 0}
    return TrainConfig(**options(model, out, **given | changes))


@contextmanager
def files_of_at_most(size):
    """Limit the size of files, which fails like a full disk, at the same byte of each file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_at_any_byte_of_a_checkpoint_is_named_and_leaves_nothing(tiny_folder, tmp_path):
    learner = Learner(config(tiny_folder, tmp_path), str(tiny_folder), None)
    state = {"learners": {"": learner.state()}, "filler": torch.zeros(50_000)}

    def save(step):
        return save_checkpoint(tmp_path, step, {"": (learner.model, learner.processor)}, state, keep=99)

    sizes = {path.stat().st_size for path in save(1).rglob("*") if path.is_file()}
    shutil.rmtree(tmp_path / "checkpoints")
    largest = max(sizes)
    limits = {1, *(size - 1 for size in sizes), *range(5000, largest, largest // 12)}
    assert len(limits) > 12
    for step, limit in enumerate(sorted(limits)):
        with files_of_at_most(limit), pytest.raises(CheckpointError) as error:
            save(step)
        assert f"cannot write {tmp_path}/checkpoints/step-{step:06d}: " in str(error.value)
        assert "File too large" in str(error.value)
        assert list((tmp_path / "checkpoints").iterdir()) == []
    with files_of_at_most(largest):
        save(100)


class Odd(Exception):
    """An error of a library that is no OSError."""


@pytest.mark.parametrize(
    "error", [Odd("of any text"), RuntimeError("unexpected pos 501888 vs 501776"), Exception()]
)
def test_each_error_of_a_library_that_writes_is_a_failed_write(tmp_path, error):
    message = f"cannot write {tmp_path}/new: {type(error).__name__}"
    with pytest.raises(CheckpointError, match=message), replace_folder(tmp_path / "new"):
        raise error
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_is_remembered_until_the_end(tmp_path):
    with files_of_at_most(100):
        file = RememberingFile(tmp_path / "file")
        for _ in range(100):
            assert file.write(b"x" * 1000) == 1000
        with pytest.raises(OSError, match="File too large"):
            file.close()


@pytest.mark.parametrize(
    "change", [shutil.rmtree, lambda folder: folder.rename(folder.with_name("elsewhere"))]
)
@pytest.mark.parametrize("last", [1, 2])
def test_a_folder_that_vanishes_during_training_is_an_error(tiny_folder, tmp_path, change, last):
    out = tmp_path / "run"
    with pytest.raises((GemError, OSError), match=f"{out}"):
        train(config(tiny_folder, out, eval_episodes=0), After(last, lambda: change(out)))
    assert not list(tmp_path.glob("run/*"))  # a new folder would look like a finished run


def test_a_file_that_vanishes_during_training_is_an_error(tiny_folder, tmp_path):
    with pytest.raises(OSError, match=r"metrics\.jsonl"):
        train(config(tiny_folder, tmp_path), After(1, (tmp_path / "metrics.jsonl").unlink))


@pytest.fixture(scope="module")
def interrupted(tiny_folder, tmp_path_factory):
    """Return the folder of a run with one of two steps."""
    out = tmp_path_factory.mktemp("interrupted") / "run"

    def stop():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(config(tiny_folder, out), After(2, stop))
    return out


def resumed(tiny_folder, out, **changes) -> list[dict[str, Any]]:
    train(config(tiny_folder, out, **changes))
    return read_metrics(out)


def edited(interrupted: Path, out: Path, edit) -> Path:
    """Copy the run and change the trainer's state."""
    shutil.copytree(interrupted, out)
    path = out / "checkpoints" / "step-000001" / STATE_NAME
    state = torch.load(path, weights_only=True)
    torch.save(edit(state), path)
    return path


def without(*names):
    def edit(state):
        for name in names:
            del state[name]
        return state

    return edit


def option(name, value=None):
    """Return an edit that sets an option of the record, or removes it."""

    def edit(state):
        state["config"].pop(name, None)
        if value is not None:
            state["config"][name] = value
        return state

    return edit


BAD_STATES = {
    "a list": lambda state: [1, 2],
    "a tensor": lambda state: torch.zeros(3),
    "empty": lambda state: {},
    "without a format": without("format"),
    "a newer format": lambda state: {**state, "format": 2},
    "without options": without("config"),
    "without learners": without("learners"),
    "options that are a list": lambda state: {**state, "config": []},
    "a step that is text": lambda state: {**state, "step": "1"},
    "no learner": lambda state: {**state, "learners": {}},
    "an empty optimizer": lambda state: {**state, "learners": {"": {"optimizer": {}, "critic": None}}},
    "random state of another size": lambda state: {**state, "torch_rng": torch.zeros(3, dtype=torch.uint8)},
    "history without steps": lambda state: {**state, "history": [1]},
}


@pytest.mark.parametrize("name", BAD_STATES)
def test_a_state_that_cannot_be_used_is_named(tiny_folder, interrupted, tmp_path, name):
    path = edited(interrupted, tmp_path / "run", BAD_STATES[name])
    with pytest.raises(CheckpointError, match=str(path)):
        resumed(tiny_folder, tmp_path / "run")


def test_an_option_of_another_version_is_refused(tiny_folder, interrupted, tmp_path):
    edited(interrupted, tmp_path / "run", option("future_option", 3))
    with pytest.raises(CheckpointError, match="other options \\(future_option, which this version lacks\\)"):
        resumed(tiny_folder, tmp_path / "run")


def test_an_option_that_an_older_version_lacked_had_its_default(tiny_folder, interrupted, tmp_path):
    edited(interrupted, tmp_path / "run", option("max_grad_norm"))
    edited(interrupted, tmp_path / "other", option("max_grad_norm"))
    assert len(resumed(tiny_folder, tmp_path / "run")) == 2
    with pytest.raises(CheckpointError, match="other options \\(max_grad_norm\\)"):
        resumed(tiny_folder, tmp_path / "other", max_grad_norm=0.5)


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"step": "1"}', "null"])
@pytest.mark.parametrize("file", ["evaluations.jsonl", "traces.jsonl"])
def test_a_damaged_record_is_named(tiny_folder, interrupted, tmp_path, file, line):
    out = tmp_path / "run"
    shutil.copytree(interrupted, out)
    with (out / file).open("a") as records:
        records.write(line + "\n")
    before = {
        path: path.read_bytes() for path in out.rglob("*") if path.is_file() and path.name != "config.json"
    }
    with pytest.raises(GemError, match=rf"{out}/{file}"):
        resumed(tiny_folder, out)
    assert {path: path.read_bytes() for path in before} == before


def test_a_path_that_libraries_cannot_use_is_named(tmp_path):
    out = os.path.join(tmp_path, os.fsdecode(b"caf\xe9"))
    with pytest.raises(ConfigError, match=r"out='.*caf\\udce9': expected a path in UTF-8"):
        train(TrainConfig(model=TINY, out=out))
    assert not os.path.exists(out)


def test_the_last_lines_name_only_files_that_exist(tiny_folder, tmp_path, capsys):
    pytest.importorskip("rich", reason="needs the extra 'train'")
    from gem_lab.train._console import ConsoleReporter

    for folder, changes in {"plain": {"eval_episodes": 0}, "all": {"curve": True}}.items():
        chosen = config(tiny_folder, tmp_path / folder, **changes)
        train(chosen, ConsoleReporter(chosen))
        shown = capsys.readouterr().out
        named = [word for word in shown.split() if word.startswith(f"{tmp_path}/{folder}/")]
        assert [word for word in named if not os.path.exists(word.rstrip(")"))] == []
        assert any("episodes.txt" in word for word in named)
        assert ("curve.png" in shown) == (folder == "all")
    assert json.loads((tmp_path / "all" / "config.json").read_text())["curve"] is True
