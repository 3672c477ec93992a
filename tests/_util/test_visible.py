"""Control characters become visible."""

import pytest

from gem_core._util.messages import error_line
from gem_core._util.visible import visible

HOSTILE = [
    "\x1b]52;c;YWJj\x07", "\x1b]0;title\x07", "\x1b[31mred", "\x1b[2J\x1b[1;1H", "\x9b31m",
    "a\rb", "\x08\x08x", "\x07", "\x7f", "\u202egnp.exe", "\u2066x\u2069", "pay\u200bpal", "\ufeffx", "\x00",
    "a\u2028b", "\U000e0041",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_control_characters_become_escapes(text):
    shown = visible(text)
    assert shown.isprintable()
    assert shown.encode().decode("unicode_escape") != shown
    assert visible(shown) == shown
    assert visible(error_line(ValueError(text))).isprintable()


def test_other_text_stays():
    for text in ("a\tb\nc", "Grüße 你好 🙂", "naïve é", "👩\u200d👧", "क्\u200dष", "नी\u200dत"):
        assert visible(text) == text
    assert visible("a\nb\t", lines=False) == r"a\nb\t"
