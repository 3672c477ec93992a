"""The commands `train` and `tiny`, and their messages if a required package is missing."""

from __future__ import annotations

import dataclasses
import json
import shlex
import subprocess
import sys

import pytest

from gem_lab import main
from gem_lab.train import TrainConfig
from tests.train.helpers import EASY, arguments, options

BLOCKED = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
from gem_lab import main
sys.exit(main({words!r}))
"""


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (["train", "--out=x"], "torch"),
        (["tiny", "--out=x"], "torch"),
        (["train", "--out=x"], "transformers"),
    ],
)
def test_a_missing_package_is_reported_in_one_line_with_the_command_that_installs_it(
    words, missing, tmp_path
):
    code = BLOCKED.format(blocked=[missing], words=words)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("gem-core: error: training needs the package 't")
    assert "pip install 'gem-core[train]'" in done.stderr


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["tiny", "--help"]])
def test_help_needs_neither_torch_nor_transformers(words):
    code = (
        f"import sys; from gem_lab import main; code = main({words!r}); "
        "heavy = {'torch', 'transformers', 'matplotlib', 'rich'} & set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_of_train_has_a_flag_for_every_option_and_examples(capsys):
    assert main(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    for item in dataclasses.fields(TrainConfig):
        assert f"--{item.name.replace('_', '-')}" in shown
    examples = shown.partition("examples:\n")[2].replace("\\\n", " ").splitlines()
    assert len(examples) >= 2
    assert all(shlex.split(example)[:2] == ["gem-core", "train"] for example in examples)


def test_every_option_arrives_from_the_command_line(monkeypatch, tmp_path):
    pytest.importorskip("torch", reason="needs the extra 'train'")
    import gem_lab.train

    def stop(config, reporter):
        seen.append(config)
        raise KeyboardInterrupt

    seen: list[TrainConfig] = []
    monkeypatch.setattr(gem_lab.train, "train", stop)
    changes = {
        "env": [f"{EASY}=2", "game:Mastermind-v0"], "max_turns": 3, "resume": False, "wandb": "mine",
        "tensorboard": True, "gamma": 0.5, "loss_scale": "turn-mean", "on_length_cut": "pass",
    }  # fmt: skip
    assert main(arguments("m", tmp_path, **changes)) == 130
    assert seen == [TrainConfig(**options("m", tmp_path, **changes))]


def test_train_prints_one_json_document(tiny_folder, tmp_path, capsys):
    pytest.importorskip("torch", reason="needs the extra 'train'")
    assert main([*arguments(tiny_folder, tmp_path, steps=1), "--json"]) == 0
    shown = capsys.readouterr()
    answer = json.loads(shown.out)
    assert shown.err == ""
    assert answer["checkpoint"] == str(tmp_path / "checkpoints" / "step-000001")
    for when in ("before", "after"):
        assert answer[when] == json.loads((tmp_path / "evaluation.json").read_text())[when]
        assert set(answer[when]) == {EASY}


def test_tiny_prints_the_hash_that_is_in_the_folder(tmp_path, capsys):
    pytest.importorskip("torch", reason="needs the extra 'train'")
    words = ["tiny", f"--out={tmp_path / 'a'}", "--env", EASY, "--warm-start-steps=0", "--layers=1"]
    assert main([*words, "--json"]) == 0
    shown = capsys.readouterr()
    answer = json.loads(shown.out)
    record = json.loads((tmp_path / "a" / "gem_tiny.json").read_text())
    assert shown.err == ""
    assert answer == {"folder": str(tmp_path / "a"), "sha256": record["sha256"]}
    assert (record["options"]["layers"], record["options"]["env"]) == (1, [EASY])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--env", "game:Nothing-v0"], "game:Nothing-v0"),
        (["--env", "game:GuessTheNumber-v0(depth=3)"], "unexpected keyword argument 'depth'"),
        (["--hidden-size", "48"], "hidden_size=48: expected a multiple of 32"),
    ],
)
def test_a_mistake_in_the_options_of_tiny_is_reported_in_one_line(words, said, tmp_path, capsys):
    pytest.importorskip("torch", reason="needs the extra 'train'")
    assert main(["tiny", "--json", f"--out={tmp_path / 'a'}", *words]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("gem-core: error: ")
    assert shown.count("\n") == 1
    assert said in shown


def test_a_negative_number_of_steps_is_a_mistake_of_usage(tmp_path, capsys):
    pytest.importorskip("torch", reason="needs the extra 'train'")
    assert main(["tiny", f"--out={tmp_path / 'a'}", "--warm-start-steps", "-1"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("gem-core: error: warm_start_steps=-1: expected a whole number of at least 0")
    assert not (tmp_path / "a").exists()
