"""Evaluation of a model folder with `gem-core eval`."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="needs the extra 'train'")

from gem_lab import main
from gem_lab.eval._token_texts import read_token_texts

EASY = "game:GuessTheNumber-v0-easy"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from gem_lab.train import TinyOptions, save_tiny

    path = tmp_path_factory.mktemp("models") / "tiny"
    save_tiny(path, TinyOptions(env=(EASY,), layers=1, warm_start_steps=30, warm_start_tokens=8_000,
                                corpus_episodes=30))  # fmt: skip
    return path


def test_a_folder_is_played_in_tokens_and_continues(folder, tmp_path, capsys):
    words = ["eval", "--model", str(folder), "--env", EASY, "--episodes", "6", "--group-size", "2", "--json"]
    words += ["--threads", "1", "--max-tokens-per-turn", "24"]
    assert main([*words, "--out", str(tmp_path / "a")]) == 0
    first = json.loads(capsys.readouterr().out)
    easy = first["envs"][EASY]
    assert (easy["episodes"], easy["errors"], list(easy["pass_at"])) == (12, 0, ["1", "2"])
    assert easy["prompt_tokens"] > easy["response_tokens"] > 0
    trace = tmp_path / "a" / "episodes.jsonl"
    assert read_token_texts(trace)
    # Half of the tasks again, in different batches: the same numbers.
    lines = trace.read_text().splitlines(keepends=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "config.json").write_text((tmp_path / "a" / "config.json").read_text())
    (tmp_path / "b" / "episodes.jsonl").write_text("".join(lines[:5]))
    assert main([*words, "--out", str(tmp_path / "b"), "--concurrency", "3"]) == 0
    assert json.loads(capsys.readouterr().out) == first


def test_a_folder_that_is_not_a_model(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    words = ["eval", "--model", str(tmp_path / "empty"), "--env", EASY, "--out", str(tmp_path / "out")]
    assert main(words) == 2
    assert "cannot load the tokenizer" in capsys.readouterr().err.splitlines()[-1]
    assert main([*words[:2], f"hf:{tmp_path / 'none'}", *words[3:-1], str(tmp_path / "out2")]) == 2
    assert "no such model folder" in capsys.readouterr().err
    assert main([*words[:2], "vllm:nowhere", *words[3:-1], str(tmp_path / "out3")]) == 2
    assert "vllm" in capsys.readouterr().err
