from __future__ import annotations

import json
import sys

import pytest

from gem_core.rollout import TraceWriter
from gem_lab import main
from tests.eval.traces import TEXTS, several


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "traces.jsonl"
    with TraceWriter(path, decode=lambda ids: TEXTS[ids[0]]) as writer:
        for episode in several():
            writer.write(episode)
    return path


def test_writes_the_page_beside_the_trace(trace, capsys):
    assert main(["view", str(trace)]) == 0
    page = trace.with_suffix(".html")
    assert f"wrote 4 episodes to {page}" in capsys.readouterr().err
    assert '"3":"seven"' in page.read_text()


def test_json_and_out(trace, tmp_path, capsys):
    out = tmp_path / "new" / "page.html"
    assert main(["view", str(trace), "--out", str(out), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == {"page": str(out), "episodes": 4, "turns": 4, "bytes": out.stat().st_size}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"schema_version": 99}\n', "line 1"),
        ("not json\n", "line 1: not JSON"),
        ("[]\n", "expected an object"),
        ('{"schema_version": 1, "turns": []}\n', "line 1"),
    ],
)
def test_a_damaged_trace_is_reported_in_one_line(content, expected, tmp_path, capsys):
    path = tmp_path / "traces.jsonl"
    path.write_text(content)
    assert main(["view", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert expected in error
    assert list(tmp_path.iterdir()) == [path]


def test_unreadable_and_unwritable_paths_are_reported_in_one_line(trace, tmp_path, capsys):
    assert main(["view", str(tmp_path / "nothing.jsonl")]) == 2
    assert "nothing.jsonl" in capsys.readouterr().err
    assert main(["view", str(trace), "--out", str(trace / "page.html")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["view", str(trace), "--out", str(trace)]) == 2
    assert "is the trace itself" in capsys.readouterr().err


def test_a_folder_without_a_tokenizer_is_reported_in_one_line(trace, tmp_path, capsys):
    pytest.importorskip("transformers", reason="needs the extra 'train'")
    (tmp_path / "empty").mkdir()
    assert main(["view", str(trace), "--tokenizer", str(tmp_path / "empty")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "tokenizer" in error


def test_a_missing_transformers_is_reported_in_one_line_with_the_pip_command(trace, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert main(["view", str(trace), "--tokenizer", "some/folder"]) == 2
    assert "pip install 'gem-core[train]'" in capsys.readouterr().err


def test_a_discount_outside_0_to_1_is_rejected(trace, capsys):
    assert main(["view", str(trace), "--gamma", "1.5"]) == 2
    assert "from 0 to 1" in capsys.readouterr().err
