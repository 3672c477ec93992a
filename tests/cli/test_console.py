"""Tables on terminals of different widths."""

from __future__ import annotations

import contextlib
import io
import sys

import pytest

from gem_lab import main
from gem_lab._cli import _console
from gem_lab.eval import EvalConfig, evaluate

COLUMNS = ("environment", "episodes", "items", "return", "success")
ROWS = [
    ["game:GuessTheNumber-v0-easy", "12", "-", "0.574 ± 0.116 [0.352, 0.787]", "0.250 [0.089, 0.532]"],
    ["game:Mastermind-v0-easy", "12", "", "0.542 ± 0.096 [0.375, 0.708]", "0.250 [0.089, 0.532]"],
]


@pytest.fixture
def screen(monkeypatch):
    """Return a function that prints on a terminal of some width and returns the lines."""
    rich = pytest.importorskip("rich.console", reason="needs the extra 'eval'")

    def print_at(width, print_function, *args, **kwargs):
        shown = io.StringIO()
        console = rich.Console(file=shown, force_terminal=True, color_system=None, width=width)
        monkeypatch.setattr(_console, "rich_console", lambda: console)
        print_function(*args, **kwargs)
        return [line.rstrip() for line in shown.getvalue().splitlines()]

    return print_at


@pytest.fixture
def lines(screen):
    """Return a function that prints a table on a terminal of some width and returns its lines."""
    return lambda width, columns, rows: screen(width, _console.print_table, columns, rows, title="A title")


def test_a_table_that_fits_has_a_line_per_row(lines):
    shown = lines(120, COLUMNS, ROWS)
    assert "items" not in "".join(shown)  # no row has a value
    (row,) = [line for line in shown if "Mastermind" in line]
    assert all(cell in row for cell in ROWS[1])


def test_rows_of_a_wide_table_become_paragraphs(lines):
    shown = lines(80, COLUMNS, ROWS)
    assert shown[:4] == [
        "A title",
        "game:GuessTheNumber-v0-easy",
        "  episodes 12   return 0.574 ± 0.116 [0.352, 0.787]",
        "  success 0.250 [0.089, 0.532]",
    ]
    narrow = lines(20, COLUMNS, ROWS)
    assert "  episodes 12" in narrow


def test_only_the_widest_column_is_wrapped(lines):
    shown = lines(80, ("extra", "packages"), [["train", "word " * 30], ["an-extra-with-a-long-name", "none"]])
    assert any(line.startswith("  an-extra-with-a-long-name") for line in shown)
    assert sum("word" in line for line in shown) > 2


def test_long_lines_behind_a_label_have_a_hanging_indent(screen):
    command = "  reproduce: gem-core check " + "long " * 20 + "--seeds 1"
    text = f"game: {'word ' * 20}\n  observed: {'more ' * 20}\n{command}"
    shown = screen(80, _console.print_labeled, "failed ", text, "red")
    assert [line[: line.index(line.split()[0])] for line in shown] == [
        "",
        *(" " * n for n in (10, 10, 12, 10)),
    ]
    assert shown[0].startswith("failed  game: word")
    assert max(len(line) for line in shown[:-1]) <= 80
    assert shown[-1] == " " * 8 + command


def test_plain_output_is_aligned(capsys):
    _console.print_table(COLUMNS, ROWS)
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first.split() == ["environment", "episodes", "return", "success"]
    assert second.index("0.574") == first.index("return")
    _console.print_labeled("failed ", "one\n  two", "red")
    assert capsys.readouterr().out == "failed  one\n          two\n"


def test_a_progress_bar_on_standard_error_leaves_piped_output_alone(monkeypatch, capsys):
    pytest.importorskip("rich", reason="needs the extra 'train'")
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    assert main(["check", "game:GuessTheNumber-v0-easy", "--rules", "signatures", "--seeds", "1"]) == 0
    assert "1 rule holds" in capsys.readouterr().out
    assert "checking" in terminal.getvalue()


def test_counted_reports_the_number_of_earlier_items():
    done = []
    assert list(_console.counted("abc", done.append)) == ["a", "b", "c"]
    assert done == [0, 1, 2]


def test_reports_and_traces_show_their_progress(monkeypatch, tmp_path):
    pytest.importorskip("rich", reason="needs the extra 'train'")
    bars = []

    @contextlib.contextmanager
    def progress(description, total):
        seen = []
        yield seen.append
        bars.append((description, total, seen))

    monkeypatch.setattr(_console, "progress", progress)
    run = tmp_path / "run"
    evaluate(EvalConfig("oracle", ["game:GuessTheNumber-v0-easy"], episodes=2, out=str(run)))
    assert main(["report", str(run), "--out", str(tmp_path / "report.html")]) == 0
    assert bars == [("reading", 1, [0]), ("comparing", None, []), ("writing", 2, [0, 1])]
    del bars[:]
    assert main(["view", str(run / "episodes.jsonl"), "--out", str(tmp_path / "trace.html")]) == 0
    assert bars == [("writing", 2, [0, 1])]
    del bars[:]
    assert main(["view", str(tmp_path)]) == 0
    assert bars == [("reading", None, []), ("writing", 1, [0])]
