"""Text from a server, a model, or a file never steers the terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from gem_lab import main
from gem_lab._cli import _console
from tests._util.test_visible import HOSTILE

ATTACKS = "x".join(HOSTILE)
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u202e\u2066\u2069\ufeff\U000e0041]")


@pytest.mark.parametrize("on_terminal", [False, True], ids=["plain", "rich"])
def test_every_kind_of_output(on_terminal, monkeypatch, capsys):
    shown = io.StringIO()
    if on_terminal:
        rich = pytest.importorskip("rich.console", reason="needs the extra 'eval'")
        console = rich.Console(file=shown, force_terminal=True, color_system=None, width=200)
        monkeypatch.setattr(_console, "rich_console", lambda: console)
    text = f"start{ATTACKS}"
    _console.print_text(text)
    _console.print_table(["name", text], [["a", text], [text, "c"]], title=text)
    _console.print_heading(text)
    _console.print_labeled("x", f"{text}\nsecond", "green")
    _console.note(text)
    out, err = capsys.readouterr()
    out += shown.getvalue()
    assert out.count("start") >= 7
    assert "gem-core: start" in err
    assert not FORBIDDEN.search(out + err)


def test_play_shows_it(tmp_path, monkeypatch, capsys):
    file = tmp_path / "hostile.py"
    file.write_text(
        "import gem_core\n"
        f"TEXT = {ATTACKS!r}\n"
        "class Hostile(gem_core.Env):\n"
        "    def reset(self, seed=None, options=None):\n"
        "        return TEXT, {}\n"
        "    def step(self, action):\n"
        "        return TEXT, 0.0, True, False, {}\n"
        "    def sample_random_action(self):\n"
        "        return TEXT\n"
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(":random\n"))
    main(["play", f"{file}:Hostile", "--seed", "1"])
    out, err = capsys.readouterr()
    assert out.count("]52;c;") >= 2
    assert not FORBIDDEN.search(out + err)


def test_commands_print_through_the_console_only():
    folder = Path(_console.__file__).parent
    texts = {path.name: path.read_text() for path in folder.glob("*.py")}
    printing = {name for name, text in texts.items() if re.search(r"(?<![\w.])print\(|stdout\.write", text)}
    assert len(texts) > 20
    assert printing == {"_console.py", "_completion.py"}
