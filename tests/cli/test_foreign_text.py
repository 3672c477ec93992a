"""Text from a server, a model, or a file never steers the terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from gem_core._util.visible import visible
from gem_lab.cli import _console, main

ATTACKS = {
    "clipboard": "\x1b]52;c;cm0gLXJm\x07",
    "title": "\x1b]0;owned\x1b\\",
    "colors": "\x1b[31mred",
    "cursor": "\x1b[2J\x1b[1;1H",
    "one byte": "\x9b31m",
    "overwrite": "harmless\rrm -rf",
    "erase": "abc\x08\x08\x08xyz",
    "bell": "\x07",
    "nul": "a\x00b",
    "direction": "\u202etxt.exe",
    "isolate": "\u2066a\u2069",
    "tag": "\U000e0041",
    "separator": "a\u2028b",
    "no width": "pay\u200bpal\ufeff",
    "delete": "a\x7fb",
}
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u202e\u2066\u2069\ufeff\U000e0041]")


@pytest.mark.parametrize("text", ATTACKS.values(), ids=ATTACKS)
def test_it_becomes_visible(text):
    assert not FORBIDDEN.search(visible(text))
    assert "\\" in visible(text)
    assert visible(visible(text)) == visible(text)


@pytest.mark.parametrize("text", ["a\tb\nc", "naïve 中文 é", "\U0001f468\u200d\U0001f469", "नी\u200dत"])
def test_ordinary_text_stays(text):
    assert visible(text) == text


@pytest.mark.parametrize("text", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize("on_terminal", [False, True], ids=["plain", "rich"])
def test_every_kind_of_output(text, on_terminal, monkeypatch, capsys):
    shown = io.StringIO()
    if on_terminal:
        rich = pytest.importorskip("rich.console", reason="needs the extra 'eval'")
        console = rich.Console(file=shown, force_terminal=True, color_system=None, width=200)
        monkeypatch.setattr(_console, "rich_console", lambda: console)
    _console.print_text(f"x{text}")
    _console.print_table(["name", f"x{text}"], [["a", f"x{text}"], [f"x{text}", "c"]], title=f"x{text}")
    _console.print_heading(f"x{text}")
    _console.print_labeled("x", f"x{text}\nsecond", "green")
    _console.note(f"x{text}")
    out, err = capsys.readouterr()
    out += shown.getvalue()
    assert out.count("x") >= 8
    assert "gem-core: x" in err
    assert not FORBIDDEN.search(out + err)


def test_play_shows_it(tmp_path, monkeypatch, capsys):
    file = tmp_path / "hostile.py"
    file.write_text(
        "import gem_core\n"
        f"TEXT = {''.join(ATTACKS.values())!r}\n"
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
