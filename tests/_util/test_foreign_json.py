import json

import pytest

from gem_core._util.foreign_json import DEEPEST, MOST_DIGITS, read_json, read_json_file

HOSTILE = [
    "[" * 100_000,
    "[" * 50_000 + "]" * 50_000,
    '{"a":' * 3000 + "1" + "}" * 3000,
    "[" * (DEEPEST + 1) + "]" * (DEEPEST + 1),
    '[{"a":' * 200 + "0" + "}]" * 200,
    "9" * 5000,
    '{"reward": -' + "9" * (MOST_DIGITS + 1) + "}",
    '"' + '\\"' * 100_000,
    '"\\ud800',
    "",
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:12] or "empty")
@pytest.mark.parametrize("form", [str, str.encode])
def test_every_failure_is_a_value_error(text, form):
    with pytest.raises(ValueError):  # noqa: PT011
        read_json(form(text))


def test_the_reader_agrees_with_json():
    values = [
        {"a": [1, -2.5, None, True, "ü\ud800", {"b": []}]},
        [[["[" * 500, "{" * 500]]] * 50,
        [10**300, -(10**307), 0.1],
        json.loads("[" * DEEPEST + "]" * DEEPEST),
    ]
    for value in values:
        text = json.dumps(value)
        assert read_json(text) == read_json(text.encode()) == json.loads(text)


def test_what_a_caller_accepts(tmp_path):
    for text in ("NaN", "[Infinity]", "1e999", '{"a": -Infinity}'):
        read_json(text)
        with pytest.raises(ValueError):  # noqa: PT011
            read_json(text, finite=True)
    assert read_json("[" + "1" * 400 + ", 2]", long_integer=len) == [400, 2]
    with pytest.raises(ValueError, match="more than 10 bytes"):
        read_json("[" + " " * 10 + "]", most_bytes=10)
    (tmp_path / "a.json").write_text("[1, 2, 3]")
    assert read_json_file(tmp_path / "a.json") == [1, 2, 3]
    with pytest.raises(ValueError, match="more than 4 bytes"):
        read_json_file(tmp_path / "a.json", most_bytes=4)
